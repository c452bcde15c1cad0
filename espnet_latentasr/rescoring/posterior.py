"""The posterior over a list's candidates: log-linear in their scores, with a temperature; numpy only."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from espnet_latentasr.errors import DataError
from espnet_latentasr.rescoring.config import PosteriorConfig, ScoreNames, ScoreWeights
from espnet_latentasr.rescoring.nbest_list import NBest


def admissible(nbest: NBest, reads_text: bool) -> np.ndarray:
    """Return which candidates (G,) may be weighted and chosen.

    A language model cannot judge an empty text: the sum over no token is 0, above every other one.
    """
    if not reads_text:
        return np.ones(len(nbest), dtype=bool)
    return np.array([bool(c.text and c.surface.strip()) for c in nbest.hyps])


def term(nbest: NBest, name: str, names: ScoreNames, use: np.ndarray) -> np.ndarray:
    """Return one term of the score for every candidate (G,); NaN where ``use`` (G,) is false.

    Raises:
        DataError: a candidate in use has no such score.
    """
    key = {"am": "am_logp", "path": "path_logp"}.get(name) or getattr(names, name)
    values = np.full(len(nbest), np.nan)
    for index in np.flatnonzero(use):
        c = nbest.hyps[index]
        value = getattr(c, key) if name in ("am", "path") else c.scores.get(key)
        if value is None or not np.isfinite(value):
            there = ", ".join(sorted(c.scores)) or "none"
            raise DataError(
                f"utterance '{nbest.utt_id}': candidate {index} {c.text!r}: score '{key}' (term '{name}') "
                f"is {value}, a number expected (scores there: {there}); score the list, or set "
                f"names.{name}"
            )
        values[index] = value
    return values


def loglinear(nbest: NBest, weights: ScoreWeights, names: ScoreNames, use: np.ndarray) -> np.ndarray:
    """Return s = sum of coefficient times term (G,), -inf where ``use`` is false."""
    total = np.zeros(len(nbest))
    for name, coefficient in weights.used().items():
        total += coefficient * term(nbest, name, names, use)
    return np.where(use, total, -np.inf)


def softmax(scores: np.ndarray, tau: float) -> np.ndarray:
    """Return softmax(s / tau) in float64: (G,) -> (G,); -inf gets weight 0, tau = inf is uniform."""
    finite = np.isfinite(scores)
    weights = np.zeros(len(scores))
    shifted = scores[finite] - scores[finite].max(initial=-np.inf)
    # A tiny tau divides to -inf, which is weight 0; the best stays at 0 / tau = 0.
    with np.errstate(over="ignore"):
        weights[finite] = np.exp(shifted / tau)
    return weights / weights.sum() if finite.any() else weights


def spread(scores: np.ndarray) -> float:
    """Standard deviation of the finite scores of one list (0 for fewer than two)."""
    finite = scores[np.isfinite(scores)]
    return float(finite.std()) if len(finite) > 1 else 0.0


def median_spread(spreads: Iterable[float]) -> float:
    """Median over the lists in which scores differ, the unit of ``tau_unit: median_sd``.

    Raises:
        DataError: scores differ in no list, so there is no such unit.
    """
    positive = [value for value in spreads if value > 0]
    if not positive:
        raise DataError(
            "posterior.tau_unit: median_sd, but no list has two candidates with different scores; "
            "use tau_unit: nats"
        )
    return float(np.median(positive))


def posterior(
    nbest: NBest,
    config: PosteriorConfig,
    scores: np.ndarray | None,
    use: np.ndarray,
    unit: float | None = None,
) -> np.ndarray:
    """Return Q over the candidates (G,), 0 where ``use`` is false; sums to one unless none is in use.

    Args:
        scores: log-linear scores (G,), needed by kind ``loglinear``.
        unit: the set's `median_spread`, needed by ``tau_unit: median_sd``.
    """
    if config.kind == "loglinear":
        units = {"nats": 1.0, "median_sd": unit, "list_sd": spread(scores) or 1.0}
        if (nats := units[config.tau_unit]) is None:
            raise ValueError("tau_unit: median_sd needs the set's median_spread as unit")
        return softmax(scores, config.tau * nats)
    weights = np.array([float(c.count) if config.kind == "counts" else 1.0 for c in nbest.hyps]) * use
    return weights / weights.sum() if use.any() else weights
