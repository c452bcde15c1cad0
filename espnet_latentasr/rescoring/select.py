"""Choosing one candidate of a list: argmax, minimum Bayes risk, two stages; knows no file.

Ties go to the lowest index, so to the greedy hypothesis when it takes part in the tie.  A candidate
without text takes no part where a language model has a say, and when no candidate is left, the greedy
hypothesis is taken and the result says so.  A missing score is an error.

    kind       chooses
    greedy     candidate 0
    argmax     max s, or max s / length           interpolation: score {am: a, pll: 1 - a}
    mbr        min_i sum_j Q_j L(y_i, y_j)         self-consistency: posterior {kind: uniform}, loss wer
    two_stage  max s' among the lowest risks      tiebreak: keep 5, second {ll: 1}
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from espnet_latentasr.rescoring.config import RescoreConfig
from espnet_latentasr.rescoring.nbest_list import NBest, deduplicate, head, renormalize
from espnet_latentasr.rescoring.posterior import (
    Terms,
    admissible,
    loglinear,
    median_spread,
    posterior,
    spread,
)
from espnet_latentasr.rescoring.risk import PairwiseLosses, expected_loss
from espnet_latentasr.text.normalize import get_normalizer

# Sums in another order differ by rounding; values so close (relative) are a tie.
TIE = 1e-9


@dataclass(frozen=True)
class Selection:
    """The candidate chosen.

    ``criterion``: what was minimised (G,): risk, or minus the score; inf for candidates that took no
    part.  ``weights``: Q (G,) where risks were computed.  ``fallback``: greedy, for want of a text.
    """

    index: int
    criterion: np.ndarray
    weights: np.ndarray | None = None
    fallback: bool = False


def prepare(nbest: NBest, config: RescoreConfig) -> NBest:
    """Return the list that `select` chooses from: normalised and merged as configured."""
    if config.normalizer != "list":
        nbest = renormalize(nbest, get_normalizer(config.normalizer))
    return deduplicate(nbest) if config.dedup else nbest


def lowest(criterion: np.ndarray) -> int:
    """Return the first index whose value ties with the minimum of (G,)."""
    least = criterion.min()
    return int(np.argmax(criterion <= least + TIE * max(1.0, abs(least))))


class Shared:
    """What rules have in common on one prepared list: its scores as arrays, its pairwise losses."""

    def __init__(self, nbest: NBest) -> None:
        self.terms, self.losses = Terms(nbest), PairwiseLosses(nbest)


def set_unit(prepared: Iterable[NBest], config: RescoreConfig) -> float | None:
    """Return the unit of tau that only the whole set can give; None if the rule needs none."""
    posterior_config = config.posterior
    if not config.expects or posterior_config.kind != "loglinear":
        return None
    if posterior_config.tau_unit != "median_sd":
        return None
    spreads = []
    for nbest in prepared:
        terms = Terms(head(nbest, config.candidates))
        use = admissible(terms, config.reads_text)
        spreads.append(spread(_scores(terms, config, use)))
    return median_spread(spreads)


def select(
    nbest: NBest,
    config: RescoreConfig,
    shared: Shared | None = None,
    unit: float | None = None,
) -> Selection:
    """Choose one candidate of a prepared list.

    Args:
        shared: of this list, to share among rules; made when None.
        unit: `set_unit` of the set, for ``tau_unit: median_sd``.

    Raises:
        DataError: naming utterance, candidate and score, if a score is missing.
    """
    shared = Shared(nbest) if shared is None else shared
    terms = shared.terms.head(config.candidates)
    size = len(terms.nbest)
    if config.kind == "greedy":
        return Selection(0, np.array([0.0] + [1.0] * (size - 1)))
    use = admissible(terms, config.reads_text)
    if not use.any():
        return Selection(0, np.full(size, np.inf), np.zeros(size), fallback=True)
    if config.kind == "argmax":
        scores = _per_length(terms.nbest, _scores(terms, config, use), config)
        return Selection(lowest(-scores), -scores)
    scores = None
    if config.posterior.kind == "loglinear":
        scores = _scores(terms, config, use)
    weights = posterior(terms, config.posterior, scores, use, unit)
    risk = expected_loss(shared.losses(config.loss, config.denominator)[:size, :size], weights)
    risk = np.where(use, risk, np.inf)
    if config.kind == "mbr":
        return Selection(lowest(risk), risk, weights)
    second = -loglinear(terms, config.second, config.names, use, config.term_unit)
    # Rounded, so that ties keep the list's order.
    kept = np.argsort(np.round(risk, 9), kind="stable")[: config.keep]
    kept = kept[use[kept]]
    criterion = np.full(size, np.inf)
    criterion[kept] = second[kept]
    return Selection(lowest(criterion), criterion, weights)


def _scores(terms: Terms, config: RescoreConfig, use: np.ndarray) -> np.ndarray:
    return loglinear(terms, config.score, config.names, use, config.term_unit)


def _per_length(nbest: NBest, scores: np.ndarray, config: RescoreConfig) -> np.ndarray:
    if config.length == "none":
        return scores
    lengths = [c.n_tok if config.length == "tokens" else c.n_char for c in nbest.hyps]
    return scores / np.maximum(lengths, 1)
