"""Does the value predict the gain: v against realised gain, over utterances and within them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy  # loads scipy.stats, which takes a second, at the first use

from espnet_latentasr.stats.correlation import spearman_test


def realised_gain(errors: np.ndarray, state: int) -> np.ndarray:
    """Errors saved (U,) against depth 0, as the value of a state promises them.

    v_k (k >= 1) speaks of stopping at depth k.  v_0 decides about entering, before any depth is known:
    its gain is the mean over depths 1..N.

    Args:
        errors: (U, N + 1).
    """
    saved = errors[:, :1] - errors[:, 1:]
    return saved.mean(1) if state == 0 else saved[:, state - 1].astype(np.float64)


@dataclass(frozen=True)
class ValueBin:
    """Utterances of similar value; ``gain``: errors saved per reference token, ``error``: its standard
    error (of a ratio of sums, linearised)."""

    utterances: int
    low: float
    high: float
    mean_value: float
    gain: float
    error: float


def value_bins(
    values: np.ndarray, saved: np.ndarray, lengths: np.ndarray, bins: int = 10
) -> list[ValueBin]:
    """Bins of equal size by value, fewer where values repeat: equal values share a bin.

    Args:
        values, saved, lengths: (U,).
    """
    edges = np.unique(np.quantile(values, np.linspace(0, 1, bins + 1), method="nearest"))
    place = np.searchsorted(edges[1:-1], values, side="right")
    found = []
    for index in np.unique(place):
        rows = place == index
        chosen = values[rows]
        words = int(lengths[rows].sum())
        gain = float(saved[rows].sum() / words) if words else float("nan")
        residual = saved[rows] - gain * lengths[rows]
        found.append(
            ValueBin(
                int(rows.sum()),
                float(chosen.min()),
                float(chosen.max()),
                float(chosen.mean()),
                gain,
                float(np.sqrt((residual**2).sum()) / words) if words else float("nan"),
            )
        )
    return found


@dataclass(frozen=True)
class Calibration:
    """One state's value against the gain of its depth.

    rho, p: Spearman's rank correlation over utterances with reference tokens; NaN where values or gains
    are all equal.  sign_agreement: share, among utterances whose errors change, of those where
    v_k > 0 and a gain, or v_k < 0 and a loss, come together.  changed: how many those are.
    """

    state: int
    bins: tuple[ValueBin, ...]
    rho: float
    p: float
    sign_agreement: float | None
    changed: int


def calibration(
    values: np.ndarray, errors: np.ndarray, lengths: np.ndarray, state: int, bins: int = 10
) -> Calibration:
    """Judge v_state of every utterance by what the decoding then did.

    Args:
        values, errors: (U, N + 1).  lengths: (U,).
    """
    value, saved = values[:, state].astype(np.float64), realised_gain(errors, state)
    known = lengths > 0
    gain = saved[known] / lengths[known]
    correlation = spearman_test(value[known], gain)
    changed = saved != 0
    agree = np.sign(value[changed]) == np.sign(saved[changed])
    return Calibration(
        state,
        tuple(value_bins(value, saved, lengths, bins)),
        *correlation,
        float(agree.mean()) if changed.any() else None,
        int(changed.sum()),
    )


@dataclass(frozen=True)
class Within:
    """Rank correlation of v_k and errors over the depths of one utterance.

    defined: utterances with three depths or more and neither side constant.  mean_rho: over them; a
    good value head is negative.  anti_correlated: share of them with a positive one, where the head
    prefers the worse depths.
    """

    defined: int
    mean_rho: float | None
    anti_correlated: float | None


def within_utterances(values: np.ndarray, errors: np.ndarray) -> Within:
    """Average ranks, one correlation per utterance: values, errors (U, N + 1)."""
    if values.shape[1] < 3:
        return Within(0, None, None)
    defined = (np.ptp(values, axis=1) > 0) & (np.ptp(errors, axis=1) > 0)
    if not defined.any():
        return Within(0, None, None)
    v, e = (scipy.stats.rankdata(a[defined], axis=1) for a in (values, errors))
    v, e = v - v.mean(1, keepdims=True), e - e.mean(1, keepdims=True)
    rho = (v * e).sum(1) / np.sqrt((v**2).sum(1) * (e**2).sum(1))
    return Within(int(defined.sum()), float(rho.mean()), float((rho > 1e-12).mean()))
