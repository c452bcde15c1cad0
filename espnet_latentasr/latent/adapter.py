"""The adapter: a decoder state becomes the embedding of the next latent position (Eqs. 1-3)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from espnet_latentasr.latent.injection import (
    anchored,
    bounded_delta,
    inverse_softplus,
    sigmoid_gate,
    step_scale,
)

MEAN_DECAY = 0.9


class Adapter(nn.Module):
    """delta_k from ``propose``, g_k, x_k = e_LT + g_k delta_k; subclasses say where u_k comes from.

    Parameters stay float32 whatever the recogniser's type.

    Args:
        anchor: e_LT (D,), copied into a buffer that is never trained.
        steps: N, the number of latent positions.
        delta: ``bounded`` (Eq. 1) or ``free`` (delta = u).
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
        self.register_buffer("mean_update", torch.zeros(steps, width))
        self._build(width, steps)
        if delta == "bounded":
            rho = inverse_softplus(scale_init)
            self.step_scale_rho = nn.Parameter(torch.full((steps,), rho))
        if gate == "sigmoid":
            self.gate = nn.Linear(2 * width, width)
            nn.init.zeros_(self.gate.weight)
            nn.init.zeros_(self.gate.bias)

    def _build(self, width: int, steps: int) -> None:
        """Make the layers of `propose`; every kind of adapter has its own."""
        raise NotImplementedError

    def propose(self, hidden: Tensor, step: int) -> Tensor:
        """Hidden state h_k (B, D) -> u_k (B, D); ``step`` is k = 1..N."""
        raise NotImplementedError

    def scales(self) -> Tensor:
        """(N,) s_k, the bound of each step's delta norm."""
        if self.delta_kind != "bounded":
            return torch.full((self.steps,), float("inf"))
        scales = step_scale(self.step_scale_rho, self.scale_cap)
        return scales * self.anchor.norm() if self.scale_relative else scales

    def update(self, hidden: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Hidden state h_k (B, D) -> (g_k delta_k, g_k), both (B, D)."""
        delta = self.propose(hidden, step)
        if self.delta_kind == "bounded":
            delta = bounded_delta(delta, self.scales()[step - 1])
        if self.gate_kind == "open":
            return delta, torch.ones_like(delta)
        gate = sigmoid_gate(self.anchor, delta, self.gate.weight, self.gate.bias)
        return gate * delta, gate

    def embedding(self, update: Tensor) -> Tensor:
        """g_k delta_k (..., D) -> x_k (..., D)."""
        return update if self.anchoring == "none" else anchored(self.anchor, update)

    def probes(self, count: int) -> Tensor | None:
        """(count, D): e_LT at the positions the prompt is read with; None when there are none."""
        return self.anchor.expand(count, self.width) if count else None

    @torch.no_grad()
    def observe(self, updates: Tensor, made: Tensor) -> None:
        """Follow the training set's mean of g_k delta_k: what the ``mean`` control injects.

        Of several processes each calls this for its part of the batch, and follows the mean of the whole.

        Args:
            updates: (B, N, D), made: (B, N) bool.
        """
        weight = made.float()[..., None]
        seen = torch.cat([(updates * weight).sum(0), weight.sum(0)], -1)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(seen)
        total, count = seen[:, :-1], seen[:, -1:]
        mean = total / count.clamp(min=1)
        self.mean_update.lerp_(mean.where(count > 0, self.mean_update), 1 - MEAN_DECAY)


class LatentAdapter(Adapter):
    """u_k = DeltaProj(h_k + StepProj(e_k)) (Eq. 1)."""

    def _build(self, width: int, steps: int) -> None:
        self.step_embedding = nn.Parameter(torch.empty(steps, width).normal_(std=0.02))
        self.step_projection = nn.Linear(width, width)
        self.delta_projection = nn.Linear(width, width, bias=False)

    def start_at_zero(self) -> None:
        """Set DeltaProj to zero, so that x_k = e_LT before training."""
        nn.init.zeros_(self.delta_projection.weight)

    def propose(self, hidden: Tensor, step: int) -> Tensor:
        conditioned = hidden.float() + self.step_projection(self.step_embedding[step - 1])
        return self.delta_projection(conditioned)


class ConstantAdapter(Adapter):
    """u_k is a learned vector, the same for every utterance: a control without any input."""

    def _build(self, width: int, steps: int) -> None:
        self.constant = nn.Parameter(torch.empty(steps, width).normal_(std=width**-0.5))

    def start_at_zero(self) -> None:
        """Set the vectors to zero, so that x_k = e_LT before training."""
        nn.init.zeros_(self.constant)

    def propose(self, hidden: Tensor, step: int) -> Tensor:
        return self.constant[step - 1].expand_as(hidden)


class ReleasedAdapter(Adapter):
    """The authors' module: u_k = DeltaProj(h_k), and what feeds their loop (``other_loops``)."""

    def _build(self, width: int, steps: int) -> None:
        self.initial_projection = nn.Linear(width, width)
        self.step_embedding = nn.Parameter(torch.empty(steps, width).normal_(std=0.02))
        self.step_projection = nn.Linear(width, width, bias=False)
        self.delta_projection = nn.Linear(width, width)

    def start_at_zero(self) -> None:
        """Set DeltaProj to zero, so that x_k = e_LT before training."""
        nn.init.zeros_(self.delta_projection.weight)
        nn.init.zeros_(self.delta_projection.bias)

    def propose(self, hidden: Tensor, step: int) -> Tensor:
        return self.delta_projection(hidden.float())

    def initial(self, anchor_state: Tensor) -> Tensor:
        """c_0 (B, D) from the normalised h_0 (B, D)."""
        return self.initial_projection(anchor_state)

    def loop_input(self, thought: Tensor, step: int) -> Tensor:
        """c_{k-1} (B, D) -> the embedding of loop position k: LayerNorm without gain, plus the step."""
        plain = functional.layer_norm(thought, (self.width,))
        return plain + self.step_projection(self.step_embedding[step - 1])


def build_adapter(
    loop: str, input_kind: str, anchor: Tensor, steps: int, delta_init: str, **options
) -> Adapter:
    """The adapter of a loop (paper, one_shot, released) and an input (state, constant)."""
    if loop == "released":
        adapter: Adapter = ReleasedAdapter(anchor, steps, **options)
    else:
        adapter = {"state": LatentAdapter, "constant": ConstantAdapter}[input_kind](
            anchor, steps, **options
        )
    if delta_init == "zero":
        adapter.start_at_zero()
    return adapter


def probe_count(loop: str, steps: int) -> int:
    """How many anchor probes ride along when the prompt is read."""
    return {"paper": steps, "one_shot": 1, "released": 0}[loop]
