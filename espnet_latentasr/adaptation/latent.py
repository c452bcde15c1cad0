"""LatentASR as a trainable module around a frozen recogniser: one batch in, loss and records out.

Knows the recogniser's contract and the method's pure functions; knows no toolkit and no files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from espnet_latentasr.backbone.base import Backbone, Encoded, Prompt, State
from espnet_latentasr.backbone.teacher_forcing import teacher_force
from espnet_latentasr.config import ModelConfig
from espnet_latentasr.latent import halting, losses, targets
from espnet_latentasr.latent.adapter import LatentAdapter
from espnet_latentasr.latent.loop import Thoughts, think
from espnet_latentasr.latent.value_head import ValueHead


@dataclass(frozen=True)
class TrainBatch:
    """One minibatch; ``base_*`` are the frozen recogniser's scores without latents, (B,)."""

    encoded: Encoded
    prompts: Sequence[Prompt]
    targets: Sequence[Sequence[int]]
    base_cross_entropy: Tensor
    base_accuracy: Tensor


class LatentMethod(nn.Module):
    """Adapter and value head; the recogniser is held, not registered, so checkpoints leave it out."""

    def __init__(self, config: ModelConfig, backbone: Backbone) -> None:
        super().__init__()
        self.config = config
        self._backbone = (backbone,)
        latent = config.latent
        self.adapter = LatentAdapter(
            backbone.anchor(latent.anchor_token),
            latent.steps,
            delta=latent.delta,
            delta_init=latent.delta_init,
            gate=latent.gate,
            anchoring=latent.anchor,
            scale_init=latent.scale.init,
            scale_cap=latent.scale.cap,
            scale_relative=latent.scale.relative,
        )
        self.value_head = ValueHead(backbone.width)

    @property
    def backbone(self) -> Backbone:
        return self._backbone[0]

    @property
    def advance(self) -> bool:
        return self.config.latent.positions == "advance"

    @torch.no_grad()
    def read_prompt(self, encoded: Encoded, prompts: Sequence[Prompt]) -> State:
        """Read the prompts once, with the N anchor probes riding along."""
        probes = self.adapter.probes()
        return self.backbone.prefill(encoded, prompts, probes, self.advance)

    def think(self, probed: State, policy: halting.Policy, **options: Any) -> tuple[State, Thoughts]:
        """Run the latent loop from ``read_prompt``'s state; see ``latent.loop.think``."""
        return think(
            self.backbone,
            probed,
            self.adapter,
            self.value_head,
            policy,
            advance=self.advance,
            normalize=self.config.latent.normalize,
            **options,
        )

    def loss(
        self, batch: TrainBatch, progress: float, generator: torch.Generator | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """L = L_CE + w_cyc(t) L_cyc + w_val L_val, and what to report.

        Args:
            progress: share of the optimiser steps done, 0..1.
            generator: source of depth, noise and flips; None (validation): all N steps, none of them.
        """
        latent, value, weights = self.config.latent, self.config.value, self.config.loss
        size, training = len(batch.prompts), generator is not None
        probed = self.read_prompt(batch.encoded, batch.prompts)
        device = probed.mask.device
        depth = torch.full((size,), latent.steps)
        noise = None
        if training:
            depth = targets.draw_depth(size, latent.steps, latent.depth, latent.drop, generator)
            if latent.noise.std > 0:
                noise = targets.anchor_noise(
                    probed.hidden, latent.noise.std, latent.noise.relative, generator
                )
        depth = depth.to(device)
        state, thoughts = self.think(
            probed, halting.fixed(depth), noise=noise, detach_value=value.detach
        )
        logits, ids, rows = teacher_force(self.backbone, state, batch.targets)
        cross_entropy, accuracy = losses.token_scores(logits, ids, rows, size)
        lengths = torch.tensor([float(len(t)) for t in batch.targets], device=device)
        token_ce = (cross_entropy * lengths).sum() / lengths.sum()

        wanted = targets.gain_target(
            accuracy,
            batch.base_accuracy,
            cross_entropy.detach(),
            batch.base_cross_entropy,
            alpha=value.alpha,
            gain=value.gain,
            fallback_gain=value.fallback_gain,
            fallback_clip=value.fallback_clip,
        )
        if training and value.flip.prob > 0:
            wanted = targets.flip_negative(wanted, value.flip.prob, value.flip.unit, generator)
        used = self._supervised(thoughts.made, depth)
        value_mse = losses.value_loss(thoughts.values, wanted[:, None].expand_as(used), used)
        cycle = losses.cycle_loss(thoughts.states, thoughts.made, weights.cycle_beta)
        cycle_weight = losses.cycle_weight(weights.cycle, weights.cycle_decay, progress)
        loss = token_ce + weights.value * value_mse
        if cycle_weight > 0:
            loss = loss + cycle_weight * cycle
        if training:
            # Where all rows skip the loop some parameters, or all, have no part in the loss; backward
            # and distributed training need one.
            loss = loss + 0.0 * sum(p.sum() for p in self.parameters())
        stats = self._stats(thoughts, depth, wanted, used)
        base_ce = (batch.base_cross_entropy * lengths).sum() / lengths.sum()
        return loss, stats | {
            "ce": token_ce,
            "ce_base": base_ce,
            "acc": (accuracy * lengths).sum() / lengths.sum(),
            "acc_base": (batch.base_accuracy * lengths).sum() / lengths.sum(),
            "cycle": cycle,
            "value": value_mse,
        }

    def _supervised(self, made: Tensor, depth: Tensor) -> Tensor:
        """Which v_k (B, N + 1) have a known target: none for a row that skipped the loop."""
        step = torch.arange(made.shape[1], device=made.device)
        thought = (depth > 0)[:, None] & made
        last = thought & (step[None] == depth[:, None])
        if self.config.value.target == "utility":
            # Only the depth that was run has a realised gain; v_0 predicts it from the entrance.
            return last | (thought & (step[None] == 0))
        return last if self.config.value.states == "last" else thought

    def _stats(
        self, thoughts: Thoughts, depth: Tensor, wanted: Tensor, used: Tensor
    ) -> dict[str, Tensor]:
        expected = wanted[:, None].expand_as(used)[used]
        values = thoughts.values.detach()[used]
        made = thoughts.made[:, 1:]
        norms = thoughts.updates.detach().norm(dim=-1)[made]
        # The same keys in every batch: distributed training averages them one by one.
        undefined = torch.tensor(float("nan"), device=depth.device)
        stats = {
            "value_corr": undefined,
            "depth": depth.float().mean(),
            "skipped": (depth == 0).float().mean(),
            "value_mean": values.mean() if len(values) else undefined,
            "value_mae": (values - expected).abs().mean() if len(values) else undefined,
            "gate": thoughts.gates.detach()[made].mean() if len(norms) else undefined,
            "delta_norm": norms.mean() if len(norms) else undefined,
        }
        if len(values) > 1 and values.std() > 0 and expected.std() > 0:
            stats["value_corr"] = torch.corrcoef(torch.stack([values, expected]))[0, 1]
        if self.config.latent.delta == "bounded":
            scales = self.adapter.scales().detach()
            stats |= {f"scale_{k}": scale for k, scale in enumerate(scales, 1)}
        return stats
