"""LoRA on the text decoder; the only file that knows peft."""

from __future__ import annotations

from torch import nn

from espnet_latentasr.adaptation.supervised import DecoderMethod
from espnet_latentasr.backbone.base import Backbone
from espnet_latentasr.errors import ConfigError

ALL = "all"


class LoraMethod(DecoderMethod):
    """Low-rank updates beside the decoder's frozen linear maps, which are shared, not copied."""

    def build_decoder(self, backbone: Backbone) -> tuple[nn.Module, None]:
        try:
            from peft import LoraConfig, inject_adapter_in_model
        except ImportError:
            raise ConfigError("adaptation: lora needs peft: pip install peft") from None
        settings = self.config.lora
        decoder = backbone.trainable_decoder(share=True)
        linear = [name for name, m in decoder.named_modules() if isinstance(m, nn.Linear)]
        found = {name.rsplit(".", 1)[-1] for name in linear}
        wanted = sorted(found) if settings.modules == ALL else settings.modules.split()
        if missing := sorted(set(wanted) - found):
            raise ConfigError(
                f"lora_conf.modules: the decoder has no linear map {missing}; it has {sorted(found)}"
            )
        lora = LoraConfig(
            r=settings.rank,
            lora_alpha=settings.alpha,
            lora_dropout=settings.dropout,
            target_modules=wanted,
            bias="none",
        )
        return inject_adapter_in_model(lora, decoder), None
