"""What a latent loop did, row by row; the one record all loops give and all readers take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Thoughts:
    """Entries where ``made`` is False are zeros.

    ``made[:, k]``: state h_k exists (k = 0..N).  ``kept``: K, the latents the transcript sees.
    ``entered``: the entry gate let the row in.
    """

    states: Tensor  # (B, N + 1, D) h_k as used by adapter and value head, float32
    values: Tensor  # (B, N + 1) v_k
    made: Tensor  # (B, N + 1) bool
    updates: Tensor  # (B, N, D) g_k delta_k
    gates: Tensor  # (B, N) mean of g_k over channels
    kept: Tensor  # (B,) int64
    entered: Tensor  # (B,) bool


class Recorder:
    """Collects a loop's steps into ``Thoughts``."""

    def __init__(self, anchor_state: Tensor, value: Tensor, entered: Tensor) -> None:
        self.states, self.values = [anchor_state], [value]
        self.made, self.updates, self.gates = [torch.ones_like(entered)], [], []
        self.entered, self.kept = entered, torch.zeros_like(entered, dtype=torch.long)

    def add(
        self,
        active: Tensor,
        commit: Tensor,
        hidden: Tensor,
        value: Tensor,
        update: Tensor,
        gate: Tensor,
    ) -> None:
        """Record step k of the rows that are ``active``, of which ``commit`` keep x_k."""
        self.states.append(torch.where(active[:, None], hidden, 0.0))
        self.values.append(torch.where(active, value, 0.0))
        self.updates.append(torch.where(active[:, None], update, 0.0))
        self.gates.append(torch.where(active, gate.mean(-1), 0.0))
        self.made.append(active)
        self.kept = self.kept + commit.long()

    def thoughts(self, steps: int) -> Thoughts:
        """The record, padded to N = ``steps``."""

        def padded(parts: Sequence[Tensor], length: int, like: Tensor) -> Tensor:
            return torch.stack([*parts, *[torch.zeros_like(like)] * (length - len(parts))], 1)

        state, value = self.states[0], self.values[0]
        return Thoughts(
            states=padded(self.states, steps + 1, state),
            values=padded(self.values, steps + 1, value),
            made=padded(self.made, steps + 1, self.made[0]),
            updates=padded(self.updates, steps, state),
            gates=padded(self.gates, steps, value),
            kept=self.kept,
            entered=self.entered,
        )


def initial_state(hidden: Tensor, noise: Tensor | None = None) -> Tensor:
    """h_0 (B, D), L2-normalised; ``noise`` (B, D) is added before, in units of the raw state."""
    hidden = hidden.float()
    return functional.normalize(hidden if noise is None else hidden + noise, dim=-1)
