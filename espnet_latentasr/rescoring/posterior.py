"""The posterior over a list's candidates: log-linear in their scores, with a temperature; numpy only."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from espnet_latentasr.errors import DataError
from espnet_latentasr.rescoring.config import PosteriorConfig, ScoreNames, ScoreWeights
from espnet_latentasr.rescoring.nbest_list import Candidate, NBest, head


class Terms:
    """What the candidates of one list are scored by, as arrays; each is read once and kept.

    ``head`` gives the same for the list's first candidates, without reading anything again.
    """

    def __init__(self, nbest: NBest, parent: Terms | None = None) -> None:
        self.nbest, self._parent = nbest, parent
        self._arrays: dict[str, np.ndarray] = {}

    def head(self, size: int | None) -> Terms:
        """Return the terms of the first ``size`` candidates (None: all)."""
        shorter = head(self.nbest, size)
        return self if shorter is self.nbest else Terms(shorter, self)

    def values(self, key: str) -> np.ndarray:
        """Return (G,) of ``am_logp``, ``path_logp``, ``count``, ``has_text`` or ``score:NAME``.

        NaN where a candidate has none.
        """
        if self._parent is not None:
            return self._parent.values(key)[: len(self.nbest)]
        if key not in self._arrays:
            self._arrays[key] = np.array([_value(c, key) for c in self.nbest.hyps])
        return self._arrays[key]


def _value(c: Candidate, key: str) -> float | bool:
    if key == "has_text":
        return bool(c.text and c.surface.strip())
    _, score, name = key.partition("score:")
    value = c.scores.get(name) if score else getattr(c, key)
    return np.nan if value is None else float(value)


def admissible(terms: Terms, reads_text: bool) -> np.ndarray:
    """Return which candidates (G,) may be weighted and chosen.

    A language model cannot judge an empty text: the sum over no token is 0, above every other one.
    """
    return terms.values("has_text") if reads_text else np.ones(len(terms.nbest), dtype=bool)


def term(terms: Terms, name: str, names: ScoreNames, use: np.ndarray) -> np.ndarray:
    """Return one term of the score for every candidate (G,).

    Raises:
        DataError: a candidate in use (G,) has no such score.
    """
    own = {"am": "am_logp", "path": "path_logp"}.get(name)
    key = own or getattr(names, name)
    values = terms.values(own or f"score:{key}")
    if (bad := use & ~np.isfinite(values)).any():
        index = int(bad.argmax())
        c = terms.nbest.hyps[index]
        there = ", ".join(sorted(c.scores)) or "none"
        raise DataError(
            f"utterance '{terms.nbest.utt_id}': candidate {index} {c.text!r}: score '{key}' (term "
            f"'{name}') is missing, a number expected (scores there: {there}); score the list, or set "
            f"names.{name}"
        )
    return values


def standardised(values: np.ndarray, use: np.ndarray) -> np.ndarray:
    """Deviations from the mean of the candidates in use, in their standard deviations (0 if equal)."""
    used = values[use]
    # Equal values may have a mean that differs in the last bit: that is no deviation to scale up.
    noise = 1e-12 * np.abs(used).max(initial=0.0)
    if not len(used) or (sd := used.std()) <= noise:
        return np.zeros(len(values))
    return (values - used.mean()) / sd


def loglinear(
    terms: Terms, weights: ScoreWeights, names: ScoreNames, use: np.ndarray, unit: str = "nats"
) -> np.ndarray:
    """Return s = sum of coefficient times term (G,), -inf where ``use`` is false.

    ``unit``: terms as they are (``nats``), or each `standardised` (``list_sd``).
    """
    total = np.zeros(len(terms.nbest))
    for name, coefficient in weights.used().items():
        values = term(terms, name, names, use)
        total += coefficient * (standardised(values, use) if unit == "list_sd" else values)
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
    terms: Terms,
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
    if use.sum() == 1:
        return use.astype(np.float64)  # one candidate needs no counts
    weights = use * (terms.values("count") if config.kind == "counts" else 1.0)
    if use.any() and not weights.any():
        raise DataError(
            f"utterance '{terms.nbest.utt_id}': posterior.kind: counts, but no candidate was sampled "
            "(all counts are 0); make lists with samples, or use posterior.kind: uniform"
        )
    return weights / weights.sum() if use.any() else weights
