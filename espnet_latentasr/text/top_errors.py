"""The most frequent errors of a scored set: knows aligned tokens; knows no speaker and no file."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from espnet_latentasr.text.error_rate import ErrorRate

KINDS = {"S": "substitution", "I": "insertion", "D": "deletion"}  # in the order of sclite's .dtl


class Confusion(NamedTuple):
    """One error and how often it was made; a side without a token is empty."""

    kind: str
    count: int
    reference: str
    hypothesis: str


def confusions(result: ErrorRate) -> Iterator[Confusion]:
    """Yield each distinct error: substitutions, insertions, deletions, the most frequent first.

    Equally frequent ones come in the order of their UTF-8 bytes, reference before hypothesis.
    """
    found: dict[str, Counter[tuple[str, str]]] = {letter: Counter() for letter in KINDS}
    for alignment in result.utterances.values():
        for operation, reference, hypothesis in alignment.columns():
            if operation != "C":
                found[operation][reference or "", hypothesis or ""] += 1
    for letter, counter in found.items():
        rows = sorted(counter.items(), key=lambda row: (-row[1], *map(str.encode, row[0])))
        yield from (Confusion(KINDS[letter], count, *pair) for pair, count in rows)


def top_errors_csv(result: ErrorRate) -> str:
    """Return ``top_errors.csv``: all of `confusions`, a header first."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(Confusion._fields)
    writer.writerows(confusions(result))
    return buffer.getvalue()
