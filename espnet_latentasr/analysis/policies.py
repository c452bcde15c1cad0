"""Halting rules over the arrays of one pass: fixed depth, threshold, confidence, random, oracle.

A rule is an array of depths K (U,).  Thresholds are chosen on a development set and applied to test
sets; a rule that has seen the test references (the oracle) is a ceiling and never a result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from espnet_latentasr.analysis.decoded import error_rate
from espnet_latentasr.analysis.depths import Depths, errors_at, select_threshold, steps_run

GRID = 101  # candidates of a threshold: this many quantiles of what is compared with it


def select_fixed(utterances: int, depth: int) -> np.ndarray:
    """The same depth K (U,) for every utterance."""
    return np.full(utterances, depth, dtype=np.int64)


def select_oracle(errors: np.ndarray) -> np.ndarray:
    """The least erroneous depth K (U,) of errors (U, N + 1), the smaller one where two are equal."""
    return errors.argmin(axis=1)


def select_confidence(log_probs: np.ndarray, threshold: float) -> np.ndarray:
    """All N steps (U,) where the frozen hypothesis is less probable than ``threshold``, else none.

    Args:
        log_probs: (U, N + 1) mean log-probability per token; only depth 0 is looked at.
    """
    return np.where(log_probs[:, 0] < threshold, log_probs.shape[1] - 1, 0)


def quantile_grid(values: np.ndarray, count: int = GRID) -> np.ndarray:
    """Thresholds at quantiles of ``values``, with -inf (none lies below) and +inf (all do)."""
    inner = np.quantile(values, np.linspace(0, 1, count), method="nearest").astype(np.float64)
    return np.unique(np.concatenate([[-np.inf], inner, [np.inf]]))


@dataclass(frozen=True)
class Outcome:
    """What a rule gives on one set.

    rate: pooled error rate.  depth: K (U,).  errors: (U,).  mean_steps: of the latents kept.
    skip_rate: share of utterances without any latent.
    """

    depth: np.ndarray
    errors: np.ndarray
    rate: float
    mean_steps: float
    skip_rate: float


def outcome(depths: Depths, depth: np.ndarray) -> Outcome:
    """Read the result of a rule off one pass."""
    errors = errors_at(depths.errors, depth)
    rate = error_rate(errors, depths.lengths)
    return Outcome(depth, errors, rate, float(np.mean(depth)), float(np.mean(depth == 0)))


@dataclass(frozen=True)
class Rule:
    """A rule whose one number was chosen on a development set; ``apply`` gives K (U,) on any set."""

    name: str
    threshold: float
    apply: Callable[[Depths], np.ndarray]


def _best(dev: Depths, rules: list[tuple[Rule, float]]) -> Rule:
    """The rule with the fewest errors on dev; among equals the one that costs least."""
    return min(rules, key=lambda pair: (outcome(dev, pair[0].apply(dev)).errors.sum(), pair[1]))[0]


def choose_theta(dev: Depths, on_halt: str = "keep") -> Rule:
    """The value threshold with the fewest errors on dev; among equals fewest steps computed."""

    def rule(theta: float) -> tuple[Rule, float]:
        found = Rule("threshold", theta, lambda d: select_threshold(d.values, theta, on_halt))
        return found, float(steps_run(dev.values, theta).mean())

    return _best(dev, [rule(float(theta)) for theta in quantile_grid(dev.values)])


def choose_fixed(dev: Depths) -> Rule:
    """The fixed depth with the fewest errors on dev, the smaller one among equals."""

    def rule(depth: int) -> tuple[Rule, float]:
        return Rule("fixed", depth, lambda d: select_fixed(len(d.utts), depth)), depth

    return _best(dev, [rule(depth) for depth in range(dev.steps + 1)])


def choose_confidence(dev: Depths) -> Rule:
    """The confidence below which N steps give the fewest errors on dev; among equals fewest steps."""

    def rule(limit: float) -> tuple[Rule, float]:
        found = Rule("confidence", limit, lambda d: select_confidence(d.log_probs, limit))
        return found, float(found.apply(dev).mean())

    return _best(dev, [rule(float(limit)) for limit in quantile_grid(dev.log_probs[:, 0])])


@dataclass(frozen=True)
class RandomGate:
    """The same depths dealt to utterances at random.

    rate: its expectation, exact.  low, high: the middle 95 % of the deals.  p: one-sided, the share of
    deals with at most the rule's errors (the deal that is the rule itself counted).
    """

    rate: float
    low: float
    high: float
    p: float


def random_gate(
    errors: np.ndarray, lengths: np.ndarray, depth: np.ndarray, deals: int = 1000, seed: int = 0
) -> RandomGate:
    """Control of a rule: as many skips and as many of each depth, but not for whom.

    Args:
        errors: (U, N + 1).  lengths, depth: (U,).
    """
    total = int(np.sum(lengths))
    if total == 0:
        raise ValueError("no reference tokens: a random gate has no error rate")
    share = np.bincount(depth, minlength=errors.shape[1]) / len(depth)
    rng, dealt = np.random.default_rng(seed), np.empty(deals, dtype=np.int64)
    for deal in range(deals):
        dealt[deal] = errors_at(errors, rng.permutation(depth)).sum()
    low, high = np.quantile(dealt, [0.025, 0.975]) / total
    hits = int((dealt <= errors_at(errors, depth).sum()).sum())
    expected = float((errors.sum(0) * share).sum() / total)
    return RandomGate(expected, float(low), float(high), (hits + 1) / (deals + 1))
