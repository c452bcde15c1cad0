"""Reward-ranked fine-tuning: CTC towards the best candidate of a list; torch only."""

from __future__ import annotations

import torch
from torch import Tensor


def oracle_index(errors: Tensor, mask: Tensor) -> Tensor:
    """Index (B,) of the candidate with the fewest errors (B, G); ties go to the lowest: greedy first."""
    highest = torch.inf if errors.is_floating_point() else torch.iinfo(errors.dtype).max
    # argmin of equal values may return any of them; the first True of a mask is the first.
    kept = errors.masked_fill(~mask, highest)
    return (kept == kept.min(-1, keepdim=True).values).int().argmax(-1)


def raft(
    oracle_nll: Tensor,
    oracle_lengths: Tensor,
    reference_nll: Tensor,
    reference_lengths: Tensor,
    reference_share: float,
) -> Tensor:
    """(1 - lambda) CTC(y_oracle) / |y_oracle| + lambda CTC(y*) / |y*|, all (B,).

    An empty candidate counts as one token.  Terms of weight zero are left out, so that an impossible
    reference (NLL inf) does no harm where it is not asked for.
    """
    total = torch.zeros_like(oracle_nll)
    if reference_share < 1:
        total = total + (1 - reference_share) * oracle_nll / oracle_lengths.clamp(min=1)
    if reference_share > 0:
        total = total + reference_share * reference_nll / reference_lengths.clamp(min=1)
    return total
