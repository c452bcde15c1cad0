"""Spread of a result over trainings that differ in their seed; knows numbers only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class MeanSD(NamedTuple):
    """Mean and sample standard deviation of ``n`` values; ``sd`` is NaN for one value."""

    mean: float
    sd: float
    n: int


def mean_sd(values: Sequence[float]) -> MeanSD:
    """Return mean, sample standard deviation (n - 1 in the denominator) and n.

    Raises:
        ValueError: no value, or one that is NaN or infinite.
    """
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not len(numbers) or not np.isfinite(numbers).all():
        raise ValueError(f"a non-empty row of finite numbers expected, got {numbers.tolist()}")
    sd = float(numbers.std(ddof=1)) if len(numbers) > 1 else float("nan")
    return MeanSD(float(numbers.mean()), sd, len(numbers))
