"""Formats of data sets by name: one registry for the command and for whoever adds another."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from espnet_latentasr.data.formats.base import Read, ReadOptions, Utterance
from espnet_latentasr.data.formats.hf import read_hf
from espnet_latentasr.data.formats.hf_write import write_hf, write_parquet
from espnet_latentasr.data.formats.kaldi import KaldiOptions, read_kaldi, write_kaldi
from espnet_latentasr.data.formats.lhotse import read_lhotse, write_lhotse
from espnet_latentasr.data.formats.nemo import read_nemo, write_nemo
from espnet_latentasr.errors import ConfigError, DataError

# What reads a format, and what writes it; Kaldi directories have a writer with options of its own.
READERS: dict[str, Callable[[Sequence[Path], ReadOptions], Read]] = {
    "kaldi": read_kaldi,
    "lhotse": read_lhotse,
    "nemo": read_nemo,
    "hf": read_hf,
}
WRITERS: dict[str, Callable[[Sequence[Utterance], Path], list[Path]]] = {
    "lhotse": write_lhotse,
    "nemo": write_nemo,
    "hf": write_hf,
    "parquet": write_parquet,
}


@dataclass(frozen=True)
class Converted:
    """What a conversion read and wrote; ``notes`` are counts, in words."""

    utterances: int
    paths: list[Path]
    notes: list[str]

    def __str__(self) -> str:
        names = ", ".join(map(str, self.paths))
        return f"{names}: {self.utterances} utterances" + "".join(f", {note}" for note in self.notes)


def convert(
    source: str,
    target: str,
    inputs: Sequence[Path],
    output: Path,
    read: ReadOptions | None = None,
    write: KaldiOptions | None = None,
) -> Converted:
    """Read a data set in one format and write it in another; no utterance is ever left out.

    Args:
        source, target: names of `READERS`, and of `WRITERS` or ``kaldi``.
        read, write: what the reader, and the writer of Kaldi directories, is told.

    Raises:
        ConfigError: an unknown format.
        DataError: whatever makes an utterance unusable, with its place and id.
    """
    reader = _choice(READERS, source, "--from")
    found = reader(inputs, read or ReadOptions(output=output))
    if not found.utterances:
        names = ", ".join(map(str, inputs))
        raise DataError(f"{names}: no utterance in it; is --input the right one, and --from {source}?")
    if target == "kaldi":
        done = write_kaldi(found.utterances, output, write or KaldiOptions())
        notes = [f"{count} {what}" for what, count in done.counts.items() if count]
        return Converted(done.utterances, [done.path], found.notes + notes)
    writer = _choice(WRITERS | {"kaldi": None}, target, "--to")
    return Converted(len(found.utterances), writer(found.utterances, output), found.notes)


def _choice(table: dict, name: str, option: str) -> Callable:
    if name not in table:
        near = difflib.get_close_matches(name, table, n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise ConfigError(f"{option} '{name}': {hint}known are {', '.join(table)}")
    return table[name]
