"""LatentASR as a trainable module around a frozen recogniser: one batch in, loss and records out.

Knows the recogniser's contract and the method's pure functions; knows no toolkit and no files.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from espnet_latentasr.adaptation.base import Method, TrainBatch
from espnet_latentasr.adaptation.latent_mwer import CandidateLists, ListWriter, mwer_loss
from espnet_latentasr.backbone.base import Backbone, Encoded, Prompt, State
from espnet_latentasr.backbone.teacher_forcing import teacher_force
from espnet_latentasr.config import ModelConfig
from espnet_latentasr.latent import halting, losses, targets
from espnet_latentasr.latent.adapter import Adapter, build_adapter, probe_count
from espnet_latentasr.latent.other_loops import LOOPS
from espnet_latentasr.latent.record import Thoughts
from espnet_latentasr.latent.value_head import ValueHead


class LatentMethod(Method):
    """Adapter and value head of one of the latent loops.

    ``write_lists``: makes the candidate lists of ``loss_conf.mwer``; set from outside.
    """

    thinks = True
    write_lists: ListWriter | None = None

    def __init__(self, config: ModelConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        latent = config.latent
        self.adapter = build_adapter(
            latent.loop,
            latent.input,
            backbone.anchor(latent.anchor_token),
            latent.steps,
            latent.delta_init,
            delta=latent.delta,
            gate=latent.gate,
            anchoring=latent.anchor,
            scale_init=latent.scale.init,
            scale_cap=latent.scale.cap,
            scale_relative=latent.scale.relative,
        )
        self.value_head = ValueHead(backbone.width)
        self._list_adapter: tuple[Adapter, ...] = ()

    def train(self, mode: bool = True) -> LatentMethod:
        """Begin an epoch (or leave training): lists of ``refresh: epoch`` come from this adapter."""
        super().train(mode)
        if self.config.loss.mwer.refresh == "epoch":
            # In a tuple, so that it is no part of the module: checkpoints leave it out.
            self._list_adapter = (copy.deepcopy(self.adapter),) if mode else ()
        return self

    @property
    def advance(self) -> bool:
        return self.config.latent.positions == "advance"

    def parameter_groups(self) -> list[dict]:
        """The step scales have a learning rate of their own, and no weight decay: it would pull rho
        towards softplus(0) = 0.69, no neutral value."""
        scales, others = [], []
        for name, parameter in self.named_parameters():
            (scales if name.endswith("step_scale_rho") else others).append(parameter)
        lr = self.config.latent.scale.lr
        own = {} if lr is None else {"lr": lr}
        groups: list[dict] = [{"params": others}]
        return groups + ([{"params": scales, "weight_decay": 0.0, **own}] if scales else [])

    @torch.no_grad()
    def read_prompt(self, encoded: Encoded, prompts: Sequence[Prompt]) -> State:
        """Read the prompts once, with the loop's anchor probes riding along."""
        count = probe_count(self.config.latent.loop, self.adapter.steps)
        return self.backbone.prefill(encoded, prompts, self.adapter.probes(count), self.advance)

    def extend(self, state: State) -> State:
        """Append the loop's anchor probes to a prompt that was read without them."""
        count = probe_count(self.config.latent.loop, self.adapter.steps)
        if count == 0:
            return state
        embeds = self.adapter.probes(count).expand(state.batch_size, count, -1)
        active = torch.ones(embeds.shape[:2], dtype=torch.bool, device=embeds.device)
        return self.backbone.step(state, embeds, active, self.advance)

    def think(
        self,
        probed: State,
        policy: halting.Policy,
        adapter: Adapter | None = None,
        **options: Any,
    ) -> tuple[list[State], Thoughts]:
        """Run the latent loop from ``read_prompt``'s state; see ``latent.loop.think``.

        ``adapter``: another one than this method's.
        """
        return LOOPS[self.config.latent.loop](
            self.backbone,
            probed,
            self.adapter if adapter is None else adapter,
            self.value_head,
            policy,
            advance=self.advance,
            normalize=self.config.latent.normalize,
            **options,
        )

    def loss(
        self, batch: TrainBatch, progress: float, generator: torch.Generator | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """L = L_CE + w_cyc(t) L_cyc + w_val L_val; in validation all N steps, no draw of any kind.

        With ``loss_conf.mwer`` L_CE gives way to ce L_CE + weight L_MWER.
        """
        latent, value, weights = self.config.latent, self.config.value, self.config.loss
        mwer = weights.mwer
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
        lists = self._lists_of_the_epoch(probed, depth, batch, generator)
        stages, thoughts = self.think(
            probed, halting.fixed(depth), on_halt="keep", noise=noise, detach_value=value.detach
        )
        if training:
            self.adapter.observe(thoughts.updates.detach(), thoughts.made[:, 1:])
        held_out = batch.held_out if training else None
        taught = torch.ones(size, device=device) if held_out is None else (~held_out).float()
        sequence_stats, sequence_loss = {}, None
        if mwer.kind != "none":
            lists = self._lists(stages, batch, generator) if lists is None else lists
            # A row without latents is the frozen recogniser's: nothing to teach.
            counted = (taught > 0) & (depth > 0)
            sequence_loss, sequence_stats = mwer_loss(
                self.backbone, stages[-1], lists, mwer.temperature, counted
            )
        every = training and latent.depth == "every" and len(stages) > 1
        scored = stages[1:] if every else stages[-1:]
        cross_entropy, accuracy = self._transcript_scores(scored, batch)  # (depths, B) each

        lengths = torch.tensor([float(len(t)) for t in batch.targets], device=device)

        def pooled(values: Tensor, weight: Tensor = lengths) -> Tensor:
            return (values * weight).sum() / weight.sum().clamp(min=1)

        token_ce = pooled(cross_entropy.mean(0), lengths * taught)
        gains = torch.stack(
            [
                targets.gain_target(
                    accuracy[index],
                    batch.base_accuracy,
                    cross_entropy[index].detach(),
                    batch.base_cross_entropy,
                    alpha=value.alpha,
                    gain=value.gain,
                    fallback_gain=value.fallback_gain,
                    fallback_clip=value.fallback_clip,
                )
                for index in range(len(accuracy))
            ]
        )
        wanted = self._wanted(gains, latent.steps)
        if training and value.flip.prob > 0:
            wanted = targets.flip_negative(wanted, value.flip.prob, value.flip.unit, generator)
        used = self._supervised(thoughts.made, depth, every)
        if held_out is not None:
            used = used & held_out[:, None]
        value_mse = losses.value_loss(thoughts.values, wanted, used)
        cycle = losses.cycle_loss(thoughts.states, thoughts.made, weights.cycle_beta)
        cycle_weight = losses.cycle_weight(weights.cycle, weights.cycle_decay, progress)
        loss = token_ce if sequence_loss is None else mwer.ce * token_ce + mwer.weight * sequence_loss
        loss = loss + weights.value * value_mse
        if cycle_weight > 0:
            loss = loss + cycle_weight * cycle
        if training:
            # Where all rows skip the loop some parameters, or all, have no part in the loss; backward
            # and distributed training need one.
            loss = loss + 0.0 * sum(p.sum() for p in self.parameters())
        return loss, self._stats(thoughts, depth, wanted, used) | sequence_stats | {
            "ce": pooled(cross_entropy.mean(0)),
            "ce_base": pooled(batch.base_cross_entropy),
            "acc": pooled(accuracy.mean(0)),
            "acc_base": pooled(batch.base_accuracy),
            "cycle": cycle,
            "value": value_mse,
        }

    def _lists_of_the_epoch(
        self, probed: State, depth: Tensor, batch: TrainBatch, generator: torch.Generator | None
    ) -> CandidateLists | None:
        """Lists of the adapter that the epoch began with; None where the current one makes them."""
        if self.config.loss.mwer.kind == "none" or generator is None or not self._list_adapter:
            return None
        with torch.no_grad():
            forked = self.backbone.fork(probed, torch.arange(len(batch.prompts), device=depth.device))
            policy = halting.fixed(depth)
            stages, _ = self.think(forked, policy, self._list_adapter[0], on_halt="keep")
        return self._lists(stages, batch, generator)

    def _lists(
        self, stages: Sequence[State], batch: TrainBatch, generator: torch.Generator | None
    ) -> CandidateLists:
        """Candidate lists read from the stages; without samples in validation, which draws nothing."""
        if self.write_lists is None:
            raise RuntimeError("loss_conf.mwer: nothing makes lists; set write_lists of the method")
        samples = 0 if generator is None else self.config.loss.mwer.samples
        seeds = torch.randint(2**62, (len(batch.prompts), samples), generator=generator).tolist()
        return self.write_lists(stages, batch.targets, seeds)

    def _transcript_scores(
        self, stages: list[State], batch: TrainBatch
    ) -> tuple[Tensor, Tensor]:
        """Cross-entropy and accuracy (stages, B) of the transcript read from each stage."""
        count, size = len(stages), len(batch.prompts)
        state = stages[0] if count == 1 else self.backbone.branch(stages)
        logits, ids, rows = teacher_force(self.backbone, state, list(batch.targets) * count)
        cross_entropy, accuracy = losses.token_scores(logits, ids, rows, size * count)
        return cross_entropy.view(count, size), accuracy.view(count, size)

    @staticmethod
    def _wanted(gains: Tensor, steps: int) -> Tensor:
        """Value targets (B, N + 1) from the gains (1, B) of one depth or (N, B) of every depth.

        v_0 predicts the gain of entering: the mean over the depths that were run.
        """
        entry = gains.mean(0, keepdim=True)
        return torch.cat([entry, gains.expand(steps, -1)]).T

    def _supervised(self, made: Tensor, depth: Tensor, every: bool) -> Tensor:
        """Which v_k (B, N + 1) have a known target: none for a row that skipped the loop."""
        step = torch.arange(made.shape[1], device=made.device)
        thought = (depth > 0)[:, None] & made
        last = thought & (step[None] == depth[:, None])
        if self.config.value.target == "utility" and not every:
            # Only the depth that was run has a realised gain; v_0 predicts it from the entrance.
            return last | (thought & (step[None] == 0))
        return last if self.config.value.states == "last" else thought

    def _stats(
        self, thoughts: Thoughts, depth: Tensor, wanted: Tensor, used: Tensor
    ) -> dict[str, Tensor]:
        expected = wanted[used]
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
