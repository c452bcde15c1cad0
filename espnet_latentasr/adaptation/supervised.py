"""Cross-entropy training of the baselines (full, LoRA, prompt tuning).

They get the right language tag, untouched transcripts and no noise; nothing of the latent path.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from espnet_latentasr.adaptation.base import Method, TrainBatch
from espnet_latentasr.backbone.base import Backbone
from espnet_latentasr.backbone.teacher_forcing import teacher_force
from espnet_latentasr.config import ModelConfig
from espnet_latentasr.latent.losses import token_scores


class SupervisedMethod(Method):
    """L = token cross-entropy of the transcript after the adapted prompt."""

    def loss(
        self, batch: TrainBatch, progress: float, generator: torch.Generator | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        state = self.read_prompt(batch.encoded, batch.prompts)
        logits, ids, rows = teacher_force(self.adapted, state, batch.targets)
        cross_entropy, accuracy = token_scores(logits, ids, rows, len(batch.prompts))
        lengths = torch.tensor([float(len(t)) for t in batch.targets], device=cross_entropy.device)

        def pooled(values: Tensor) -> Tensor:
            return (values * lengths).sum() / lengths.sum()

        loss = pooled(cross_entropy)
        return loss, {
            "ce": loss,
            "ce_base": pooled(batch.base_cross_entropy),
            "acc": pooled(accuracy),
            "acc_base": pooled(batch.base_accuracy),
        }


class DecoderMethod(SupervisedMethod):
    """A baseline that trains (parts of) a copy of the text decoder.

    The copy is not registered, its trained parameters are, under their own names (with ``/`` for
    ``.``): checkpoints hold these and nothing else.
    """

    def __init__(self, config: ModelConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        decoder, table = self.build_decoder(backbone)
        trained = {n: p for n, p in decoder.named_parameters() if p.requires_grad}
        if table is not None:
            trained["embedding_table"] = table
        for name, parameter in trained.items():
            parameter.data = parameter.data.float()
            self.register_parameter(name.replace(".", "/"), parameter)
        self._decoder = (decoder,)
        self._adapted = (backbone.with_decoder(decoder, table),)

    def build_decoder(self, backbone: Backbone) -> tuple[nn.Module, nn.Parameter | None]:
        """The decoder whose parameters with a gradient are trained, and the table if that is too."""
        raise NotImplementedError

    @property
    def adapted(self) -> Backbone:
        return self._adapted[0]

    def train(self, mode: bool = True) -> DecoderMethod:
        self._decoder[0].train(mode)
        return super().train(mode)

    def place(self, device: torch.device | str) -> DecoderMethod:
        super().place(device)
        self._decoder[0].to(device)
        return self
