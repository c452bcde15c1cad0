"""Backbone kinds by name; knows which file holds which kind and nothing else."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING

from espnet_latentasr.errors import ConfigError

if TYPE_CHECKING:
    from espnet_latentasr.backbone.base import Backbone, TextCodec
    from espnet_latentasr.config import BackboneConfig

KINDS = ("qwen3_asr", "whisper")


def _check(kind: str) -> None:
    if kind not in KINDS:
        near = difflib.get_close_matches(kind, KINDS, 1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise ConfigError(
            f"backbone_conf.kind: unknown '{kind}', known: {', '.join(KINDS)}{hint}"
        )


def load_backbone(config: BackboneConfig, device: str = "cpu") -> Backbone:
    """Load the frozen recogniser a configuration names.

    Raises:
        ConfigError: unknown kind (with the nearest known one), or what the kind's loader refuses.
    """
    _check(config.kind)
    if config.kind == "whisper":
        from espnet_latentasr.backbone.whisper import load_whisper as load
    else:
        from espnet_latentasr.backbone.qwen3_asr import load_qwen3_asr as load

    return load(config.name, config.revision, config.dtype, device)


def load_tokenizer(config: BackboneConfig) -> TextCodec:
    """Load only the recogniser's text side."""
    _check(config.kind)
    if config.kind == "whisper":
        from espnet_latentasr.backbone.whisper_text import load_whisper_text as load
    else:
        from espnet_latentasr.backbone.qwen3_asr import load_qwen3_asr_text as load

    return load(config.name, config.revision)


def kind_of_folder(name: str) -> str | None:
    """The kind a local folder says it is (its config.json), None for a hub id or an unknown one."""
    from espnet_latentasr.backbone.hub import model_type

    folder = Path(name)
    found = model_type(folder) if (folder / "config.json").is_file() else None
    return found if found in KINDS else None


def library_version() -> str:
    """The model library's version, for provenance."""
    from transformers import __version__ as version

    return f"transformers {version}"
