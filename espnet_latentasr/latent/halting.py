"""Halting policies: pure functions (value (B,), step k) -> (B,) bool, True = think on.

Step 0 is the entry gate (False: no latents at all), step k >= 1 decides after x_k was made.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Policy = Callable[[Tensor, int], Tensor]


def never(value: Tensor, step: int) -> Tensor:
    """The frozen recogniser."""
    return torch.zeros_like(value, dtype=torch.bool)


def always(value: Tensor, step: int) -> Tensor:
    """All N steps."""
    return torch.ones_like(value, dtype=torch.bool)


def threshold(theta: float) -> Policy:
    """Stop as soon as v_k < theta."""
    return lambda value, step: value >= theta


def fixed(depth: Tensor | int) -> Policy:
    """Exactly ``depth`` steps: one number, or one per row (B,)."""
    return lambda value, step: torch.as_tensor(depth, device=value.device).expand_as(value) > step


def chosen_depth(values: Tensor, policy: Policy, on_halt: str) -> tuple[Tensor, Tensor]:
    """The depth K (B,) a policy stops at, and whether the row entered, from all values (B, N + 1).

    What the loop does step by step, read off afterwards: ``keep`` counts the step it stops after,
    ``discard`` does not.
    """
    active = entered = policy(values[:, 0], 0)
    kept = torch.zeros(len(values), dtype=torch.long, device=values.device)
    for step in range(1, values.shape[1]):
        onward = active & policy(values[:, step], step)
        kept = kept + (active if on_halt == "keep" else onward).long()
        active = onward
    return kept, entered
