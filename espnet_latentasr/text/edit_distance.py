"""The alignment that NIST sclite makes: knows tokens; knows no text, no unit, no normaliser.

sclite minimises 4 S + 3 I + 3 D (not S + I + D) and, among equally cheap alignments, walks back
from the end preferring match or substitution, then insertion, then deletion.  Both the costs and
this order are needed to get its counts of S, D and I; jiwer's and kaldialign's differ.

Tokens are compared exactly.  sclite itself folds ASCII case unless run with ``-s``, and never folds
other letters; folding is left to the normaliser, so that it is named with the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

SUBSTITUTION, INSERTION, DELETION = 4, 3, 3
COST_MODEL = f"sclite {SUBSTITUTION}/{INSERTION}/{DELETION}"  # substitution/insertion/deletion


@dataclass(frozen=True)
class Counts:
    """Numbers of correct, substituted, deleted and inserted tokens; addition pools them."""

    correct: int = 0
    substitutions: int = 0
    deletions: int = 0
    insertions: int = 0

    @property
    def reference_length(self) -> int:
        return self.correct + self.substitutions + self.deletions

    @property
    def errors(self) -> int:
        return self.substitutions + self.deletions + self.insertions

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.correct + other.correct,
            self.substitutions + other.substitutions,
            self.deletions + other.deletions,
            self.insertions + other.insertions,
        )


@dataclass(frozen=True)
class Alignment:
    """One aligned pair; ``operations`` has one letter of C, S, D, I per column, left to right."""

    reference: tuple[str, ...]
    hypothesis: tuple[str, ...]
    operations: str

    @property
    def counts(self) -> Counts:
        return Counts(*(self.operations.count(letter) for letter in "CSDI"))

    def columns(self) -> Iterator[tuple[str, str | None, str | None]]:
        """Yield (operation, reference token, hypothesis token); None where a side has no token."""
        reference, hypothesis = iter(self.reference), iter(self.hypothesis)
        for operation in self.operations:
            yield (
                operation,
                None if operation == "I" else next(reference),
                None if operation == "D" else next(hypothesis),
            )


def align(reference: Sequence[str], hypothesis: Sequence[str]) -> Alignment:
    """Align two token sequences as sclite does.

    >>> align("a b c".split(), "b c d".split()).operations
    'DCCI'
    """
    ids: dict[str, int] = {}
    ref, hyp = (
        np.array([ids.setdefault(token, len(ids)) for token in tokens], dtype=np.int32)
        for tokens in (reference, hypothesis)
    )
    operations = _trace_back(_saving_table(ref, hyp), ref.tolist(), hyp.tolist())
    return Alignment(tuple(reference), tuple(hypothesis), operations)


# Deleting all of the reference and inserting all of the hypothesis costs DELETION n + INSERTION m.
# Pairing two tokens instead saves this much; the cheapest alignment is the one that saves most.
_MATCH_SAVES = DELETION + INSERTION
_SUBSTITUTION_SAVES = DELETION + INSERTION - SUBSTITUTION


def _saving_table(ref: np.ndarray, hyp: np.ndarray) -> np.ndarray:
    """Return the largest saving for each pair of prefixes: ids (n,), (m,) -> (n + 1, m + 1)."""
    table = np.zeros((len(ref) + 1, len(hyp) + 1), dtype=np.int32)
    saves = np.where(ref[:, None] == hyp, np.int32(_MATCH_SAVES), np.int32(_SUBSTITUTION_SAVES))
    # In savings a deletion or an insertion costs nothing, so the recursion along a row is a
    # running maximum and needs no loop over its columns.
    for above, row, saved in zip(table[:-1], table[1:], saves, strict=True):
        np.maximum(above[:-1] + saved, above[1:], out=row[1:])
        np.maximum.accumulate(row, out=row)
    return table


def _trace_back(table: np.ndarray, ref: list[int], hyp: list[int]) -> str:
    """Walk from the end of the table to its start in sclite's order of preference."""
    saved = table.item
    i, j = len(ref), len(hyp)
    operations = []
    while i and j:
        same = ref[i - 1] == hyp[j - 1]
        step = _MATCH_SAVES if same else _SUBSTITUTION_SAVES
        if saved(i, j) == saved(i - 1, j - 1) + step:
            operations.append("C" if same else "S")
            i, j = i - 1, j - 1
        elif saved(i, j) == saved(i, j - 1):
            operations.append("I")
            j -= 1
        else:
            operations.append("D")
            i -= 1
    return "D" * i + "I" * j + "".join(reversed(operations))
