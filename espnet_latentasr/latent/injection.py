"""The three stabilisers of an injected embedding (Eqs. 1-3) as pure functions; no parameters here.

Shapes: u, delta, gate (B, D); anchor (D,); scale scalar.  All in float32.
"""

from __future__ import annotations

import torch
from torch import Tensor

EPSILON = 1e-6


def step_scale(rho: Tensor, cap: float) -> Tensor:
    """s = min(softplus(rho), cap)."""
    return torch.nn.functional.softplus(rho).clamp(max=cap)


def inverse_softplus(scale: float) -> float:
    """rho with softplus(rho) = scale, so that a scale starts at exactly its configured value."""
    return float(torch.tensor(scale, dtype=torch.float64).expm1().log())


def bounded_delta(u: Tensor, scale: Tensor | float) -> Tensor:
    """delta = s u / (|u| + 1e-6): its norm is below s (Eq. 1)."""
    return scale * (u / (u.norm(dim=-1, keepdim=True) + EPSILON))


def sigmoid_gate(anchor: Tensor, delta: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """g = sigmoid(W_g [e_LT; delta] + b_g), one value per channel (Eq. 2)."""
    both = torch.cat([anchor.expand_as(delta), delta], -1)
    return torch.sigmoid(torch.nn.functional.linear(both, weight, bias))


def anchored(anchor: Tensor, update: Tensor) -> Tensor:
    """x = e_LT + g delta (Eq. 3); a zero update gives e_LT bit for bit."""
    return anchor + update
