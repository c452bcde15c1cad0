"""Lists of what was left out of a set: knows ``utt reason detail`` rows, not which reasons there are."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from espnet_latentasr.errors import DataError
from espnet_latentasr.fileio import atomic_write_text
from espnet_latentasr.reading import read_text

HEADER = ("utt", "reason", "detail")


def write_skipped(path: Path, rows: Iterable[tuple[str, str, str]]) -> None:
    """Write ``utt reason detail`` rows, tab separated below a header, whole or not at all."""
    clean = ((utt, reason, re.sub(r"\s+", " ", detail)) for utt, reason, detail in rows)
    atomic_write_text(path, "".join("\t".join(row) + "\n" for row in (HEADER, *clean)))


def read_skipped(path: Path) -> list[tuple[str, str, str]]:
    """Read what `write_skipped` wrote, nothing where there is no such file.

    Raises:
        DataError: a line without three fields.
    """
    lines = read_text(path, "a list of left-out utterances").split("\n")[:-1] if path.is_file() else []
    rows = [tuple(line.split("\t")) for line in lines]
    for number, row in enumerate(rows, start=1):
        if len(row) != len(HEADER) or (number == 1) != (row == HEADER):
            raise DataError(f"{path}:{number}: {row!s:.500}, {HEADER} expected; make the set again")
    return rows[1:]
