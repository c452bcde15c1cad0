"""The refinement path: how long the updates are, and whether each step says something new.

The update of step k is g_k delta_k, what is really added to the anchor embedding.  Equal directions
(cosine near 1) and small differences mean that N steps write one vector N times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True)
class Spread:
    """Mean, standard deviation (ddof 1) and quantiles at `LEVELS` of a sample."""

    count: int
    mean: float
    sd: float
    quantiles: tuple[float, ...]


def spread(sample: np.ndarray) -> Spread | None:
    """Summarise a sample; None of an empty one, and sd NaN of a single value."""
    sample = np.asarray(sample, dtype=np.float64).ravel()
    if len(sample) == 0:
        return None
    sd = float(sample.std(ddof=1)) if len(sample) > 1 else float("nan")
    quantiles = tuple(np.quantile(sample, LEVELS).tolist())
    return Spread(len(sample), float(sample.mean()), sd, quantiles)


@dataclass(frozen=True)
class Refinement:
    """norms: per step 1..N.  cosines, jumps: per pair of steps (k - 1, k), k = 2..N.

    path_cosine, path_jump: of each utterance's mean over its pairs, as the paper reports them; None
    with a single step.
    """

    norms: tuple[Spread, ...]
    cosines: tuple[Spread, ...]
    jumps: tuple[Spread, ...]
    path_cosine: Spread | None
    path_jump: Spread | None


def refinement(norms: np.ndarray, cosines: np.ndarray, jumps: np.ndarray) -> Refinement:
    """Summarise forced full paths.

    Args:
        norms: (U, N) lengths of g_k delta_k.  cosines, jumps: (U, N - 1) of consecutive updates,
            jump = |g_k delta_k - g_{k-1} delta_{k-1}|.

    Raises:
        ValueError: shapes that do not belong together, no utterance, or jumps that contradict norms
            and cosines (jump^2 = a^2 + b^2 - 2 a b cos).
    """
    norms, cosines, jumps = (np.asarray(a, dtype=np.float64) for a in (norms, cosines, jumps))
    count, steps = norms.shape
    if count == 0 or cosines.shape != (count, steps - 1) or jumps.shape != cosines.shape:
        raise ValueError(
            f"norms {norms.shape}, cosines {cosines.shape}, jumps {jumps.shape}: (U, N), (U, N - 1), "
            "(U, N - 1) with U > 0 expected"
        )
    a, b = norms[:, :-1], norms[:, 1:]
    expected = np.sqrt(np.maximum(a**2 + b**2 - 2 * a * b * cosines, 0))
    # float32 differences of nearly equal vectors: an absolute slack of their length.
    off = np.abs(expected - jumps) > 1e-2 * (a + b) + 1e-6
    if off.any():
        row, pair = np.argwhere(off)[0]
        raise ValueError(
            f"row {row}, steps {pair + 1} and {pair + 2}: jump {jumps[row, pair]:.4g}, but norms and "
            f"cosine give {expected[row, pair]:.4g}; the three are not of one path"
        )
    pairs = range(steps - 1)
    return Refinement(
        tuple(spread(norms[:, k]) for k in range(steps)),
        tuple(spread(cosines[:, k]) for k in pairs),
        tuple(spread(jumps[:, k]) for k in pairs),
        spread(cosines.mean(1)) if steps > 1 else None,
        spread(jumps.mean(1)) if steps > 1 else None,
    )
