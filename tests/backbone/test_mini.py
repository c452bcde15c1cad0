"""The mini model's tokenizer, processor and sizes against the published Qwen3-ASR's layout."""

from __future__ import annotations

import unicodedata

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import Qwen3ASRForConditionalGeneration

from espnet_latentasr.backbone import mini
from espnet_latentasr.backbone.mini_training import initialize_by_fan_in

# Ids of the published tokenizer relative to its first added token, <|endoftext|> = 151643.
PUBLISHED = {
    "<|endoftext|>": 0,
    "<|im_start|>": 1,
    "<|im_end|>": 2,
    "<|audio_start|>": 26,
    "<|audio_end|>": 27,
    "<non_speech>": 32,
    "<|audio_pad|>": 33,
    "<blank1>": 34,
    "<blank27>": 60,
    "<asr_text>": 61,
    "<timestamp>": 62,
}


@pytest.fixture(scope="module")
def tokenizer():
    return mini.build_tokenizer(["turn on the light", "call ann and jan"] * 2, 280)


@pytest.mark.parametrize("token, offset", PUBLISHED.items())
def test_added_tokens_stand_in_the_published_order(tokenizer, token, offset):
    first = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    assert tokenizer.convert_tokens_to_ids(token) == first + offset
    assert tokenizer(token, add_special_tokens=False).input_ids == [first + offset]


def test_the_vocabulary_ends_with_the_63_added_tokens(tokenizer):
    assert len(mini.ADDED_TOKENS) == len({token for token, _ in mini.ADDED_TOKENS}) == 63
    trained = len(tokenizer) - 63
    assert 256 < trained <= 280
    assert tokenizer.convert_tokens_to_ids("<|endoftext|>") == trained
    assert sorted(tokenizer.get_vocab().values()) == list(range(len(tokenizer)))


def test_only_control_tokens_are_hidden_in_text(tokenizer):
    written = "<|im_start|>a<asr_text>b<|audio_pad|>c<|im_end|><think>d<blank3><non_speech>"
    ids = tokenizer(written, add_special_tokens=False).input_ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == "a<asr_text>bc<think>d<non_speech>"
    assert tokenizer.decode(ids, skip_special_tokens=False) == written


def test_named_tokens(tokenizer):
    assert tokenizer.eos_token == "<|im_end|>" and tokenizer.pad_token == "<|endoftext|>"
    assert tokenizer.audio_token == "<|audio_pad|>"
    assert (tokenizer.audio_bos_token, tokenizer.audio_eos_token) == (
        "<|audio_start|>",
        "<|audio_end|>",
    )


@given(text=st.text(max_size=30))
def test_any_text_survives(tokenizer, text):
    text = unicodedata.normalize("NFC", text)
    if any(token in text for token, _ in mini.ADDED_TOKENS):
        return
    ids = tokenizer(text, add_special_tokens=False).input_ids
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


def test_the_same_texts_give_the_same_tokenizer(tokenizer):
    again = mini.build_tokenizer(["turn on the light", "call ann and jan"] * 2, 280)
    assert again.get_vocab() == tokenizer.get_vocab()
    assert len(tokenizer("turn on the light").input_ids) < len("turn on the light")


def test_configuration(tokenizer):
    config = mini.build_config(tokenizer, mini.MiniSize(64, 1, 2, 8, 32, spare_rows=5))
    rows = config.text_config.vocab_size
    assert rows % 8 == 0 and 5 <= rows - len(tokenizer) < 13
    ids = tokenizer.convert_tokens_to_ids
    assert config.audio_token_id == ids("<|audio_pad|>")
    assert config.eos_token_id == [ids("<|endoftext|>"), ids("<|im_end|>")]
    assert config.pad_token_id == ids("<|im_end|>")
    assert config.text_config.pad_token_id == ids("<|endoftext|>")
    assert config.text_config.tie_word_embeddings
    assert config.audio_config.output_dim == config.text_config.hidden_size == 64
    assert (config.audio_config.encoder_layers, config.text_config.num_hidden_layers) == (1, 2)
    assert config.audio_config.n_window == 50


def test_the_chat_template_ignores_user_text_and_takes_all_audio(tokenizer):
    processor = mini.build_processor(tokenizer, 32)
    conversation = [
        {"role": "system", "content": [{"type": "text", "text": "hot "}]},
        {"role": "system", "content": "words"},
        {
            "role": "user",
            "content": [
                {"type": "audio", "audio": "a"},
                {"type": "text", "text": "ignored"},
                {"type": "audio", "audio": "b"},
            ],
        },
        {"role": "assistant", "content": "language English<asr_text>hi"},
    ]
    rendered = processor.apply_chat_template(conversation, tokenize=False)
    audio = "<|audio_start|><|audio_pad|><|audio_end|>"
    assert rendered == (
        f"<|im_start|>system\nhot words<|im_end|>\n<|im_start|>user\n{audio}{audio}<|im_end|>\n"
        "<|im_start|>assistant\nlanguage English<asr_text>hi<|im_end|>\n"
    )
    rendered = processor.apply_chat_template(
        conversation[2:3], tokenize=False, add_generation_prompt=True
    )
    assert rendered == (
        f"<|im_start|>system\n<|im_end|>\n<|im_start|>user\n{audio}{audio}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_weights_by_fan_in(tokenizer):
    model = Qwen3ASRForConditionalGeneration(
        mini.build_config(tokenizer, mini.MiniSize(64, 1, 1, 8, 32))
    )
    norm_before = model.model.language_model.norm.weight.clone()
    torch.manual_seed(3)
    initialize_by_fan_in(model)
    layer = model.model.language_model.layers[0]
    for weight, std in (
        (layer.self_attn.q_proj.weight, 64**-0.5),
        (layer.mlp.down_proj.weight, 0.5 * 192**-0.5),
        (model.lm_head.weight, 64**-0.5),
        (model.model.audio_tower.layers[0].fc2.weight, 0.5 * 256**-0.5),
    ):
        assert weight.std().item() == pytest.approx(std, rel=0.08)
    assert model.lm_head.weight is model.get_input_embeddings().weight
    assert torch.equal(model.model.language_model.norm.weight, norm_before)
