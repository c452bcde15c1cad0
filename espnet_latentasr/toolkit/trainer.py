"""The trainer that tells the model and the learning rates how far training is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch

from espnet_latentasr.config import ScheduleConfig
from espnet_latentasr.toolkit.checkpoints import WholeTrainer


def rate_factor(progress: float, schedule: ScheduleConfig) -> float:
    """Factor of the learning rate at ``progress`` (0..1): linear warm-up, constant or cosine."""
    if progress < schedule.warmup:
        return progress / schedule.warmup
    if schedule.kind == "constant":
        return 1.0
    done = (progress - schedule.warmup) / max(1.0 - schedule.warmup, 1e-9)
    return 0.5 * (1.0 + math.cos(math.pi * done))


class _WithProgress:
    """Before each batch is used: ``progress`` (0..1) and ``iteration`` of the model, learning rates.

    Rates follow from the progress alone, so a resumed run has those of an uninterrupted one.
    """

    def __init__(
        self,
        iterator: Iterable,
        model,
        epoch: int,
        max_epoch: int,
        optimizers: Sequence[torch.optim.Optimizer],
    ) -> None:
        self.iterator, self.model = iterator, model
        self.epoch, self.max_epoch = epoch, max_epoch
        self.groups = [group for optimizer in optimizers for group in optimizer.param_groups]

    def __len__(self) -> int:
        return len(self.iterator)

    def __iter__(self):
        per_epoch = len(self.iterator)
        for number, batch in enumerate(self.iterator):
            done = (self.epoch - 1) * per_epoch + number
            self.model.iteration = done
            total = self.max_epoch * per_epoch
            self.model.progress = done / total
            schedule = self.model.method.config.schedule
            if schedule != ScheduleConfig():
                # At the middle of the step: the first of a warm-up is then not lost.
                factor = rate_factor((done + 0.5) / total, schedule)
                for group in self.groups:
                    group.setdefault("full_lr", group["lr"])
                    group["lr"] = group["full_lr"] * factor
            yield batch


class LatentTrainer(WholeTrainer):
    """Adds the decay of the cycle loss and reproducible draws; everything else is ESPnet's."""

    @classmethod
    def train_one_epoch(cls, model, iterator, reporter, options, optimizers, **kwargs) -> bool:
        bare = getattr(model, "module", model)
        return super().train_one_epoch(
            model=model,
            iterator=_WithProgress(iterator, bare, reporter.epoch, options.max_epoch, optimizers),
            optimizers=optimizers,
            reporter=reporter,
            options=options,
            **kwargs,
        )
