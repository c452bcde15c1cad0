"""Qwen3-ASR against its own library: prompts, encodings, texts and positions are the library's."""

from __future__ import annotations

import copy
import json
import shutil

import numpy as np
import pytest
import torch
from transformers import AutoProcessor, Qwen3ASRForConditionalGeneration

from espnet_latentasr.backbone import mini
from espnet_latentasr.backbone.qwen3_asr import (
    Qwen3ASRBackbone,
    load_qwen3_asr,
    load_qwen3_asr_text,
)
from espnet_latentasr.backbone.qwen3_asr_prompt import prompt_text
from espnet_latentasr.backbone.registry import load_backbone, load_tokenizer
from espnet_latentasr.config import BackboneConfig, PromptConfig
from espnet_latentasr.decode.search import greedy
from espnet_latentasr.errors import ConfigError
from espnet_latentasr.latent.adapter import LatentAdapter
from espnet_latentasr.latent.halting import always
from espnet_latentasr.latent.loop import think
from espnet_latentasr.latent.value_head import ValueHead

CAP = 24


def request(backbone, clip: np.ndarray, language: str = "English", context: str | None = None):
    """The library's own inputs for one clip."""
    return backbone.processor.apply_transcription_request(
        audio=[clip], language=language, prompt=context
    )


def generated(backbone, inputs, cap: int) -> list[int]:
    """The library's own greedy continuation of one clip, end token included."""
    out = backbone.model.generate(
        **inputs,
        max_new_tokens=cap,
        do_sample=False,
        eos_token_id=list(backbone.end_ids),
        pad_token_id=backbone.end_ids[-1],
    )
    return out[0, inputs["input_ids"].shape[1] :].tolist()


# The prompt


@pytest.mark.parametrize("language", ["English", "Cantonese"])
@pytest.mark.parametrize("context", ["", "Ann, Jan\nkitchen"])
def test_the_prompt_has_the_processors_ids(tiny_backbone, clips, language, context):
    for clip in clips:
        prompt = tiny_backbone.text.prompt(language, PromptConfig(context=context))
        (audio,) = tiny_backbone.encode([clip]).audio
        pad = tiny_backbone.model.config.audio_token_id
        ids = [*prompt.before, *[pad] * len(audio), *prompt.after]
        inputs = request(tiny_backbone, clip, language, context or None)
        assert inputs["input_ids"][0].tolist() == ids


def test_the_prompts_bytes():
    text = prompt_text("German", context="CTX", user_text="USER")
    assert text.before == "<|im_start|>system\nCTX<|im_end|>\n<|im_start|>user\n<|audio_start|>"
    assert text.after == (
        "<|audio_end|>USER<|im_end|>\n<|im_start|>assistant\nlanguage German<asr_text>"
    )


def test_prompt_tokens_survive_the_tokenizer(tiny_backbone, tiny_prompt):
    tokens = tiny_backbone.text.tokens(tiny_prompt.before)
    assert tokens[0] == "<|im_start|>" and tokens[-1] == "<|audio_start|>"
    tokens = tiny_backbone.text.tokens(tiny_prompt.after)
    assert tokens[0] == "<|audio_end|>" and tokens[-1] == "<asr_text>"


# Encoding and decoding


def test_an_encoding_is_the_librarys(tiny_backbone, clips):
    counts = []
    for clip in clips:
        inputs = request(tiny_backbone, clip)
        expected = tiny_backbone.model.get_audio_features(
            inputs["input_features"], inputs["input_features_mask"], return_dict=True
        ).pooler_output
        (audio,) = tiny_backbone.encode([clip]).audio
        torch.testing.assert_close(audio, expected, atol=1e-6, rtol=0)
        counts.append(len(audio))
    assert counts == [13, 7, 20, 7, 10, 17, 7, 28]


def test_greedy_text_is_that_of_generate(tiny_backbone, tiny_prompt, clips):
    ended = 0
    for clip in clips:
        expected = generated(tiny_backbone, request(tiny_backbone, clip), CAP)
        state = tiny_backbone.prefill(tiny_backbone.encode([clip]), [tiny_prompt])
        (found,) = greedy(tiny_backbone, state, [CAP])
        end = [] if found.capped else [expected[-1]]
        assert [*found.tokens, *end] == expected
        assert found.capped == (expected[-1] not in tiny_backbone.end_ids)
        ended += not found.capped
    assert 0 < ended < len(clips), "both ends of a text must occur"


