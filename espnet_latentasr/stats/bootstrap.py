"""Paired bootstrap of a corpus error rate; knows arrays of counts only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

CHUNK = 500


@dataclass(frozen=True)
class PairedDifference:
    """System minus baseline, in absolute error rate; ``p`` is two-sided for 'no difference'."""

    delta: float
    low: float
    high: float
    p: float
    better: int
    worse: int
    same: int


def paired_bootstrap(
    baseline: np.ndarray,
    system: np.ndarray,
    lengths: np.ndarray,
    *,
    replicates: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> PairedDifference:
    """Resample utterances with replacement; both systems see the same draw.

    Delta* = sum(system - baseline) / sum(lengths) over the drawn utterances.  The interval is the
    percentile interval; p = 2 min(#(Delta* <= 0) + 1, #(Delta* >= 0) + 1) / (replicates + 1), at most 1.

    Args:
        baseline, system: errors per utterance (U,).
        lengths: reference length per utterance (U,).

    Raises:
        ValueError: arrays of different length, or no reference words at all.
    """
    baseline, system, lengths = (np.asarray(a, dtype=np.int64) for a in (baseline, system, lengths))
    if not (len(baseline) == len(system) == len(lengths)) or lengths.sum() == 0:
        raise ValueError(
            f"expected three arrays of one length with reference words, got {len(baseline)}, "
            f"{len(system)}, {len(lengths)} with {int(lengths.sum())} words"
        )
    difference = system - baseline
    rng = np.random.default_rng(seed)
    drawn = np.empty(replicates)
    for start in range(0, replicates, CHUNK):
        index = rng.integers(len(lengths), size=(min(CHUNK, replicates - start), len(lengths)))
        words = lengths[index].sum(1)
        # A draw of empty references only has no error rate; it counts as no difference.
        drawn[start : start + len(index)] = difference[index].sum(1) / np.maximum(words, 1)
    tail = (1 - level) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    extreme = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
    return PairedDifference(
        delta=float(difference.sum() / lengths.sum()),
        low=float(low),
        high=float(high),
        p=min(1.0, 2 * (extreme + 1) / (replicates + 1)),
        better=int((difference < 0).sum()),
        worse=int((difference > 0).sum()),
        same=int((difference == 0).sum()),
    )
