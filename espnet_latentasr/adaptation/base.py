"""What every adaptation of a frozen recogniser offers to training and decoding; knows no toolkit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from espnet_latentasr.backbone.base import Backbone, Encoded, Prompt, State
from espnet_latentasr.config import ModelConfig


@dataclass(frozen=True)
class TrainBatch:
    """One minibatch; ``base_*`` are the frozen recogniser's scores without latents, (B,).

    ``held_out``: (B,) bool, utterances that train the value head only; None: none of them.
    """

    encoded: Encoded
    prompts: Sequence[Prompt]
    targets: Sequence[Sequence[int]]
    base_cross_entropy: Tensor
    base_accuracy: Tensor
    held_out: Tensor | None = None


class Method(nn.Module):
    """The parameters that are trained; the recogniser is held, not registered: checkpoints leave it out.

    ``adapted`` is the recogniser that reads prompt and transcript (the frozen one itself where only
    what it reads is trained).  Latent thinking is the one kind with ``thinks``.
    """

    thinks = False

    def __init__(self, config: ModelConfig, backbone: Backbone) -> None:
        super().__init__()
        self.config = config
        self._held = (backbone,)

    @property
    def backbone(self) -> Backbone:
        """The frozen recogniser."""
        return self._held[0]

    @property
    def adapted(self) -> Backbone:
        return self.backbone

    def extend(self, state: State) -> State:
        """Add what the method puts after a prompt that its recogniser has read."""
        return state

    def read_prompt(self, encoded: Encoded, prompts: Sequence[Prompt]) -> State:
        """Read the prompts once; what follows continues from here."""
        return self.extend(self.adapted.prefill(encoded, prompts, None, True))

    def loss(
        self, batch: TrainBatch, progress: float, generator: torch.Generator | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The training loss and what to report.

        Args:
            progress: share of the optimiser steps done, 0..1.
            generator: source of all random draws; None in validation.
        """
        raise NotImplementedError

    def place(self, device: torch.device | str) -> Method:
        """Move this and its recogniser; number types stay."""
        self.to(device)
        self.backbone.to(device)
        return self

    def parameter_groups(self) -> list[dict]:
        """Optimiser groups; a group without ``lr`` takes the optimiser's."""
        return [{"params": list(self.parameters())}]