@pytest.mark.parametrize("advance", [True, False])
def test_positions_of_latents_and_transcript(tiny_backbone, tiny_prompt, clips, advance):
    """hold: every latent at P - 1, transcript from P; advance: one after the other."""
    calls = []

    def record(module, args, kwargs):
        calls.append(kwargs["position_ids"].clone())

    torch.manual_seed(0)
    adapter, head = LatentAdapter(tiny_backbone.anchor("unused"), 3), ValueHead(64)
    handle = tiny_backbone.decoder.register_forward_pre_hook(record, with_kwargs=True)
    try:
        with torch.no_grad():
            probed = tiny_backbone.prefill(
                tiny_backbone.encode(clips[:2]), [tiny_prompt] * 2, adapter.probes(adapter.steps), advance
            )
            (*_, state), _ = think(tiny_backbone, probed, adapter, head, always, advance=advance)
        greedy(tiny_backbone, state, [3, 3])
    finally:
        handle.remove()
    start = probed.trail_position[:, :1]
    around = len(tiny_prompt.before) + len(tiny_prompt.after)
    assert start[:, 0].tolist() == [around + 13, around + 7]
    prefill, *loop = calls
    shift = torch.tensor([[0, 1, 2]]) if advance else torch.tensor([[-1, -1, -1]])
    assert torch.equal(prefill[:, -3:], start + shift)
    assert torch.equal(prefill[:, -4:-3], start - 1)
    expected = [[0, 1], [1, 2], [2]] if advance else [[-1, -1], [-1, -1], [-1]]
    expected += [[3], [4]] if advance else [[0], [1]]
    assert len(loop) == len(expected)
    for found, offsets in zip(loop, expected, strict=True):
        assert torch.equal(found, start + torch.tensor([offsets]))


def test_left_padding_costs_no_position(tiny_backbone, tiny_prompt, clips):
    calls = []
    handle = tiny_backbone.decoder.register_forward_pre_hook(
        lambda module, args, kwargs: calls.append(kwargs), with_kwargs=True
    )
    try:
        tiny_backbone.prefill(tiny_backbone.encode(clips[:2]), [tiny_prompt] * 2)
    finally:
        handle.remove()
    (call,) = calls
    for row in range(2):
        seen = call["attention_mask"][row].bool()
        assert call["position_ids"][row][seen].tolist() == list(range(int(seen.sum())))
    assert call["attention_mask"][1].tolist() == sorted(call["attention_mask"][1].tolist())


# Text


def test_detokenizing_undoes_tokenizing_and_hides_control_tokens(tiny_backbone):
    text = tiny_backbone.text
    ids = text.tokenize("Turn ön the light, 你好")
    assert text.detokenize([*ids, text.end_id]) == "Turn ön the light, 你好"
    assert text.detokenize(text.tokenize("ha " * 40)) == " ".join(["ha"] * 40), "repetition kept"
    assert text.detokenize(text.tokenize(" turn\n\ton  the ")) == "turn on the", "one line"


def test_end_tokens(tiny_backbone):
    text = tiny_backbone.text
    assert text.tokens(text.end_ids) == ["<|endoftext|>", "<|im_end|>"]
    assert text.tokens([text.end_id]) == ["<|im_end|>"]
    assert tiny_backbone.end_ids == text.end_ids
    vocabulary = text.vocabulary()
    assert [vocabulary[token] for token in text.end_ids] == ["<|endoftext|>", "<|im_end|>"]
    assert text.tokens([len(vocabulary), text.end_id]) == [f"<row{len(vocabulary)}>", "<|im_end|>"]
    assert text.id_of("<|im_end|>") == text.end_id and text.id_of("no such token") is None


# The anchor


def test_anchor_by_token_row_and_unused(tiny_backbone):
    table = tiny_backbone.embedding_table
    unused = len(tiny_backbone.text.vocabulary())
    assert tiny_backbone.first_unused_row == unused < len(table)
    assert torch.equal(tiny_backbone.anchor("unused"), table[unused])
    assert torch.equal(tiny_backbone.anchor(7), table[7])
    token = tiny_backbone.text.id_of("<asr_text>")
    assert torch.equal(tiny_backbone.anchor("<asr_text>"), table[token])
    assert tiny_backbone.anchor(7).data_ptr() != table[7].data_ptr(), "the table must not alias"


@pytest.mark.parametrize("token", ["<no_such_token>", -1, 10**6])
def test_an_anchor_that_does_not_exist_is_refused(tiny_backbone, token):
    with pytest.raises(ConfigError, match="anchor_token"):
        tiny_backbone.anchor(token)


def test_a_table_without_unused_rows_is_refused(tiny_backbone):
    full = copy.copy(tiny_backbone)
    full.embedding_table = tiny_backbone.embedding_table[: len(tiny_backbone.text.vocabulary())]
    full.__dict__.pop("first_unused_row", None)
    with pytest.raises(ConfigError, match="no unused row"):
        full.anchor("unused")


# Loading


def test_save_and_load_offline(tiny_backbone, tiny_backbone_dir, tiny_prompt, clips):
    loaded = load_backbone(BackboneConfig(name=str(tiny_backbone_dir)))
    state = tiny_backbone.prefill(tiny_backbone.encode(clips), [tiny_prompt] * len(clips))
    again = loaded.prefill(loaded.encode(clips), [tiny_prompt] * len(clips))
    assert torch.equal(state.hidden, again.hidden)
    processor = AutoProcessor.from_pretrained(tiny_backbone_dir)
    first, second = (
        p.apply_transcription_request(audio=clips, language=["English"] * len(clips))
        for p in (tiny_backbone.processor, processor)
    )
    assert set(first) == set(second)
    assert all(torch.equal(first[key], second[key]) for key in first)
    text = load_tokenizer(BackboneConfig(name=str(tiny_backbone_dir)))
    assert text.vocabulary() == tiny_backbone.text.vocabulary()
    assert text.prompt("English", PromptConfig()) == tiny_prompt


