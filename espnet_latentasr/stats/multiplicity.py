"""Adjustment of p values for the number of tests; knows one family of p values, not where they come from.

The family is whatever is passed in one call: pass exactly the rows that a table prints.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy  # loads scipy.stats, which takes a second, at the first use


def holm(p: Sequence[float]) -> np.ndarray:
    """Adjust by Holm's step-down method, which controls the chance of any false rejection.

    With the p values sorted, p_(1) <= .. <= p_(m), the i-th adjusted value is
    max_{j <= i} min(1, (m - j + 1) p_(j))  (Holm 1979).

    Args:
        p: the family's p values (m,); it may be empty.

    Returns:
        Adjusted p values (m,) in the order of the input.

    Raises:
        ValueError: a value is NaN or outside [0, 1].
    """
    values = _checked(p)
    order = np.argsort(values, kind="stable")
    factors = np.arange(len(values), 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * values[order]), 1.0)
    return adjusted


def benjamini_hochberg(p: Sequence[float]) -> np.ndarray:
    """Adjust by Benjamini and Hochberg's step-up method, which controls the false discovery rate.

    Arguments, result and errors as in `holm`.
    """
    values = _checked(p)
    return scipy.stats.false_discovery_control(values, method="bh") if len(values) else values


def _checked(p: Sequence[float]) -> np.ndarray:
    values = np.asarray(p, dtype=np.float64)
    if values.ndim != 1:
        raise ValueError(f"p values of shape {values.shape}; one row of them expected")
    if bad := [i for i, value in enumerate(values) if not 0 <= value <= 1]:
        raise ValueError(
            f"p value {bad[0]} of {len(values)} is {values[bad[0]]}; a number in [0, 1] expected "
            "(leave a test that could not be made out of the family)"
        )
    return values
