"""LatentASRTask: ESPnet's training entry (collect-stats, training, resume, averaging) for this method.

Data of a training utterance, all computed before training (stage 6):
``speech_states`` (cached audio embeddings), ``text``, ``lang``, ``baseline`` (the frozen recogniser's
cross-entropy per token and accuracy).
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
from collections.abc import Callable, Collection
from pathlib import Path

import torch

from espnet_latentasr.adaptation.registry import build_method
from espnet_latentasr.backbone.frozen import read_frozen
from espnet_latentasr.backbone.registry import load_backbone
from espnet_latentasr.config import ADAPTATIONS, ModelConfig, ScheduleConfig, model_config
from espnet_latentasr.decode.baseline import cache_key, check_cache
from espnet_latentasr.errors import ConfigError
from espnet_latentasr.toolkit.compat import (
    AbsTask,
    CommonCollateFn,
    NestedDictAction,
    str2bool,
)
from espnet_latentasr.toolkit.model import ESPnetLatentASRModel
from espnet_latentasr.toolkit.preprocessor import LatentPreprocessor
from espnet_latentasr.toolkit.trainer import LatentTrainer

SECTIONS = ("prompt", *dict.fromkeys(n for names in ADAPTATIONS.values() for n in names), "schedule")


def config_of(args: argparse.Namespace) -> ModelConfig:
    """The validated model configuration of parsed task arguments."""
    frozen = read_frozen(args.backbone_dir)
    named = args.backbone_conf or {}
    for key in ("kind", "name", "revision", "dtype"):
        if key in named and named[key] != getattr(frozen.config, key):
            raise ConfigError(
                f"backbone_conf.{key} is {named[key]!r}, but {args.backbone_dir} was frozen with "
                f"{getattr(frozen.config, key)!r}; run stage 5 and 6 again, or drop the key"
            )
    sections = {"backbone": dataclasses.asdict(frozen.config)}
    sections |= {name: getattr(args, f"{name}_conf") or {} for name in SECTIONS}
    return model_config(args.adaptation, sections)


class LatentASRTask(AbsTask):
    """ESPnet task; see the module's docstring for its data."""

    num_optimizers = 1
    class_choices_list = []
    trainer = LatentTrainer

    @classmethod
    def add_task_arguments(cls, parser: argparse.ArgumentParser) -> None:
        group = parser.add_argument_group("LatentASR")
        required = parser.get_default("required")
        required += ["backbone_dir"]
        group.add_argument("--backbone_dir", type=str, help="folder written by stage 5")
        group.add_argument(
            "--adaptation", default="latent", help=f"what is trained: {', '.join(ADAPTATIONS)}"
        )
        group.add_argument("--use_preprocessor", type=str2bool, default=True)
        for name in ("backbone", *SECTIONS, "model"):
            group.add_argument(
                f"--{name}_conf", action=NestedDictAction, default={}, help=f"see config.py: {name}"
            )

    @classmethod
    def build_collate_fn(cls, args: argparse.Namespace, train: bool) -> Callable:
        return CommonCollateFn(
            float_pad_value=0.0, int_pad_value=0, not_sequence=["baseline"]
        )

    @classmethod
    def build_preprocess_fn(cls, args: argparse.Namespace, train: bool) -> Callable | None:
        config = config_of(args)
        return LatentPreprocessor(train, config.backbone, config.prompt)

    @classmethod
    def required_data_names(cls, train: bool = True, inference: bool = False) -> Collection[str]:
        return ("speech_states", "text", "lang", "baseline")

    @classmethod
    def optional_data_names(cls, train: bool = True, inference: bool = False) -> Collection[str]:
        return ()

    @classmethod
    def build_model(cls, args: argparse.Namespace) -> ESPnetLatentASRModel:
        config = config_of(args)
        backbone = load_backbone(config.backbone)
        read_frozen(args.backbone_dir).check(backbone)
        key = cache_key(backbone.fingerprint, config.backbone.dtype, config.prompt)
        used = [*args.train_data_path_and_name_and_type, *args.valid_data_path_and_name_and_type]
        cached = (path for path, name, _ in used if name in ("speech_states", "baseline"))
        for folder in dict.fromkeys(Path(path).parent for path in cached):
            check_cache(folder, key)
        method = build_method(config, backbone)
        trained = sum(p.numel() for p in method.parameters())
        logging.info("adaptation %s: %d trainable parameters", config.adaptation, trained)
        if config.adaptation == "latent":
            rms = backbone.embedding_table.float().norm(dim=1).pow(2).mean().sqrt()
            logging.info(
                "anchor norm %.4f, root mean square of embedding norms %.4f",
                method.adapter.anchor.norm(),
                rms,
            )
        # The complete configuration goes into config.yaml, so that decoding has no other source.
        for name in ("backbone", "prompt", "schedule", *ADAPTATIONS[config.adaptation]):
            setattr(args, f"{name}_conf", dataclasses.asdict(getattr(config, name)))
        args.backbone_fingerprint = backbone.fingerprint
        return ESPnetLatentASRModel(method, args.seed)

    @classmethod
    def build_optimizers(
        cls, args: argparse.Namespace, model: torch.nn.Module
    ) -> list[torch.optim.Optimizer]:
        """One optimiser with the method's groups."""
        schedule = model.method.config.schedule
        if getattr(args, "scheduler", None) and schedule != ScheduleConfig():
            raise ConfigError(
                f"scheduler: {args.scheduler} contradicts schedule_conf.kind: {schedule.kind} (both set "
                "the learning rate); remove one of the two"
            )
        groups = model.method.parameter_groups()
        optim_class = cls.optimizer_class(args.optim)
        return [optim_class(groups, **args.optim_conf)]

    @staticmethod
    def optimizer_class(name: str):
        from espnet2.tasks.abs_task import optim_classes

        found = optim_classes.get(name)
        if found is None:
            raise ConfigError(f"optim: unknown '{name}', known: {', '.join(sorted(optim_classes))}")
        return found
