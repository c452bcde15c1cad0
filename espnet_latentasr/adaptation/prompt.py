"""Prompt tuning: trained vectors between the prompt and the transcript, nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from espnet_latentasr.adaptation.supervised import SupervisedMethod
from espnet_latentasr.backbone.base import Backbone, Encoded, Prompt, State
from espnet_latentasr.config import ModelConfig
from espnet_latentasr.errors import ConfigError


class PromptTuningMethod(SupervisedMethod):
    """``vectors`` (M, D), started at the embeddings of the first M tokens of ``text``."""

    def __init__(self, config: ModelConfig, backbone: Backbone) -> None:
        super().__init__(config, backbone)
        settings = config.prompt_tuning
        ids = backbone.text.tokenize(settings.text)[: settings.vectors]
        if len(ids) < settings.vectors:
            raise ConfigError(
                f"prompt_tuning_conf.text: {len(ids)} tokens, but prompt_tuning_conf.vectors is "
                f"{settings.vectors}"
            )
        table = backbone.embedding_table
        start = backbone.embed(torch.tensor(ids, device=table.device))
        self.vectors = nn.Parameter(start.detach().float().clone())

    def read_prompt(self, encoded: Encoded, prompts: Sequence[Prompt]) -> State:
        with torch.no_grad():
            state = self.backbone.prefill(encoded, prompts, None, True)
        return self.extend(state)

    def extend(self, state: State) -> State:
        embeds = self.vectors.expand(state.batch_size, *self.vectors.shape)
        active = torch.ones(embeds.shape[:2], dtype=torch.bool, device=embeds.device)
        advance = self.config.prompt_tuning.positions == "advance"
        return self.backbone.step(state, embeds, active, advance)
