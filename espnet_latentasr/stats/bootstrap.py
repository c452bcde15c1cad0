"""Paired bootstrap of a corpus error rate; knows arrays of counts only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

CELLS = 100_000  # of a block of draws held at a time (it fits a cache); it never changes a result
LEAST_REPLICATES, LEAST_LEVEL = 100, 0.8


@dataclass(frozen=True)
class PairedDifference:
    """System minus baseline, in absolute error rate; below zero the system is better.

    ``low`` and ``high`` bound the interval; ``p`` is two-sided for 'no difference'; ``p_one`` is for
    'the system is not better'.  ``better``, ``worse`` and ``same`` count utterances, ``units`` what
    was resampled: utterances, or speakers.  With one unit nothing varies: the interval is NaN and
    both p are 1.
    """

    delta: float
    low: float
    high: float
    p: float
    better: int
    worse: int
    same: int
    p_one: float = float("nan")
    units: int = 0


def paired_bootstrap(
    baseline: np.ndarray,
    system: np.ndarray,
    lengths: np.ndarray,
    *,
    clusters: Sequence[str] | np.ndarray | None = None,
    replicates: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> PairedDifference:
    """Resample utterances with replacement; both systems see the same draw.

    Delta* = sum(system - baseline) / sum(lengths) over the drawn utterances (Bisani and Ney 2004).
    The interval is the percentile interval.  With B replicates
    p = min(1, 2 (min(#(Delta* <= 0), #(Delta* >= 0)) + 1) / (B + 1)) and
    p_one = (#(Delta* >= 0) + 1) / (B + 1).
    Utterances of one speaker are not independent: with ``clusters`` whole speakers are drawn.

    Args:
        baseline, system: errors per utterance (U,).
        lengths: reference length per utterance (U,).
        clusters: the speaker of each utterance (U,).

    Raises:
        ValueError: arrays of different length, numbers that are no counts, no reference words at
            all, fewer than 100 replicates, or a level outside [0.8, 1).
    """
    return paired_bootstrap_many(
        baseline, [system], lengths, clusters=clusters, replicates=replicates, level=level, seed=seed
    )[0]


def paired_bootstrap_many(
    baseline: np.ndarray,
    systems: Sequence[np.ndarray] | np.ndarray,
    lengths: np.ndarray,
    *,
    clusters: Sequence[str] | np.ndarray | None = None,
    replicates: int = 10_000,
    level: float = 0.95,
    seed: int = 0,
) -> list[PairedDifference]:
    """Compare several systems (S, U) with one baseline on the same draws.

    Each result equals that of `paired_bootstrap` with the same seed, whose other arguments and
    errors these are too.
    """
    baseline, lengths = _counts("baseline", baseline), _counts("lengths", lengths)
    systems = [_counts(f"system {number}", errors) for number, errors in enumerate(systems, 1)]
    sizes = [len(baseline), *map(len, systems), len(lengths)]
    if len(set(sizes)) > 1 or not lengths.sum():
        raise ValueError(
            f"expected {'three' if len(systems) == 1 else len(sizes)} arrays of one length with "
            f"reference words, got {', '.join(map(str, sizes))} with {int(lengths.sum())} words"
        )
    if replicates < LEAST_REPLICATES or not LEAST_LEVEL <= level < 1:
        raise ValueError(
            f"{replicates} replicates and level {level}; at least {LEAST_REPLICATES} replicates "
            f"and a level in [{LEAST_LEVEL}, 1) expected"
        )
    differences = [errors - baseline for errors in systems]
    units = _per_unit(np.stack([lengths, *differences], axis=1), clusters)
    if len(units) == 1:
        return [_unresampled(row, lengths) for row in differences]
    drawn = np.concatenate(list(_replicates(units, replicates, seed)))
    return [
        _summary(difference, lengths, column, level, len(units))
        for difference, column in zip(differences, drawn.T, strict=True)
    ]


def _counts(name: str, values: Sequence[int] | np.ndarray) -> np.ndarray:
    array = np.asarray(values)
    counts = array.astype(np.int64) if array.ndim == 1 and np.isfinite(array).all() else None
    if counts is None or (counts != array).any() or (counts < 0).any():
        raise ValueError(f"{name}: a row of counts (whole numbers, none negative) expected")
    return counts


def _per_unit(columns: np.ndarray, clusters: Sequence[str] | np.ndarray | None) -> np.ndarray:
    """Sum the columns (U, 1 + S) over each cluster's utterances; clusters sort by name."""
    if clusters is None:
        return columns
    if len(clusters) != len(columns):
        raise ValueError(f"{len(clusters)} clusters for {len(columns)} utterances; one each expected")
    _, index = np.unique(np.asarray(clusters), return_inverse=True)
    sums = np.zeros((index.max() + 1, columns.shape[1]), dtype=np.int64)
    np.add.at(sums, index, columns)
    return sums


def _replicates(units: np.ndarray, replicates: int, seed: int) -> Iterator[np.ndarray]:
    """Yield blocks of Delta* (rows, S) from columns (units, 1 + S) of words and differences.

    A draw is a row of how often each unit was taken, so that all systems share one matrix product.
    Its terms are whole numbers below 2^53: float64 adds them exactly, in any order.
    """
    rng = np.random.default_rng(seed)
    n = len(units)
    rows = max(CELLS // n, 1)
    for start in range(0, replicates, rows):
        index = rng.integers(n, size=(min(rows, replicates - start), n), dtype=np.int32)
        cells = index + n * np.arange(len(index))[:, None]
        taken = np.bincount(cells.ravel(), minlength=cells.size).reshape(cells.shape)
        sums = taken.astype(np.float64) @ units.astype(np.float64)
        words = sums[:, :1]
        # A draw of empty references only has no error rate; it counts as no difference.
        yield np.where(words > 0, sums[:, 1:] / np.maximum(words, 1), 0.0)


def _summary(
    difference: np.ndarray, lengths: np.ndarray, drawn: np.ndarray, level: float, units: int
) -> PairedDifference:
    delta = float(difference.sum() / lengths.sum())
    tail = (1 - level) / 2
    low, high = map(float, np.quantile(drawn, [tail, 1 - tail]))
    # The draws scatter around the estimate: about a third or more lie on either side of it or on
    # it, far more than a tail holds.  An estimate outside is thus of another statistic than theirs.
    if not low - 1e-12 <= delta <= high + 1e-12:
        raise AssertionError(f"delta {delta} outside its interval [{low}, {high}]: a defect, report it")
    at_most, at_least = int((drawn <= 0).sum()), int((drawn >= 0).sum())
    total = len(drawn) + 1
    return PairedDifference(
        delta,
        low,
        high,
        min(1.0, 2 * (min(at_most, at_least) + 1) / total),
        *_tally(difference),
        p_one=(at_least + 1) / total,
        units=units,
    )


def _unresampled(difference: np.ndarray, lengths: np.ndarray) -> PairedDifference:
    delta, nan = float(difference.sum() / lengths.sum()), float("nan")
    return PairedDifference(delta, nan, nan, 1.0, *_tally(difference), p_one=1.0, units=1)


def _tally(difference: np.ndarray) -> tuple[int, int, int]:
    """Return how many utterances are better, worse and the same."""
    return tuple(int(found.sum()) for found in (difference < 0, difference > 0, difference == 0))
