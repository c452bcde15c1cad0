"""LatentAdapter: a decoder state becomes the embedding of the next latent position (Eqs. 1-3)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from espnet_latentasr.latent.injection import (
    anchored,
    bounded_delta,
    inverse_softplus,
    sigmoid_gate,
    step_scale,
)


class LatentAdapter(nn.Module):
    """u_k = DeltaProj(h_k + StepProj(e_k)); delta_k; g_k; x_k = e_LT + g_k delta_k.

    Parameters stay float32 whatever the recogniser's type.

    Args:
        anchor: e_LT (D,), copied into a buffer that is never trained.
        steps: N, the number of latent positions.
        delta: ``bounded`` (Eq. 1) or ``free`` (delta = u).
        delta_init: ``zero`` starts DeltaProj at zero, so that x_k = e_LT before training.
        gate: ``sigmoid`` (zero-initialised: 0.5 everywhere) or ``open`` (1).
        anchoring: ``embedding`` (Eq. 3) or ``none`` (x = g delta).
        scale_relative: multiply s_k by the anchor's norm.
    """

    def __init__(
        self,
        anchor: Tensor,
        steps: int,
        *,
        delta: str = "bounded",
        delta_init: str = "default",
        gate: str = "sigmoid",
        anchoring: str = "embedding",
        scale_init: float = 0.2,
        scale_cap: float = 3.0,
        scale_relative: bool = False,
    ) -> None:
        super().__init__()
        width = anchor.shape[0]
        self.steps, self.width = steps, width
        self.delta_kind, self.gate_kind, self.anchoring = delta, gate, anchoring
        self.scale_cap, self.scale_relative = scale_cap, scale_relative
        self.register_buffer("anchor", anchor.float().clone())
        self.step_embedding = nn.Parameter(torch.empty(steps, width).normal_(std=0.02))
        self.step_projection = nn.Linear(width, width)
        self.delta_projection = nn.Linear(width, width, bias=False)
        if delta_init == "zero":
            nn.init.zeros_(self.delta_projection.weight)
        if delta == "bounded":
            rho = inverse_softplus(scale_init)
            self.step_scale_rho = nn.Parameter(torch.full((steps,), rho))
        if gate == "sigmoid":
            self.gate = nn.Linear(2 * width, width)
            nn.init.zeros_(self.gate.weight)
            nn.init.zeros_(self.gate.bias)

    def scales(self) -> Tensor:
        """(N,) s_k, the bound of each step's delta norm."""
        if self.delta_kind != "bounded":
            return torch.full((self.steps,), float("inf"))
        scales = step_scale(self.step_scale_rho, self.scale_cap)
        return scales * self.anchor.norm() if self.scale_relative else scales

    def update(self, hidden: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Hidden state h_k (B, D) -> (g_k delta_k, g_k), both (B, D); ``step`` is k = 1..N."""
        conditioned = hidden.float() + self.step_projection(self.step_embedding[step - 1])
        delta = self.delta_projection(conditioned)
        if self.delta_kind == "bounded":
            delta = bounded_delta(delta, self.scales()[step - 1])
        if self.gate_kind == "open":
            return delta, torch.ones_like(delta)
        gate = sigmoid_gate(self.anchor, delta, self.gate.weight, self.gate.bias)
        return gate * delta, gate

    def embedding(self, update: Tensor) -> Tensor:
        """g_k delta_k (B, D) -> x_k (B, D)."""
        return update if self.anchoring == "none" else anchored(self.anchor, update)

    def probes(self) -> Tensor:
        """(N, D): e_LT at every latent position, what the prompt is read with."""
        return self.anchor.expand(self.steps, self.width)
