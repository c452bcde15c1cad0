"""Full fine-tuning of the text decoder with its tied token embeddings.

The audio tower stays frozen: its states are cached once for all methods.
"""

from __future__ import annotations

from torch import nn

from espnet_latentasr.adaptation.supervised import DecoderMethod
from espnet_latentasr.backbone.base import Backbone


class FullMethod(DecoderMethod):
    """Every parameter of a copy of the decoder, in float32, and the tied embedding table."""

    def build_decoder(self, backbone: Backbone) -> tuple[nn.Module, nn.Parameter]:
        decoder = backbone.trainable_decoder(share=False).float().requires_grad_(True)
        return decoder, nn.Parameter(backbone.embedding_table.detach().float().clone())
