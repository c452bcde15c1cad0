"""From a trained experiment to a folder (and zip) to share; knows checkpoints and files, runs no model.

Only trained tensors are packed.  What an adapter copied from its recogniser (the anchor embedding) is
left out and taken from the recogniser again when the pack is loaded.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import safetensors.torch
import torch

import espnet_latentasr
from espnet_latentasr.backbone.frozen import Frozen, read_frozen
from espnet_latentasr.config import DecodeConfig, build, config_hash, load_yaml, read_yaml
from espnet_latentasr.decode.loading import read_model_config, read_tensors
from espnet_latentasr.decode.pack_card import Facts, card_text
from espnet_latentasr.decode.pack_format import (
    ADAPTER,
    CARD,
    CONFIG,
    META,
    Pack,
    Recogniser,
    config_text,
    meta_text,
    write_folder,
    zip_bytes,
)
from espnet_latentasr.errors import ConfigError
from espnet_latentasr.fileio import atomic_path

# Buffers that are copies of the recogniser's own weights.
COPIED = ("adapter.anchor",)
# In a checkpoint, but no parameter: the mean latent that a control injects.
_BUFFERS = ("adapter.mean_update",)


def model_identity(config_file: str | Path, model_file: str | Path) -> str:
    """What an experiment's checkpoint is called in ``identity.json`` of its decodings (see `loading`)."""
    config, _ = read_model_config(Path(config_file))
    digest = hashlib.sha256(Path(model_file).read_bytes()).hexdigest()[:16]
    return f"{config_hash(config)}-{digest}"


def trained_tensors(model_file: Path) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint that training made; loads weights only, never code.

    Raises:
        ConfigError: no such file, or no checkpoint of ours.
    """
    states = read_tensors(model_file)
    return {key: value.contiguous() for key, value in states.items() if key not in COPIED}


def read_experiment(
    backbone_dir: Path,
    asr_train_config: Path,
    asr_model_file: Path,
    inference_config: Path | None = None,
    language: str | None = None,
) -> Pack:
    """Gather what is shared of an experiment.

    Raises:
        ConfigError: files that are missing, damaged or do not belong together.
    """
    frozen = read_frozen(backbone_dir)
    config, trained_on = read_model_config(asr_train_config)
    if trained_on != frozen.fingerprint:
        raise ConfigError(
            f"{asr_train_config}: trained on recogniser {trained_on}, but {backbone_dir} is "
            f"{frozen.fingerprint}; name the folder that stage 11 was given"
        )
    tensors = trained_tensors(asr_model_file)
    decode = decode_tag = None
    if inference_config is not None:
        decode = build(DecodeConfig, load_yaml(inference_config), str(inference_config))
        decode_tag = inference_config.stem
    return Pack(
        model=model_identity(asr_train_config, asr_model_file),
        recogniser=_recogniser(frozen),
        method=config,
        decode=decode,
        decode_tag=decode_tag,
        language=language,
        parameters=sum(value.numel() for key, value in tensors.items() if key not in _BUFFERS),
        versions=_versions(frozen, asr_train_config),
        adapter=safetensors.torch.save(tensors, metadata={"format": "pt"}),
    )


def _recogniser(frozen: Frozen) -> Recogniser:
    config = frozen.config
    # A folder's place on this machine is nobody else's business; its fingerprint says what it is.
    local = frozen.fingerprint != f"{config.name}@{config.revision}"
    name = Path(config.name).name if local else config.name
    revision = None if local else config.revision
    return Recogniser(
        config.kind, name, revision, config.dtype, frozen.fingerprint, frozen.parameters, local
    )


def _versions(frozen: Frozen, config_file: Path) -> dict[str, str]:
    found = {
        "espnet_latentasr": espnet_latentasr.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "safetensors": safetensors.__version__,
        "backbone_library": frozen.library,
    }
    trained_with = read_yaml(config_file).get("version")
    try:
        espnet = str(trained_with or version("espnet"))
    except PackageNotFoundError:
        return found
    return found | {"espnet": espnet}


def pack_files(pack: Pack, facts: Facts) -> dict[str, bytes]:
    """All files of a pack by name; the same pack gives the same bytes."""
    texts = {CONFIG: config_text(pack), CARD: card_text(pack, facts), META: meta_text(pack.versions)}
    return {name: text.encode("utf-8") for name, text in texts.items()} | {ADAPTER: pack.adapter}


def write_pack(files: Mapping[str, bytes], folder: Path, zip_file: Path | None = None) -> None:
    """Write the folder and, if named, the zip of the same bytes."""
    write_folder(folder, files)
    if zip_file is not None:
        if zip_file.suffix != ".zip":
            raise ConfigError(f"{zip_file}: ESPnet tells archives by their names; end it in .zip")
        with atomic_path(zip_file) as temporary:
            temporary.write_bytes(zip_bytes(files))
