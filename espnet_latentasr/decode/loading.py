"""From an experiment's files to a ``Recogniser``; loads weights only, never code."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from espnet_latentasr.adaptation.base import Method
from espnet_latentasr.adaptation.registry import build_method
from espnet_latentasr.adaptation.released_checkpoint import why_no_parameter
from espnet_latentasr.backbone.frozen import read_frozen
from espnet_latentasr.backbone.registry import load_backbone
from espnet_latentasr.config import (
    ADAPTATIONS,
    ModelConfig,
    PromptConfig,
    config_hash,
    model_config,
    read_yaml,
)
from espnet_latentasr.decode.recogniser import Recogniser
from espnet_latentasr.errors import ConfigError
from espnet_latentasr.fileio import zip_damage

_PREFIX = "method."


@dataclass(frozen=True)
class Loaded:
    """A recogniser and what identifies it."""

    recogniser: Recogniser
    model_hash: str
    backbone_fingerprint: str


def _file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def read_model_config(path: Path) -> tuple[ModelConfig, str]:
    """Read the model's part of an ESPnet config.yaml, and the recogniser it was trained on."""
    if not path.is_file():
        raise ConfigError(f"{path}: cannot be read (no such file); stage 11 writes it")
    saved = read_yaml(path)
    try:
        adaptation = saved["adaptation"]
        sections = ("backbone", "prompt", "schedule", *ADAPTATIONS[adaptation])
        given = {s: saved[f"{s}_conf"] for s in sections}
        fingerprint = saved["backbone_fingerprint"]
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{path}: not a LatentASR config.yaml ({error})") from None
    try:
        return model_config(adaptation, given), fingerprint
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def read_tensors(model_file: Path) -> dict[str, Tensor]:
    """Read a checkpoint's tensors without the prefix that training gives their names; never code.

    Raises:
        ConfigError: no such file, a damaged one, or one that holds anything else than plain tensors of
            finite numbers that are really in it.
    """
    if zipfile.is_zipfile(model_file) and (problem := zip_damage(model_file)):
        raise ConfigError(
            f"{model_file}: damaged ({problem}); copy it again, or train it again with --overwrite true"
        )
    try:
        states = torch.load(model_file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ConfigError(f"{model_file}: cannot be read ({error.strerror})") from None
    except Exception as error:  # the unpickler's refusals have no common type
        raise ConfigError(f"{model_file}: not a checkpoint of tensors ({error})") from None
    if not isinstance(states, dict) or not all(isinstance(v, Tensor) for v in states.values()):
        raise ConfigError(
            f"{model_file}: it holds more than tensors, so it is no model file; checkpoint.pth is the "
            "trainer's: take valid.ce.best.pth"
        )
    for key, value in states.items():
        if problem := why_no_parameter(value):
            raise ConfigError(f"{model_file}: {key}: {problem}; copy the file again")
    return {str(key).removeprefix(_PREFIX): value for key, value in states.items()}


def check_fit(states: Mapping[str, Tensor], expected: Mapping[str, Tensor], where: str | Path) -> None:
    """Refuse tensors that are not those of a configuration and its recogniser.

    Raises:
        ConfigError: names the parameters.
    """
    if odd := sorted(states.keys() ^ expected.keys()):
        raise ConfigError(f"{where}: parameters do not fit the configuration: {odd}")
    for key, value in states.items():
        if value.shape != expected[key].shape:
            raise ConfigError(
                f"{where}: {key} has shape {tuple(value.shape)}, this configuration and recogniser need "
                f"{tuple(expected[key].shape)}; it belongs to others"
            )


def load_method(config: ModelConfig, backbone, model_file: Path) -> Method:
    """Build the method and load its parameters, strictly."""
    states = read_tensors(model_file)
    method = build_method(config, backbone)
    expected = method.state_dict()
    check_fit(states, expected, model_file)
    anchor = "adapter.anchor"
    if anchor in states and not torch.equal(states[anchor].cpu(), expected[anchor].cpu()):
        raise ConfigError(f"{model_file}: its anchor embedding is not this recogniser's")
    method.load_state_dict(states)
    return method.place(backbone.embedding_table.device)


def load_recogniser(
    backbone_dir: str | Path,
    asr_train_config: str | Path | None = None,
    asr_model_file: str | Path | None = None,
    device: str = "cpu",
) -> Loaded:
    """Load the frozen recogniser of ``backbone_dir`` and, if named, a trained method for it.

    Raises:
        ConfigError: files that are missing, damaged or do not belong together.
    """
    frozen = read_frozen(backbone_dir)
    backbone = load_backbone(frozen.config, device)
    frozen.check(backbone)
    if asr_train_config is None:
        return Loaded(Recogniser(backbone, None, PromptConfig()), "none", backbone.fingerprint)
    config, trained_on = read_model_config(Path(asr_train_config))
    if trained_on != backbone.fingerprint:
        raise ConfigError(
            f"{asr_train_config}: trained on recogniser {trained_on}, but {backbone_dir} is "
            f"{backbone.fingerprint}; a latent adapter fits the recogniser it was trained on only"
        )
    if asr_model_file is None:
        raise ConfigError("--asr_train_config needs --asr_model_file")
    method = load_method(config, backbone, Path(asr_model_file))
    identity = config_hash(config) + "-" + _file_hash(Path(asr_model_file))
    return Loaded(Recogniser(backbone, method, config.prompt), identity, backbone.fingerprint)
