"""The depth oracle: how good any halting rule could be, and how much of that a rule reaches.

The oracle picks each utterance's best depth by its reference.  It is a ceiling, and no evidence that
the latents say anything: different depths give different texts, and the best of several is better also
when they differ by chance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from espnet_latentasr.analysis.decoded import error_rate
from espnet_latentasr.analysis.depths import errors_at
from espnet_latentasr.analysis.policies import select_oracle


def gap_closure(baseline: float, rate: float, oracle: float) -> float | None:
    """(baseline - rate) / (baseline - oracle): 1 at the oracle, 0 at the frozen model, below 0 if worse.

    None: the oracle is no better than the baseline, so that there is no gap.
    """
    gap = baseline - oracle
    return (baseline - rate) / gap if gap > 0 else None


@dataclass(frozen=True)
class DepthOracle:
    """rate, frozen: error rates.  depth: (U,).  closure: of each rule by name.

    recoverable: utterances of which some depth has fewer errors than depth 0; of these ``picked``
    gives, by rule, how many got the fewest errors any depth has.
    """

    rate: float
    frozen: float
    depth: np.ndarray
    closure: dict[str, float | None]
    recoverable: int
    picked: dict[str, int]


def depth_oracle(errors: np.ndarray, lengths: np.ndarray, rules: Mapping[str, np.ndarray]) -> DepthOracle:
    """Compare rules, each a depth K (U,), with the best depth of every utterance.

    Args:
        errors: (U, N + 1).  lengths: (U,).
    """
    depth = select_oracle(errors)
    best = errors_at(errors, depth)
    rate, frozen = error_rate(best, lengths), error_rate(errors[:, 0], lengths)
    recoverable = best < errors[:, 0]
    closure, picked = {}, {}
    for name, chosen in rules.items():
        found = errors_at(errors, chosen)
        closure[name] = gap_closure(frozen, error_rate(found, lengths), rate)
        picked[name] = int((found[recoverable] == best[recoverable]).sum())
    return DepthOracle(rate, frozen, depth, closure, int(recoverable.sum()), picked)
