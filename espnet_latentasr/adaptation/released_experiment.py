"""An experiment folder (ESPnet's config.yaml and checkpoint) of the authors' adapter."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch
import yaml

from espnet_latentasr.adaptation.latent import LatentMethod
from espnet_latentasr.adaptation.released_checkpoint import Released, read_released
from espnet_latentasr.backbone.frozen import read_frozen
from espnet_latentasr.backbone.registry import load_backbone
from espnet_latentasr.config import ADAPTATIONS, load_yaml, model_config
from espnet_latentasr.errors import ConfigError
from espnet_latentasr.fileio import atomic_path, atomic_write_text

CHECKPOINT = "valid.ce.best.pth"


def write_experiment(adapter: Path, backbone_dir: Path, config: Path, output: Path) -> Released:
    """Write ``config.yaml`` and ``valid.ce.best.pth`` for decoding with the authors' parameters.

    Raises:
        DataError: the adapter file is damaged or of another layout.
        ConfigError: the configuration is not of ``loop: released`` or not of the adapter's sizes.
    """
    released = read_released(adapter)
    keys = load_yaml(config)
    frozen = read_frozen(backbone_dir)
    sections = {name: keys.get(f"{name}_conf") for name in ("prompt", *ADAPTATIONS["latent"])}
    sections["backbone"] = dataclasses.asdict(frozen.config)
    model = model_config("latent", sections)
    if model.latent.loop != "released":
        raise ConfigError(f"{config}: latent_conf.loop is '{model.latent.loop}', 'released' expected")
    if model.latent.steps != released.steps:
        raise ConfigError(
            f"{config}: latent_conf.steps is {model.latent.steps}, {adapter} has {released.steps}"
        )
    backbone = load_backbone(frozen.config)
    frozen.check(backbone)
    if backbone.width != released.width:
        raise ConfigError(
            f"{adapter} is for a decoder of width {released.width}, {backbone_dir} has {backbone.width}"
        )
    method = LatentMethod(model, backbone)
    missing, unexpected = method.load_state_dict(released.parameters, strict=False)
    if unexpected or set(missing) != {"adapter.anchor", "adapter.mean_update"}:
        raise ConfigError(
            f"{config}: parameters do not fit: missing {missing}, unexpected {unexpected}; the file has "
            "a bounded delta and a sigmoid gate"
        )
    states = {f"method.{key}": value for key, value in method.state_dict().items()}
    with atomic_path(output / CHECKPOINT) as temporary:
        torch.save(states, temporary)
    saved = {f"{n}_conf": dataclasses.asdict(getattr(model, n)) for n in (*sections, "schedule")}
    saved |= {"adaptation": "latent", "backbone_fingerprint": backbone.fingerprint}
    saved["released_settings"] = {key: str(value) for key, value in released.settings.items()}
    atomic_write_text(output / "config.yaml", yaml.safe_dump(saved, sort_keys=True))
    return released
