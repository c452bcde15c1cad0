"""Was the gate right: what skipped and processed utterances did, and would have done at full depth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from espnet_latentasr.analysis.decoded import error_rate
from espnet_latentasr.analysis.depths import errors_at
from espnet_latentasr.stats.bootstrap import PairedDifference, paired_bootstrap_many


@dataclass(frozen=True)
class Group:
    """Utterances that the gate treated alike.

    actual, forced: difference to the frozen model at the depth the rule chose, and at N; None where
    the group has no reference token.
    """

    name: str
    utterances: int
    tokens: int
    baseline: float
    actual: PairedDifference | None
    forced: PairedDifference | None


def counterfactual(
    errors: np.ndarray, lengths: np.ndarray, depth: np.ndarray, skipped: np.ndarray
) -> list[Group]:
    """The groups ``skipped`` and ``processed`` under the rule's depths and under full depth.

    A gate is right where forcing the skipped does not help and where the depths it chose for the
    processed do better than N.

    Args:
        errors: (U, N + 1).  lengths, depth: (U,).  skipped: (U,) bool, refused by the entry gate.

    Raises:
        ValueError: a skipped utterance with a depth above 0.
    """
    skipped = np.asarray(skipped, dtype=bool)
    if (np.asarray(depth)[skipped] != 0).any():
        raise ValueError("an utterance that the entry gate skipped has depth 0")
    chosen = errors_at(errors, depth)
    groups = []
    for name, rows in (("skipped", skipped), ("processed", ~skipped)):
        frozen, words = errors[rows, 0], lengths[rows]
        actual = forced = None
        if words.sum():
            systems = (chosen[rows], errors[rows, -1])
            actual, forced = paired_bootstrap_many(frozen, systems, words)
        groups.append(
            Group(
                name,
                int(rows.sum()),
                int(words.sum()),
                error_rate(frozen, words),
                actual,
                forced,
            )
        )
    return groups