def test_a_loaded_recogniser_is_frozen_and_in_eval_mode(tiny_backbone_dir):
    loaded = load_qwen3_asr(str(tiny_backbone_dir))
    assert not any(p.requires_grad for p in loaded.model.parameters())
    assert not any(module.training for module in loaded.model.modules())


def test_the_fingerprint_follows_weights_and_settings(tiny_backbone_dir, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(tiny_backbone_dir, folder)
    original = load_qwen3_asr(str(tiny_backbone_dir)).fingerprint
    assert load_qwen3_asr(str(folder)).fingerprint == original
    weights = folder / "model.safetensors"
    damaged = bytearray(weights.read_bytes())
    damaged[-1] ^= 1
    weights.write_bytes(damaged)
    changed = load_qwen3_asr(str(folder)).fingerprint
    assert changed != original
    settings = json.loads((folder / "config.json").read_text())
    settings["text_config"]["rms_norm_eps"] = 1e-5
    (folder / "config.json").write_text(json.dumps(settings))
    assert load_qwen3_asr(str(folder)).fingerprint not in {original, changed}


@pytest.mark.parametrize("dtype", ["float16", "half", "float64"])
def test_other_types_are_refused(tiny_backbone_dir, dtype):
    with pytest.raises(ConfigError, match=f"'{dtype}' is not float32 or bfloat16"):
        load_qwen3_asr(str(tiny_backbone_dir), dtype=dtype)


def test_a_hub_id_needs_a_revision():
    with pytest.raises(ConfigError, match="revision"):
        load_qwen3_asr("Qwen/Qwen3-ASR-0.6B-hf")
    with pytest.raises(ConfigError, match="revision"):
        load_qwen3_asr_text("Qwen/Qwen3-ASR-0.6B-hf")


def test_folders_that_hold_no_qwen3_asr_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="no config.json"):
        load_qwen3_asr(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "whisper"}')
    with pytest.raises(ConfigError, match="model_type 'whisper'"):
        load_qwen3_asr(str(tmp_path))


def test_an_unknown_kind_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'qwen3_asr'"):
        load_backbone(BackboneConfig(kind="qwen_asr"))
    with pytest.raises(ConfigError, match="did you mean 'qwen3_asr'"):
        load_tokenizer(BackboneConfig(kind="qwen_asr"))


def test_mismatched_widths_are_refused(tiny_backbone):
    size = mini.MiniSize(32, 1, 1, 4, 32)
    config = mini.build_config(tiny_backbone.processor.tokenizer, size)
    config.audio_config.output_dim = 64
    model = Qwen3ASRForConditionalGeneration(config)
    with pytest.raises(ConfigError, match="output_dim 64 differs from text hidden_size 32"):
        Qwen3ASRBackbone(model, tiny_backbone.processor, "x")


def test_an_untied_head_is_refused(tiny_backbone):
    size = mini.MiniSize(32, 1, 1, 4, 32)
    config = mini.build_config(tiny_backbone.processor.tokenizer, size)
    model = Qwen3ASRForConditionalGeneration(config)
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    with pytest.raises(ConfigError, match="not tied"):
        Qwen3ASRBackbone(model, tiny_backbone.processor, "x")


# bfloat16


def test_bfloat16_backbone_and_float32_adapter(tiny_backbone_dir, tiny_prompt, clips):
    backbone = load_qwen3_asr(str(tiny_backbone_dir), dtype="bfloat16")
    assert {p.dtype for p in backbone.model.parameters()} == {torch.bfloat16}
    torch.manual_seed(0)
    adapter, head = LatentAdapter(backbone.anchor("unused"), 2), ValueHead(backbone.width)
    torch.nn.init.normal_(head.linear.weight)
    with torch.no_grad():
        probed = backbone.prefill(
            backbone.encode(clips[:3]), [tiny_prompt] * 3, adapter.probes(adapter.steps), True
        )
    assert probed.hidden.dtype == torch.bfloat16
    (*_, state), thoughts = think(backbone, probed, adapter, head, always, advance=True)
    for part in (thoughts.states, thoughts.values, thoughts.updates, adapter.anchor):
        assert part.dtype == torch.float32
    logits = backbone.logits(state.hidden)
    assert logits.dtype == torch.float32
    (logits.logsumexp(-1).sum() + thoughts.values.sum()).backward()
    for parameter in [*adapter.parameters(), *head.parameters()]:
        assert parameter.dtype == parameter.grad.dtype == torch.float32
        assert torch.isfinite(parameter.grad).all()
    assert adapter.delta_projection.weight.grad.abs().sum() > 0
    exact = load_qwen3_asr(str(tiny_backbone_dir))
    reference = exact.prefill(exact.encode(clips[:3]), [tiny_prompt] * 3)
    difference = (reference.hidden - probed.trail[:, 0].float()).abs()
    assert difference.mean() < 0.05, "bfloat16 should only round"
