"""Stage 4: knows which formatted utterances are fit for training; never drops one of a test set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from espnet_latentasr.data.audio import MAX_SECONDS, MIN_SECONDS, SAMPLE_RATE
from espnet_latentasr.data.format import count_reasons, load_for_kind, write_skipped
from espnet_latentasr.data.kaldi_dir import (
    c_sorted,
    read_kaldi_table,
    write_kaldi_table,
)
from espnet_latentasr.errors import DataError
from espnet_latentasr.fileio import atomic_write_text

REASONS = ("too_long", "too_short", "empty_text")


class Dropped(NamedTuple):
    """An utterance left out, why, and the numbers behind it."""

    utt_id: str
    reason: str
    detail: str


@dataclass(frozen=True)
class FilterReport:
    """Utterances before the filter and those dropped, each with its reason."""

    entries: int
    dropped: list[Dropped]

    def __str__(self) -> str:
        reasons = count_reasons((d.reason for d in self.dropped), REASONS)
        kept = self.entries - len(self.dropped)
        return f"{self.entries} utterances in, {kept} out, dropped {reasons}"


def drop_reason(
    num_samples: int, text: str, limits: tuple[float, float] = (MIN_SECONDS, MAX_SECONDS)
) -> str | None:
    """Return why an utterance is unfit for training, or None; ``limits`` are seconds, inclusive."""
    shortest, longest = limits
    if num_samples > longest * SAMPLE_RATE:
        return "too_long"
    if num_samples < shortest * SAMPLE_RATE:
        return "too_short"
    return None if text.strip() else "empty_text"


def filter_data_dir(
    source: str | Path,
    output: str | Path,
    kind: str,
    limits: tuple[float, float] = (MIN_SECONDS, MAX_SECONDS),
) -> FilterReport:
    """Copy a formatted directory without what is unfit for training; a test set is copied whole.

    Dropped utterances are listed in ``output/filtered.tsv``.

    Raises:
        DataError: an invalid directory, ids of ``utt2num_samples`` that differ, or nothing left.
    """
    data = load_for_kind(source, output, kind)
    source, output = Path(source), Path(output)
    lengths = read_kaldi_table(source / "utt2num_samples")
    if lengths.keys() != data.text.keys():
        utt = c_sorted(lengths.keys() ^ data.text.keys())[0]
        raise DataError(
            f"{source}/utt2num_samples: utterance '{utt}' is in only one of it and text (it has "
            f"{len(lengths)}, text has {len(data.text)}); run the format stage again"
        )
    if bad := [utt for utt in data.utts if not lengths[utt].isdecimal()]:
        raise DataError(
            f"{source}/utt2num_samples: utterance '{bad[0]}' has '{lengths[bad[0]]}', a number of "
            "samples expected; run the format stage again"
        )
    dropped = []
    for utt in data.utts if kind != "test" else ():
        if reason := drop_reason(int(lengths[utt]), data.text[utt], limits):
            seconds = int(lengths[utt]) / SAMPLE_RATE
            detail = f"{seconds:.3f} s, {limits[0]:g} to {limits[1]:g} s and a transcript expected"
            dropped.append(Dropped(utt, reason, detail))
    report = FilterReport(len(data.utts), dropped)
    kept = data.text.keys() - {drop.utt_id for drop in dropped}
    if not kept:
        raise DataError(f"{source}: nothing is left ({report}); correct the limits or the set")
    (output / "wav.scp").unlink(missing_ok=True)
    write_skipped(output / "filtered.tsv", dropped)
    write_kaldi_table(output / "utt2num_samples", {utt: lengths[utt] for utt in kept})
    atomic_write_text(output / "feats_type", "raw\n")
    data.subset(kept).save(output)
    return report
