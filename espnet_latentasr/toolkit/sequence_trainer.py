"""ESPnet's Trainer with what sequence training needs: guards and a first evaluation, a trajectory.

Before the first step ``guards.json`` is written (and what it must not be is an error) and epoch 0, the
model training starts from, is evaluated; after every epoch ``trajectory.csv`` gets a row and the texts of
the valid set go to ``valid_text/<epoch>``.
"""

from __future__ import annotations

import csv
import io
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from espnet2.torch_utils.device_funcs import to_device

from espnet_latentasr.data.kaldi_dir import write_kaldi_table
from espnet_latentasr.errors import ConfigError
from espnet_latentasr.fileio import atomic_write_text
from espnet_latentasr.sequence.guards import Measured, check
from espnet_latentasr.text.error_rate import ErrorRate, score
from espnet_latentasr.toolkit.checkpoints import CHECKPOINT, WholeTrainer
from espnet_latentasr.toolkit.sequence_model import SequenceModel

TRAJECTORY, TEXTS, GUARDS = "trajectory.csv", "valid_text", "guards.json"
FIRST = ("epoch", "steps", "wer_corpus", "wer_macro", "errors", "words", "utterances")


def macro(result: ErrorRate) -> float:
    """Mean over utterances with reference words of their own error rates, a fraction; NaN without any."""
    counts = [a.counts for a in result.utterances.values() if a.counts.reference_length]
    return sum(c.errors / c.reference_length for c in counts) / len(counts) if counts else float("nan")


def read_trajectory(path: Path) -> list[dict[str, str]]:
    """Rows of a trajectory, as text; none where there is no file."""
    if not path.is_file():
        return []
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))


def record(
    output: Path, model: SequenceModel, epoch: int, steps: int, train: Mapping[str, float]
) -> None:
    """Score the texts of a validation pass with sclite's counts and write the epoch's row.

    A row of the same epoch, or of a later one left by a run that was interrupted, is replaced.
    ``wer_corpus`` is pooled over the set, ``wer_macro`` the mean of the utterances' own rates (percent).
    """
    references = {utt: model.references[utt] for utt in model.decoded}
    result = score(references, model.decoded, "wer", model.normalize)
    counts = result.counts
    row: dict[str, Any] = dict(
        zip(FIRST, (epoch, steps, result.rates["Err"], 100 * macro(result), counts.errors,
                    counts.reference_length, len(references)))
    )  # fmt: skip
    row |= {f"train_{key}": value for key, value in sorted(train.items())}
    rows: list[Mapping[str, Any]] = [
        r for r in read_trajectory(output / TRAJECTORY) if int(r["epoch"]) < epoch
    ]
    rows.append(row)
    names = list(dict.fromkeys(key for r in rows for key in r))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, names, lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(rows)
    write_kaldi_table(output / TEXTS / str(epoch), model.decoded)
    atomic_write_text(output / TRAJECTORY, buffer.getvalue())
    logging.info(
        "epoch %d: corpus WER %.2f %%, macro WER %.2f %%", epoch, row["wer_corpus"], row["wer_macro"]
    )


class _Stepping:
    """Tells the model its epoch and when its reference policy is to be renewed."""

    def __init__(self, iterator: Iterable, model: SequenceModel, epoch: int, accum_grad: int) -> None:
        self.iterator, self.model, self.epoch, self.accum_grad = iterator, model, epoch, accum_grad

    def __len__(self) -> int:
        return len(self.iterator)

    def __iter__(self):
        self.model.epoch = self.epoch
        every = self.model.config.mwer.reference_sync * self.accum_grad
        self.model.steps = 0
        for number, batch in enumerate(self.iterator):
            # From the epoch's first batch on: a resumed run renews where an uninterrupted one does.
            if number % every == 0:
                self.model.renew_reference()
            yield batch
            self.model.steps = (number + 1) // self.accum_grad


class SequenceTrainer(WholeTrainer):
    """Adds guards, epoch 0 and the trajectory; everything else is ESPnet's.  One process."""

    @classmethod
    def run(cls, model, trainer_options, distributed_option, **kwargs) -> None:
        if distributed_option.distributed or trainer_options.ngpu > 1:
            raise ConfigError(
                f"--ngpu {trainer_options.ngpu}: sequence training evaluates and draws in one "
                "process; use --ngpu 0 or 1"
            )
        super().run(
            model=model, trainer_options=trainer_options, distributed_option=distributed_option, **kwargs
        )

    @classmethod
    def begin(cls, model, trainer_options, train_iter_factory, valid_iter_factory, **_) -> None:
        output = Path(trainer_options.output_dir)
        if not (trainer_options.resume and (output / CHECKPOINT).exists()):
            device = "cuda" if trainer_options.ngpu > 0 else "cpu"
            cls.guard(model, train_iter_factory.build_iter(1), output, device)
            cls.evaluate(model, valid_iter_factory.build_iter(1, shuffle=False), device)
            record(output, model, 0, 0, {})

    @classmethod
    def guard(cls, model: SequenceModel, iterator: Iterable, output: Path, device: str) -> None:
        """Measure on the first utterances of an epoch, write, and refuse what cannot be trained on."""
        seen = Measured()
        model.eval()
        model.epoch = 0  # its own draws
        for utt_ids, batch in iterator:
            seen.add(*model.measure(to_device(batch, device), utt_ids), model.unk)
            if len(seen.drawn) >= model.config.guards.utterances:
                break
        report = seen.report(model.config.list)
        atomic_write_text(output / GUARDS, json.dumps(asdict(report), indent=2) + "\n")
        check(report, model.config)

    @classmethod
    @torch.no_grad()
    def evaluate(cls, model: SequenceModel, iterator: Iterable, device: str) -> None:
        """Decode a set; the texts are in ``model.decoded``."""
        model.eval()
        model.decoded = {}
        for utt_ids, batch in iterator:
            model(**to_device(batch, device), utt_id=utt_ids)

    @classmethod
    def train_one_epoch(cls, model, iterator, reporter, options, **kwargs) -> bool:
        model.take_totals()
        stepping = _Stepping(iterator, model, reporter.epoch, options.accum_grad)
        return super().train_one_epoch(
            model=model, iterator=stepping, reporter=reporter, options=options, **kwargs
        )

    @classmethod
    def validate_one_epoch(cls, model, iterator, reporter, options, **kwargs) -> None:
        model.decoded = {}
        super().validate_one_epoch(
            model=model, iterator=iterator, reporter=reporter, options=options, **kwargs
        )
        output = Path(options.output_dir)
        record(
            output,
            model,
            reporter.epoch,
            cls.steps_done(output, model, reporter.epoch),
            model.take_totals(),
        )

    @staticmethod
    def steps_done(output: Path, model: SequenceModel, epoch: int) -> int:
        """Optimiser steps up to and with this epoch."""
        before = [
            int(r["steps"]) for r in read_trajectory(output / TRAJECTORY) if int(r["epoch"]) == epoch - 1
        ]
        return (before[0] if before else 0) + model.steps
