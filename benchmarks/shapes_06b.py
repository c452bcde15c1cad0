"""The exact Qwen3-ASR-0.6B shapes with random weights and the mini task's kind of tokenizer."""

from __future__ import annotations

import torch
from transformers import Qwen3ASRConfig, Qwen3ASRForConditionalGeneration
from transformers.initialization import no_init_weights

from espnet_latentasr.backbone.mini import build_processor, build_tokenizer
from espnet_latentasr.backbone.qwen3_asr import Qwen3ASRBackbone

TEXT = "turn on the kitchen light and set the heater to seventy five please thank you goodbye now"


def config_06b(tokenizer) -> Qwen3ASRConfig:
    """The published model's sizes; ids of special tokens are the given tokenizer's."""
    ids = tokenizer.convert_tokens_to_ids
    return Qwen3ASRConfig(
        audio_config={
            "model_type": "qwen3_asr_encoder",
            "d_model": 896,
            "encoder_layers": 18,
            "encoder_attention_heads": 14,
            "encoder_ffn_dim": 3584,
            "output_dim": 1024,
            "downsample_hidden_size": 480,
            "num_mel_bins": 128,
            "n_window": 50,
            "n_window_infer": 800,
            "max_position_embeddings": 13,
        },
        text_config={
            "model_type": "qwen3",
            "vocab_size": 151936,
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 65536,
            "tie_word_embeddings": True,
            "rope_theta": 1.0e6,
        },
        audio_token_id=ids("<|audio_pad|>"),
        timestamp_token_id=ids("<timestamp>"),
        pad_token_id=ids("<|im_end|>"),
        eos_token_id=[ids("<|endoftext|>"), ids("<|im_end|>")],
    )


def random_backbone(dtype: torch.dtype, device: str) -> Qwen3ASRBackbone:
    """The model with small random weights (drawn per tensor, in place: seconds, not minutes)."""
    tokenizer = build_tokenizer([TEXT], 300)
    with no_init_weights():
        model = Qwen3ASRForConditionalGeneration(config_06b(tokenizer)).to(dtype)
    model.tie_weights()
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or "ln_post" in name:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
            else:
                parameter.normal_(std=0.02)
    return Qwen3ASRBackbone(model, build_processor(tokenizer, 128), "random").to(device)
