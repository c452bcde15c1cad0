"""ValueHead: one decoder state -> how much (more) thinking is expected to help."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ValueHead(nn.Module):
    """v = tanh(w . h + b) in (-1, 1); zero-initialised, so that v = 0 before training."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 1)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., D) -> (...)."""
        return torch.tanh(self.linear(hidden.float())).squeeze(-1)
