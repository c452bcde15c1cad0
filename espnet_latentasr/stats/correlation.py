"""Rank correlation of two rows of numbers; knows no utterance and no score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy  # loads scipy.stats, which takes a second, at the first use

UNDEFINED = float("nan")


class Correlation(NamedTuple):
    """A coefficient and the two-sided p value of 'no correlation'; both NaN where undefined."""

    value: float
    p: float


def spearman(x: Sequence[float], y: Sequence[float]) -> float:
    """Return Spearman's rho with average ranks for ties.

    NaN where it is undefined: fewer than two points, or a side that is constant.

    Raises:
        ValueError: the sides differ in length, or hold NaN.
    """
    return spearman_test(x, y).value


def spearman_test(x: Sequence[float], y: Sequence[float]) -> Correlation:
    """Return Spearman's rho and its p (t approximation); NaN and errors as in `spearman`."""
    x, y = _checked(x, y)
    if _undefined(x, y):
        return Correlation(UNDEFINED, UNDEFINED)
    if len(x) == 2:  # rho is +1 or -1 whatever the data: nothing is left to test
        return Correlation(float(scipy.stats.spearmanr(x, y).statistic), UNDEFINED)
    return Correlation(*map(float, scipy.stats.spearmanr(x, y)))


def kendall_tau_b(x: Sequence[float], y: Sequence[float]) -> float:
    """Return Kendall's tau-b, which allows for ties; NaN and errors as in `spearman`."""
    x, y = _checked(x, y)
    if _undefined(x, y):
        return UNDEFINED
    return float(scipy.stats.kendalltau(x, y, variant="b").statistic)


def _checked(x: Sequence[float], y: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(f"shapes {x.shape} and {y.shape}; two rows of one length expected")
    if np.isnan(x).any() or np.isnan(y).any():
        raise ValueError(
            f"{int(np.isnan(x).sum())} and {int(np.isnan(y).sum())} of {len(x)} values are NaN; "
            "numbers expected: leave points without a value out of both sides"
        )
    return x, y


def _undefined(x: np.ndarray, y: np.ndarray) -> bool:
    return len(x) < 2 or bool((x == x[0]).all() or (y == y[0]).all())
