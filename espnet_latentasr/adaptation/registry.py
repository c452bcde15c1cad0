"""Adaptations by name; the methods are imported when they are asked for."""

from __future__ import annotations

from espnet_latentasr.adaptation.base import Method
from espnet_latentasr.backbone.base import Backbone
from espnet_latentasr.config import ModelConfig
from espnet_latentasr.errors import ConfigError


def build_method(config: ModelConfig, backbone: Backbone) -> Method:
    """The trainable method of a configuration, at its initial values.

    Raises:
        ConfigError: ``none`` has nothing to train; or what the method refuses.
    """
    if config.adaptation == "latent":
        from espnet_latentasr.adaptation.latent import LatentMethod

        return LatentMethod(config, backbone)
    if config.adaptation == "lora":
        from espnet_latentasr.adaptation.lora import LoraMethod

        return LoraMethod(config, backbone)
    if config.adaptation == "full":
        from espnet_latentasr.adaptation.full import FullMethod

        return FullMethod(config, backbone)
    if config.adaptation == "prompt":
        from espnet_latentasr.adaptation.prompt import PromptTuningMethod

        return PromptTuningMethod(config, backbone)
    raise ConfigError(
        "adaptation: none is the frozen recogniser: there is nothing to train; decode it with "
        "conf/decode_frozen.yaml"
    )
