"""The manifest of a mixture: knows its columns, reads no corpus and no audio.

It names every drawn utterance in the order of the mixture, so that a set of N utterances is its first
N, and that the same set can be made elsewhere from other copies of the corpora.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from espnet_latentasr.data.kaldi_dir import c_sorted
from espnet_latentasr.errors import DataError
from espnet_latentasr.fileio import atomic_write_text
from espnet_latentasr.reading import read_text

MANIFEST = "manifest.tsv"


@dataclass(frozen=True)
class Drawn:
    """A line of the manifest; ``seconds`` has two decimals, ``text_sha256`` is of the transcript."""

    utt: str
    corpus: str
    locale: str
    lang: str
    speaker: str
    seconds: str
    text_sha256: str


def write_manifest(path: Path, drawn: Sequence[Drawn]) -> None:
    """Write a header and one line an utterance, tab separated, in the order of the mixture."""
    rows = [tuple(field.name for field in fields(Drawn)), *map(astuple, drawn)]
    atomic_write_text(path, "".join("\t".join(row) + "\n" for row in rows))


def read_manifest(path: Path) -> list[Drawn]:
    """Read what `write_manifest` wrote.

    Raises:
        DataError: no such file, other columns, or an utterance that is there twice.
    """
    names = [field.name for field in fields(Drawn)]
    if not path.is_file():
        raise DataError(f"{path}: no such file; a manifest of bin.prepare mixture expected")
    lines = [line.rstrip("\r") for line in read_text(path, f"a {MANIFEST}").split("\n")]
    if lines[-1]:
        raise DataError(f"{path}:{len(lines)}: lacks its line break, the file is cut off; draw again")
    header, *rows = [line.split("\t") for line in lines[:-1]] or [[]]
    if header != names:
        raise DataError(f"{path}:1: columns {header}, {names} expected")
    drawn: dict[str, Drawn] = {}
    for number, row in enumerate(rows, start=2):
        if len(row) != len(names) or row[0] in drawn:
            raise DataError(
                f"{path}:{number}: {len(names)} fields and an utterance not yet named expected"
            )
        drawn[row[0]] = Drawn(*row)
    return list(drawn.values())


def first_of(manifest: Path, num: int, there: Iterable[str]) -> list[str]:
    """Return the first ``num`` utterances of a manifest in C-locale order.

    Raises:
        DataError: the manifest has fewer, or one of them is not among ``there``: without it the set
            would be another one.
    """
    named, have = [one.utt for one in read_manifest(manifest)], set(there)
    if not 1 <= num <= len(named):
        raise DataError(f"{num} utterances asked for, but {manifest} has {len(named)}; ask for fewer")
    if lost := [utt for utt in named[:num] if utt not in have]:
        raise DataError(
            f"{len(lost)} of the first {num} utterances of {manifest} are not in the pool, '{lost[0]}' "
            "first: they were filtered or not formatted; draw the mixture again"
        )
    return c_sorted(named[:num])
