"""ESPnet's Trainer that tells the model how far training is."""

from __future__ import annotations

from collections.abc import Iterable

from espnet_latentasr.toolkit.compat import Trainer


class _WithProgress:
    """Sets ``progress`` (0..1) and ``iteration`` on the model before each batch is used."""

    def __init__(self, iterator: Iterable, model, epoch: int, max_epoch: int) -> None:
        self.iterator, self.model = iterator, model
        self.epoch, self.max_epoch = epoch, max_epoch

    def __len__(self) -> int:
        return len(self.iterator)

    def __iter__(self):
        per_epoch = len(self.iterator)
        for number, batch in enumerate(self.iterator):
            done = (self.epoch - 1) * per_epoch + number
            self.model.iteration = done
            self.model.progress = done / (self.max_epoch * per_epoch)
            yield batch


class LatentTrainer(Trainer):
    """Adds the decay of the cycle loss and reproducible draws; everything else is ESPnet's."""

    @classmethod
    def train_one_epoch(cls, model, iterator, reporter, options, **kwargs) -> bool:
        bare = getattr(model, "module", model)
        return super().train_one_epoch(
            model=model,
            iterator=_WithProgress(iterator, bare, reporter.epoch, options.max_epoch),
            reporter=reporter,
            options=options,
            **kwargs,
        )
