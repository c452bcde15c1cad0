"""Backbone kinds by name; knows which file holds which kind and nothing else."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from espnet_latentasr.errors import ConfigError

if TYPE_CHECKING:
    from espnet_latentasr.backbone.base import Backbone, TextCodec
    from espnet_latentasr.config import BackboneConfig

KINDS = ("qwen3_asr",)


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
    from espnet_latentasr.backbone.qwen3_asr import load_qwen3_asr

    return load_qwen3_asr(config.name, config.revision, config.dtype, device)


def load_tokenizer(config: BackboneConfig) -> TextCodec:
    """Load only the recogniser's text side."""
    _check(config.kind)
    from espnet_latentasr.backbone.qwen3_asr import load_qwen3_asr_text

    return load_qwen3_asr_text(config.name, config.revision)
