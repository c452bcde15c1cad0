"""Minimum word error rate losses over candidate lists: tensors in, a loss per utterance out; torch only.

All three take log P(y_i|x) as a matrix (B, G) with a mask (B, G) of the candidates that exist and costs
W (B, G); what stands outside the mask has no influence.  No gradient flows into costs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from espnet_latentasr.errors import DataError
from espnet_latentasr.sequence.expected_errors import expected_errors


def mean_cost(costs: Tensor, mask: Tensor) -> Tensor:
    """Unweighted mean of costs (B, G) over the candidates that exist -> (B,)."""
    return torch.where(mask, costs, 0).sum(-1) / mask.sum(-1)


def advantages(costs: Tensor, mask: Tensor) -> Tensor:
    """A_i = W_i - mean_j W_j (B, G), 0 outside the mask: above zero is worse than the list's mean."""
    return torch.where(mask, costs - mean_cost(costs, mask)[:, None], 0).detach()


def _checked(log_probs: Tensor, mask: Tensor) -> Tensor:
    bad = mask & ~log_probs.isfinite()
    if bool(bad.any()):
        row, index = bad.nonzero()[0].tolist()
        raise DataError(
            f"row {row}, candidate {index}: log-probability {log_probs[row, index].item()!r}, a finite "
            "number expected: this loss multiplies it by the cost; leave impossible candidates out"
        )
    return torch.where(mask, log_probs, 0)


def mwer_eq4(log_probs: Tensor, costs: Tensor, mask: Tensor) -> Tensor:
    """sum_i A_i log P(y_i|x), as printed in the oracle-gap paper (Eq. 4); minimise it.

    It is not the loss of Prabhavalkar et al.: nothing weighs the candidates by their probability, so it
    falls without bound as log P of one bad candidate goes to minus infinity, and its gradient A_i does
    not vanish on the way.

    Returns:
        (B,); 0 for a list whose costs are equal.

    Raises:
        DataError: a candidate with a log-probability that is not finite.
    """
    return (advantages(costs, mask) * _checked(log_probs, mask)).sum(-1)


def mwer_nbest(log_probs: Tensor, costs: Tensor, mask: Tensor, temperature: float = 1.0) -> Tensor:
    """sum_i softmax(log P / temperature)_i (W_i - mean_j W_j): bounded by the list's costs (B,).

    The expected cost under the list-normalised posterior (Prabhavalkar et al. 2018, Eq. 6), less the
    list's mean; its gradient vanishes for candidates without probability.

    Raises:
        DataError: as `expected_errors`.
    """
    return expected_errors(log_probs / temperature, costs, mask) - mean_cost(costs, mask).detach()


def mwer_grpo(
    log_probs: Tensor,
    old_log_probs: Tensor,
    costs: Tensor,
    lengths: Tensor,
    mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> Tensor:
    """Minus the mean of min(rho_i A_i, clip(rho_i, 1 - low, 1 + high) A_i) with reward advantages A (B,).

    rho_i = exp((log P(y_i|x) - log P_old(y_i|x)) / |y_i|) and A_i = mean_j W_j - W_i.  Where the ratio
    has moved beyond the bound in the direction of its advantage, the gradient is exactly zero.  (The
    paper prints the minimum with cost advantages, which is the opposite bound.)

    Args:
        old_log_probs: of the policy the candidates were drawn from (B, G); no gradient flows into it.
        lengths: tokens |y_i| (B, G); an empty candidate counts as one token.

    Raises:
        DataError: a candidate with a log-probability that is not finite.
    """
    moved = _checked(log_probs, mask) - _checked(old_log_probs, mask).detach()
    ratio = (moved / lengths.clamp(min=1)).exp()
    advantage = -advantages(costs, mask)
    bounded = ratio.clamp(1 - clip_low, 1 + clip_high)
    surrogate = torch.minimum(ratio * advantage, bounded * advantage)
    return -torch.where(mask, surrogate, 0).sum(-1) / mask.sum(-1)
