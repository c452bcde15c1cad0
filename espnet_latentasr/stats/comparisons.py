"""The one place where systems are compared: the rows of a table and their correction; arrays only.

A family of tests is what one table prints.  Every table of differences, of a report, of ``RESULTS.md``
or of the scoring command, is made of one call, so that it can neither be corrected for fewer rows than
a reader sees nor for more, and says so with `caption`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from espnet_latentasr.stats.bootstrap import PairedDifference, paired_bootstrap_many
from espnet_latentasr.stats.multiplicity import benjamini_hochberg, holm

REPLICATES = 10_000


@dataclass(frozen=True)
class Contest:
    """Systems (S, U) against a baseline (U,): errors on the same utterances with ``lengths`` (U,).

    clusters: the speaker of each utterance, to draw whole speakers; None: utterances are drawn.
    """

    baseline: np.ndarray
    systems: Sequence[np.ndarray]
    lengths: np.ndarray
    clusters: Sequence[str] | None = None


@dataclass(frozen=True)
class Row:
    """A difference and its two-sided p corrected over all rows of its table."""

    difference: PairedDifference
    p_holm: float
    p_bh: float


def compare_family(
    contests: Iterable[Contest], *, replicates: int = REPLICATES, seed: int = 0
) -> list[Row]:
    """Compare every system of every contest with its baseline: all rows of one table, in this order.

    The systems of a contest share the bootstrap's draws.  Errors are those of `paired_bootstrap`.
    """
    found: list[PairedDifference] = []
    for contest in contests:
        found += paired_bootstrap_many(
            contest.baseline, contest.systems, contest.lengths,
            clusters=contest.clusters, replicates=replicates, seed=seed,
        )  # fmt: skip
    return correct(found)


def correct(differences: Sequence[PairedDifference]) -> list[Row]:
    """Correct the differences that one table prints for exactly these (Holm; Benjamini and Hochberg)."""
    p = [difference.p for difference in differences]
    pairs = zip(differences, holm(p), benjamini_hochberg(p), strict=True)
    return [Row(difference, float(strict), float(loose)) for difference, strict, loose in pairs]


def caption(tests: int, bh: bool = True) -> str:
    """The sentence every such table carries; ``bh``: whether it has both corrections."""
    what = "the one test" if tests == 1 else f"exactly the {tests:,} tests"
    if not bh:
        return f"p Holm: corrected for {what} of this table."
    return f"p Holm, p BH: corrected for {what} of this table (Holm; Benjamini and Hochberg)."
