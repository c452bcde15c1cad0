"""ESPnet3's entry (espnet 202609 and later): what its YAMLs name by dotted path.

A training YAML of ESPnet3 points at one of ours (``model: {config: conf/train_latent.yaml}``), so an
ablation stays one file under either toolkit; ``${latentasr:FILE,KEY}`` reads a value of it.  Model, loss,
optimiser, learning rates and batches are then those of `LatentASRTask`, step for step.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
import yaml
from omegaconf import OmegaConf

from espnet_latentasr.config import ADAPTATIONS, load_yaml, merge
from espnet_latentasr.errors import ConfigError
from espnet_latentasr.fileio import atomic_path, atomic_write_text
from espnet_latentasr.toolkit.compat import CommonCollateFn
from espnet_latentasr.toolkit.model import ESPnetLatentASRModel
from espnet_latentasr.toolkit.preprocessor import LatentPreprocessor
from espnet_latentasr.toolkit.task import LatentASRTask, config_of
from espnet_latentasr.toolkit.trainer import _WithProgress

try:
    from espnet3.contract.stages import StageSpec
    from espnet3.systems.base.system import BaseSystem
    from lightning.pytorch.callbacks import Callback
except ImportError as error:
    raise ImportError(
        f"{error}; ESPnet3 is part of espnet 202609 and later (Python 3.12, 3.13) and needs its 'train' "
        "extra: pip install 'espnet[train]>=202609'"
    ) from error

SETTINGS = "latentasr.yaml"


def yaml_value(path: str, key: str) -> Any:
    """A top-level value of one of our YAMLs with its bases: ``${latentasr:FILE,KEY}`` in ESPnet3's.

    Raises:
        ConfigError: no such file or key.
    """
    loaded = load_yaml(path)
    if key not in loaded:
        raise ConfigError(f"{path}: no key '{key}' there or in its bases (${{latentasr:...}} names it)")
    return loaded[key]


OmegaConf.register_new_resolver("latentasr", yaml_value, replace=True)


def arguments(block: Mapping[str, Any]) -> argparse.Namespace:
    """The task's arguments of a ``model:`` block: its ``config`` with what the block adds or changes.

    Raises:
        ConfigError: a key that is no option of the task.
    """
    given = dict(block)
    path = given.pop("config", None)
    given = merge(load_yaml(path) if path else {}, given)
    known = vars(LatentASRTask.get_parser().parse_args([]))
    if unknown := sorted(given.keys() - known.keys()):
        raise ConfigError(f"model: no option of LatentASRTask: {unknown}")
    return argparse.Namespace(**(known | given))


class ESPnet3LatentASRTask(LatentASRTask):
    """``task: espnet_latentasr.toolkit.espnet3.ESPnet3LatentASRTask``."""

    @classmethod
    def get_default_config(cls) -> dict[str, Any]:
        """Nothing: ``build_model`` must see what ``model:`` gives, defaults come after its ``config``."""
        return {}

    @classmethod
    def build_model(cls, args: argparse.Namespace) -> ESPnetLatentASRModel:
        """The model of a ``model:`` block; it keeps the complete arguments for `LatentCallback`."""
        args = arguments(vars(args))
        if not args.backbone_dir:
            raise ConfigError("model.backbone_dir: missing; the folder that stage 5 wrote")
        model = super().build_model(args)
        model.arguments = args
        return model


class Preprocessor(LatentPreprocessor):
    """``dataset.preprocessor``; ``model`` is the ``model:`` block."""

    def __init__(self, model: Mapping[str, Any], train: bool = False) -> None:
        config = config_of(arguments(model))
        super().__init__(train, config.backbone, config.prompt)


class Collate(CommonCollateFn):
    """``dataloader.collate_fn``: `LatentASRTask`'s, and the ids, which ``value_conf.holdout`` needs."""

    def __init__(self, int_pad_value: int = 0) -> None:
        super().__init__(float_pad_value=0.0, int_pad_value=int_pad_value, not_sequence=["baseline"])

    def __call__(self, data: Collection) -> tuple[list[str], dict[str, Any]]:
        utt_ids, batch = super().__call__(data)
        return utt_ids, batch | {"utt_id": utt_ids}


class LatentCallback(Callback):
    """``trainer.callbacks``: optimiser groups, progress and learning rates, the experiment's settings.

    Writes into ``exp_dir`` what decoding needs: ``latentasr.yaml`` (the settings) and, at the end,
    ``valid.ce.best.pth`` or whatever ``best_model_criterion`` monitors.  ESPnet3's own ``ave_1best`` is
    written before the last epoch's checkpoint, so it may miss that epoch.
    """

    def __init__(self, exp_dir: str) -> None:
        self.exp_dir = Path(exp_dir)

    def setup(self, trainer, pl_module, stage: str) -> None:
        """Before the optimiser is made: it is the task's, whose groups ESPnet3's YAML cannot name."""
        for key in ("optimizer", "scheduler", "optimizers", "schedulers"):
            if pl_module.config.get(key) is not None:
                raise ConfigError(
                    f"{key}: must be null; the optimiser and its rates are those of model.config "
                    "(optim, optim_conf, schedule_conf)"
                )
        model = pl_module.model
        pl_module.configure_optimizers = lambda: LatentASRTask.build_optimizers(model.arguments, model)[0]
        if trainer.is_global_zero:
            config = model.method.config
            sections = ("backbone", "prompt", "schedule", *ADAPTATIONS[config.adaptation])
            saved = {f"{name}_conf": dataclasses.asdict(getattr(config, name)) for name in sections}
            saved["adaptation"] = config.adaptation
            saved["backbone_fingerprint"] = model.method.backbone.fingerprint
            text = yaml.safe_dump(saved, sort_keys=False, allow_unicode=True)
            atomic_write_text(self.exp_dir / SETTINGS, text)

    def on_validation_start(self, trainer, pl_module) -> None:
        self._place(pl_module)

    def on_train_start(self, trainer, pl_module) -> None:
        self._place(pl_module)

    def on_train_epoch_start(self, trainer, pl_module) -> None:
        batches = range(int(trainer.num_training_batches))
        epoch, last = trainer.current_epoch + 1, trainer.max_epochs
        self._steps = iter(_WithProgress(batches, pl_module.model, epoch, last, trainer.optimizers))

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx: int) -> None:
        next(self._steps)

    def on_train_end(self, trainer, pl_module) -> None:
        if not trainer.is_global_zero:
            return
        for saver in trainer.checkpoint_callbacks:
            if saver.monitor and saver.best_model_path:
                best = torch.load(saver.best_model_path, map_location="cpu", weights_only=True)
                path = self.exp_dir / f"{saver.monitor.replace('/', '.')}.best.pth"
                with atomic_path(path) as temporary:
                    torch.save(best["state_dict"], temporary)

    @staticmethod
    def _place(pl_module) -> None:
        # Lightning moves registered modules; the frozen recogniser is held, not registered.
        pl_module.model.method.place(torch.device(pl_module.device))


class LatentASRSystem(BaseSystem):
    """The stages of ``run.py`` under ESPnet3; data, recogniser and caches are made by ``run.sh``."""

    stages = (
        StageSpec(name="train", config="training", log_dir="exp_dir"),
        StageSpec(name="infer", config="inference", log_dir="inference_dir"),
        StageSpec(name="measure", config="metrics", log_dir="inference_dir"),
    )
