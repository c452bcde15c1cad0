"""A small Qwen3-ASR model: native classes, small sizes, own tokenizer; knows nothing of training.

The tokenizer is a byte-level BPE trained on the task's words, followed by every added token of the
published Qwen3-ASR tokenizer in the published order, so that prompts, parsing and stop conditions are
those of the real model.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (
    AddedToken,
    Qwen2Tokenizer,
    Qwen3ASRConfig,
    Qwen3ASRFeatureExtractor,
    Qwen3ASRProcessor,
)
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

_CONTROL = (
    "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> "
    "<|box_end|> <|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> "
    "<|image_pad|> <|video_pad|>"
).split()
_VISIBLE = (
    "<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> "
    "<|repo_name|> <|file_sep|> <tool_response> </tool_response> <think> </think>"
).split()
_AUDIO = (
    "<|audio_start|> <|audio_end|> <tts_pad> <tts_text_bos> <tts_text_eod> <tts_text_bos_single>"
).split()
# Token and whether decoding with skip_special_tokens hides it, in the published order.
ADDED_TOKENS: tuple[tuple[str, bool], ...] = (
    *((token, True) for token in _CONTROL),
    *((token, False) for token in _VISIBLE),
    *((token, True) for token in _AUDIO),
    ("<non_speech>", False),
    ("<|audio_pad|>", True),
    *((f"<blank{number}>", True) for number in range(1, 28)),
    ("<asr_text>", False),
    ("<timestamp>", False),
)

CHAT_TEMPLATE = (
    "{%- macro written(message) -%}"
    "{%- if message.content is string -%}{{- message.content -}}"
    "{%- else -%}{%- for part in message.content if part.type == 'text' -%}{{- part.text -}}"
    "{%- endfor -%}{%- endif -%}"
    "{%- endmacro -%}"
    "{{- '<|im_start|>system\\n' -}}"
    "{%- for message in messages if message.role == 'system' -%}{{- written(message) -}}"
    "{%- endfor -%}"
    "{{- '<|im_end|>\\n<|im_start|>user\\n' -}}"
    "{%- for message in messages if message.role == 'user' and message.content is not string -%}"
    "{%- for part in message.content if part.type == 'audio' -%}"
    "{{- '<|audio_start|><|audio_pad|><|audio_end|>' -}}{%- endfor -%}{%- endfor -%}"
    "{{- '<|im_end|>\\n' -}}"
    "{%- for message in messages if message.role == 'assistant' -%}"
    "{{- '<|im_start|>assistant\\n' -}}{{- written(message) -}}{{- '<|im_end|>\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)


@dataclass(frozen=True)
class MiniSize:
    """Widths and depths; the decoder width is also the encoder's (heads of 32 channels)."""

    width: int = 128
    encoder_layers: int = 3
    decoder_layers: int = 3
    conv_channels: int = 24
    mel_bins: int = 64
    spare_rows: int = 8


def tokenizer_corpus(texts: Iterable[str]) -> list[str]:
    """What the BPE is trained on: each word once, as inside and at the start of a sentence.

    Words count equally, so that rare ones become whole tokens too; prompt words are included.
    """
    words = sorted({word for text in texts for word in text.split()})
    prompt = ["language English", "language None", "system user assistant"] * 50
    return [f" {word}" for word in words] * 5 + words + prompt


def build_tokenizer(texts: Iterable[str], vocab_size: int) -> Qwen2Tokenizer:
    """Train the byte-level BPE on ``texts`` and append Qwen3-ASR's added tokens."""
    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=sorted(alphabet), show_progress=False
    )
    bpe.train_from_iterator(texts, trainer)
    trained = json.loads(bpe.to_str())["model"]
    first = len(trained["vocab"])
    return Qwen2Tokenizer(
        vocab=trained["vocab"],
        merges=[tuple(merge) for merge in trained["merges"]],
        unk_token=None,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        added_tokens_decoder={
            first + index: AddedToken(token, special=special, normalized=False)
            for index, (token, special) in enumerate(ADDED_TOKENS)
        },
        extra_special_tokens={
            "audio_token": "<|audio_pad|>",
            "audio_bos_token": "<|audio_start|>",
            "audio_eos_token": "<|audio_end|>",
        },
        model_max_length=131072,
    )


def build_processor(tokenizer: Qwen2Tokenizer, mel_bins: int) -> Qwen3ASRProcessor:
    """Wrap tokenizer and log-mel extractor the way the published processor does."""
    return Qwen3ASRProcessor(
        feature_extractor=Qwen3ASRFeatureExtractor(feature_size=mel_bins),
        tokenizer=tokenizer,
        chat_template=CHAT_TEMPLATE,
    )


def build_config(tokenizer: Qwen2Tokenizer, size: MiniSize) -> Qwen3ASRConfig:
    """The native configuration; a few embedding rows stay unused, as in the published model."""
    rows = len(tokenizer) + size.spare_rows
    rows += -rows % 8
    ids = tokenizer.convert_tokens_to_ids
    heads = max(1, size.width // 32)
    return Qwen3ASRConfig(
        audio_config={
            "model_type": "qwen3_asr_encoder",
            "d_model": size.width,
            "encoder_layers": size.encoder_layers,
            "encoder_attention_heads": heads,
            "encoder_ffn_dim": 4 * size.width,
            "output_dim": size.width,
            "downsample_hidden_size": size.conv_channels,
            "num_mel_bins": size.mel_bins,
            "n_window": 50,
            "n_window_infer": 800,
            "max_position_embeddings": 13,
        },
        text_config={
            "model_type": "qwen3",
            "vocab_size": rows,
            "hidden_size": size.width,
            "intermediate_size": 3 * size.width,
            "num_hidden_layers": size.decoder_layers,
            "num_attention_heads": heads,
            "num_key_value_heads": max(1, heads // 2),
            "head_dim": 32,
            "max_position_embeddings": 4096,
            "tie_word_embeddings": True,
            "rope_theta": 1.0e4,
            "pad_token_id": ids("<|endoftext|>"),
            "eos_token_id": ids("<|im_end|>"),
        },
        audio_token_id=ids("<|audio_pad|>"),
        timestamp_token_id=ids("<timestamp>"),
        pad_token_id=ids("<|im_end|>"),
        eos_token_id=[ids("<|endoftext|>"), ids("<|im_end|>")],
    )
