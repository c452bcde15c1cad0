"""The alignment that NIST sclite makes: knows tokens; knows no text, no unit, no normaliser.

sclite minimises 4 S + 3 I + 3 D (not S + I + D) and, among equally cheap alignments, walks back
from the end preferring match or substitution, then insertion, then deletion.  Both the costs and
this order are needed to get its counts of S, D and I; jiwer's and kaldialign's differ.

Tokens are compared exactly.  sclite itself folds ASCII case unless run with ``-s``, and never folds
other letters; folding is left to the normaliser, so that it is named with the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
    n, m = len(reference), len(hypothesis)
    # Errors are few, so most of both sides is the same at the ends.  An equal ending is what the
    # walk from the end takes first; behind an equal beginning the table is known (`_trace_back`).
    ending = _shared(reversed(reference), reversed(hypothesis))
    n, m = n - ending, m - ending
    beginning = _shared(reference[:n], hypothesis[:m])
    ids: dict[str, int] = {}
    ref, hyp = (
        [ids.setdefault(token, len(ids)) for token in tokens]
        for tokens in (reference[:n], hypothesis[:m])
    )
    operations = _trace_back(_saving_table(ref[beginning:], hyp[beginning:]), ref, hyp, beginning)
    return Alignment(tuple(reference), tuple(hypothesis), operations + "C" * ending)


def _shared(one: Iterable[str], other: Iterable[str]) -> int:
    """Return how many tokens two sequences have in common before the first that differs."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


# Deleting all of the reference and inserting all of the hypothesis costs DELETION n + INSERTION m.
# Pairing two tokens instead saves this much; the cheapest alignment is the one that saves most.
_MATCH_SAVES = DELETION + INSERTION
_SUBSTITUTION_SAVES = DELETION + INSERTION - SUBSTITUTION


def _saving_table(ref: Sequence[int], hyp: Sequence[int]) -> np.ndarray:
    """Return the largest saving for each pair of prefixes: ids (n,), (m,) -> (n + 1, m + 1)."""
    table = np.zeros((len(ref) + 1, len(hyp) + 1), dtype=np.int32)
    if not ref or not hyp:
        return table
    same = np.array(ref)[:, None] == np.array(hyp)
    saves = np.where(same, np.int32(_MATCH_SAVES), np.int32(_SUBSTITUTION_SAVES))
    # In savings a deletion or an insertion costs nothing, so the recursion along a row is a
    # running maximum and needs no loop over its columns.
    for above, row, saved in zip(table[:-1], table[1:], saves, strict=True):
        np.maximum(above[:-1] + saved, above[1:], out=row[1:])
        np.maximum.accumulate(row, out=row)
    return table


def _trace_back(table: np.ndarray, ref: list[int], hyp: list[int], beginning: int) -> str:
    """Walk from the end of the table to its start in sclite's order of preference.

    ``table`` is that of both sides without their ``beginning`` equal tokens, which would add
    _MATCH_SAVES each to all of it.  A prefix of the beginning saves all that its length allows,
    _MATCH_SAVES min(i, j), whatever it is paired with: then two equal tokens are always a match,
    and of two different ones the longer side's is inserted or deleted.
    """
    saved = table.item
    operations = []
    i, j = len(ref), len(hyp)
    while i > beginning and j > beginning:
        a, b = i - beginning, j - beginning
        same = ref[i - 1] == hyp[j - 1]
        step = _MATCH_SAVES if same else _SUBSTITUTION_SAVES
        if saved(a, b) == saved(a - 1, b - 1) + step:
            operations.append("C" if same else "S")
            i, j = i - 1, j - 1
        elif saved(a, b) == saved(a, b - 1):
            operations.append("I")
            j -= 1
        else:
            operations.append("D")
            i -= 1
    while i and j:
        if ref[i - 1] == hyp[j - 1]:
            operations.append("C")
            i, j = i - 1, j - 1
        elif j > i:
            operations.append("I")
            j -= 1
        else:
            operations.append("D")
            i -= 1
    return "D" * i + "I" * j + "".join(reversed(operations))
