"""Who gains: the difference by difficulty of the utterance, under three notions of difficulty.

Sorting by the frozen model's own errors selects its unlucky utterances into the last quartile and its
lucky ones into the first; any second system then looks better on the former and worse on the latter,
also one that differs by chance alone.  Confidence does not use the reference, and the mean of both
systems' error rates treats them alike; both are free of most of that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from espnet_latentasr.analysis.decoded import error_rate

FROZEN_RATE = "frozen error rate"
REGRESSION_TO_THE_MEAN = (
    "Quartiles by the frozen model's own error rate cannot show who gains: utterances with no frozen "
    "error can only get worse and the worst ones mostly get better, for any second system, also one that "
    "differs by chance alone (regression to the mean); the row of two equal systems shows how much. Read "
    "the quartiles by confidence, which does not use the reference, or by the mean of both systems' "
    "error rates, which treats them alike."
)


@dataclass(frozen=True)
class Bin:
    """One quantile of utterances; ``low`` and ``high`` are its extreme difficulties."""

    utterances: int
    low: float
    high: float
    baseline: float
    system: float
    skip_rate: float

    @property
    def delta(self) -> float:
        """Difference of pooled error rates."""
        return self.system - self.baseline


def quartiles(
    difficulty: np.ndarray,
    baseline: np.ndarray,
    system: np.ndarray,
    lengths: np.ndarray,
    skipped: np.ndarray,
    bins: int = 4,
) -> list[Bin]:
    """Split utterances by rising difficulty into bins of (nearly) equal size and pool each.

    Equal difficulties are ordered by their place in the arrays; bin i ends at floor(i U / bins).

    Args:
        difficulty, baseline, system, lengths, skipped: (U,); the second and third are errors.
    """
    count = len(difficulty)
    if count < bins:
        raise ValueError(f"{count} utterances cannot fill {bins} bins")
    if not np.isfinite(difficulty).all():
        raise ValueError("difficulty has entries that are not finite")
    order = np.argsort(difficulty, kind="stable")
    edges = [i * count // bins for i in range(bins + 1)]
    found = []
    for start, stop in zip(edges, edges[1:]):
        rows = order[start:stop]
        found.append(
            Bin(
                len(rows),
                float(difficulty[rows[0]]),
                float(difficulty[rows[-1]]),
                error_rate(baseline[rows], lengths[rows]),
                error_rate(system[rows], lengths[rows]),
                float(np.mean(skipped[rows])),
            )
        )
    return found


def expected_by_chance(
    baseline: np.ndarray,
    system: np.ndarray,
    lengths: np.ndarray,
    bins: int = 4,
    draws: int = 200,
    seed: int = 0,
) -> list[float]:
    """Difference per bin, by the baseline's own error rate, of two systems that are alike.

    The two systems' errors are exchanged for a random half of the utterances, which takes away any real
    difference between them; what is left, averaged over the draws, is regression to the mean.

    Args:
        baseline, system: errors (U,).  lengths: (U,).
    """
    rng, total = np.random.default_rng(seed), np.zeros(bins)
    never = np.zeros(len(lengths), dtype=bool)
    for _ in range(draws):
        swap = rng.random(len(lengths)) < 0.5
        first, second = np.where(swap, system, baseline), np.where(swap, baseline, system)
        found = quartiles(utterance_rates(first, lengths), first, second, lengths, never, bins)
        total += [b.delta for b in found]
    return (total / draws).tolist()


def utterance_rates(errors: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Error rate of each utterance (U,); an empty reference counts as one token."""
    return np.asarray(errors) / np.maximum(lengths, 1)


def difficulties(
    baseline: np.ndarray, system: np.ndarray, lengths: np.ndarray, log_probs: np.ndarray
) -> dict[str, np.ndarray]:
    """The three notions, each rising with difficulty (U,).

    Args:
        baseline, system: errors (U,).  log_probs: (U,) mean log-probability of the frozen hypothesis.
    """
    first, second = utterance_rates(baseline, lengths), utterance_rates(system, lengths)
    return {
        FROZEN_RATE: first,
        "frozen confidence": -np.asarray(log_probs),
        "mean of both error rates": (first + second) / 2,
    }
