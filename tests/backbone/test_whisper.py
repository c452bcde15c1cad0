"""Whisper against its own library: prompts, encodings, texts, suppression and positions are its own."""

from __future__ import annotations

import copy
import json
import shutil

import numpy as np
import pytest
import soundfile
import torch
from tiny_whisper import POSITIONS, WINDOW, build_parts, build_whisper, save_whisper

from espnet_latentasr.adaptation.base import TrainBatch
from espnet_latentasr.adaptation.latent import LatentMethod
from espnet_latentasr.adaptation.registry import build_method
from espnet_latentasr.backbone.base import Encoded, Prompt
from espnet_latentasr.backbone.registry import kind_of_folder, load_backbone, load_tokenizer
from espnet_latentasr.backbone.teacher_forcing import teacher_force
from espnet_latentasr.backbone.whisper import WhisperBackbone, load_whisper
from espnet_latentasr.backbone.whisper_cache import Readers, attend
from espnet_latentasr.backbone.whisper_text import WhisperText
from espnet_latentasr.config import BackboneConfig, DecodeConfig, PromptConfig, build, model_config
from espnet_latentasr.data.kaldi_dir import write_kaldi_table
from espnet_latentasr.decode.baseline import baseline_pass
from espnet_latentasr.decode.beam import beam_search
from espnet_latentasr.decode.internal_lm import silent_state
from espnet_latentasr.decode.job import Rule, run_job
from espnet_latentasr.decode.loading import Loaded
from espnet_latentasr.decode.nbest import sequence_scores
from espnet_latentasr.decode.recogniser import Clips, Recogniser
from espnet_latentasr.decode.sampling import SamplingRule, sample
from espnet_latentasr.decode.search import greedy
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.latent.losses import token_scores

CAP = 20
FORCED = PromptConfig()


@pytest.fixture(scope="module")
def multilingual():
    return build_whisper(multilingual=True)


@pytest.fixture(scope="module")
def plain_multilingual():
    return build_parts(multilingual=True)[0].eval()


def generated(model, backbone, clips, **options) -> list[list[int]]:
    """The library's greedy texts of a batch, without end token and padding."""
    features = [
        backbone.extractor(clip, sampling_rate=16000, return_tensors="pt").input_features
        for clip in clips
    ]
    rows = model.generate(torch.cat(features), do_sample=False, num_beams=1, **options).tolist()
    end = backbone.text.end_id
    return [row[: row.index(end)] if end in row else row for row in rows]


def found_texts(backbone, clips, prompt, cap=CAP) -> list[list[int]]:
    state = backbone.prefill(backbone.encode(clips), [prompt] * len(clips))
    return [list(h.tokens) for h in greedy(backbone, state, [cap] * len(clips))]


def everyone(batch: int, length: int = 1) -> torch.Tensor:
    return torch.ones(batch, length, dtype=torch.bool)


# The prompt


def test_prompts_have_the_librarys_tokens(tiny_whisper, multilingual):
    alone = tiny_whisper.text.prompt("en", FORCED)
    assert alone.before == ()
    assert tiny_whisper.text.tokens(alone.after) == ["<|startoftranscript|>", "<|notimestamps|>"]
    for language, token in (("German", "de"), ("zh", "zh"), ("fil", "tl")):
        for config, training in ((FORCED, False), (PromptConfig(language="auto"), True)):
            ids = multilingual.text.prompt(language, config, training=training).after
            names = ["<|startoftranscript|>", f"<|{token}|>", "<|transcribe|>", "<|notimestamps|>"]
            assert multilingual.text.tokens(ids) == names
    auto = multilingual.text.prompt("de", PromptConfig(language="auto"))
    assert multilingual.text.tokens(auto.after) == ["<|startoftranscript|>"]


def test_context_is_what_whisper_calls_the_previous_text(tiny_whisper):
    expected = tiny_whisper.text._tokenizer.get_prompt_ids("call ann").tolist()
    ids = tiny_whisper.text.prompt("en", PromptConfig(context=" call ann ")).after
    assert list(ids) == [*expected, *tiny_whisper.text.prompt("en", FORCED).after]
    assert tiny_whisper.text.prompt("en", PromptConfig(context=" ")).after == ids[-2:]


@pytest.mark.parametrize(
    "keys, said",
    [
        ({"user_text": "Transcribe."}, "prompt_conf.user_text has no place in .*kind: whisper"),
        ({"language": "auto"}, "language: auto contradicts backbone_conf.kind: whisper with an English"),
        ({"context": "call ann " * 20}, "context: .* at most 31 expected"),
        ({"context": "a <|transcribe|>"}, "context: .* holds control tokens"),
    ],
)
def test_keys_without_a_place_are_refused(tiny_whisper, keys, said):
    with pytest.raises(ConfigError, match=said):
        tiny_whisper.text.prompt("en", PromptConfig(**keys))


def test_languages_it_cannot_be_told_are_refused(tiny_whisper, multilingual):
    with pytest.raises(DataError, match=r"'de' \(German\): this Whisper is English-only"):
        tiny_whisper.text.prompt("de", FORCED)
    for language in ("fr", "zh-en"):
        with pytest.raises(DataError, match=f"language '{language}'.*none of this Whisper's 4"):
            multilingual.text.prompt(language, FORCED)


def test_outdated_settings_are_refused(multilingual):
    _, _, text = build_parts(multilingual=True)
    settings = copy.deepcopy(build_parts(multilingual=True)[0].generation_config)
    del settings.lang_to_id
    with pytest.raises(ConfigError, match="no lang_to_id: an outdated Whisper folder"):
        WhisperText(text._tokenizer, settings, multilingual.model.config)


# Text


def test_transcripts_begin_with_a_blank_and_come_back(tiny_whisper):
    text = tiny_whisper.text
    ids = text.target("turn on  the light")
    assert ids[-1] == text.end_id and text.end_ids == (text.end_id,)
    assert text.tokens(ids[:1])[0].startswith("Ġ")
    assert text.detokenize(ids) == "turn on the light"
    assert text.target(" call ann ") == text.target("call ann")
    start = text.vocabulary().index("<|0.00|>")
    assert text.detokenize([start, *ids[:-1], start + 7]) == "turn on the light", "timestamps are hidden"


def test_vocabulary_names_timestamps_that_the_tokenizer_does_not_list(tiny_whisper):
    text, table = tiny_whisper.text, tiny_whisper.embedding_table
    names = text.vocabulary()
    assert names[text.end_id] == "<|endoftext|>" and names[-1] == f"<|{WINDOW}.00|>"
    last = names.index("<|notimestamps|>")
    assert names[last + 1] == "<|0.00|>" and names[last + 2] == "<|0.02|>"
    assert len(names) == len(set(names)) < len(table)
    assert text.tokens([last + 1, len(names)]) == ["<|0.00|>", f"<row{len(names)}>"]
    assert tiny_whisper.first_unused_row == len(names)
    assert torch.equal(tiny_whisper.anchor("<|startoflm|>"), table[names.index("<|startoflm|>")])
    full = copy.copy(tiny_whisper)
    full.__dict__.pop("first_unused_row", None)
    full.embedding_table = table[: len(names)]
    with pytest.raises(ConfigError, match="no unused row.*name a token"):
        full.anchor("unused")


# Encoding and decoding


def test_an_encoding_is_the_librarys(tiny_whisper, plain_whisper, clips):
    for clip, audio in zip(clips, tiny_whisper.encode(clips).audio):
        features = tiny_whisper.extractor(clip, sampling_rate=16000, return_tensors="pt").input_features
        expected = plain_whisper.model.encoder(features).last_hidden_state[0]
        torch.testing.assert_close(audio, expected, atol=1e-5, rtol=0)


def test_greedy_text_is_that_of_generate(tiny_whisper, plain_whisper, clips):
    """One clip at a time and as one batch whose texts end at different times."""
    prompt = tiny_whisper.text.prompt("en", FORCED)
    together = generated(plain_whisper, tiny_whisper, clips, max_new_tokens=CAP)
    assert found_texts(tiny_whisper, clips, prompt) == together
    for clip, expected in zip(clips, together):
        assert found_texts(tiny_whisper, [clip], prompt) == [expected]
        assert generated(plain_whisper, tiny_whisper, [clip], max_new_tokens=CAP) == [expected]
    lengths = {len(text) for text in together}
    assert CAP in lengths and len(lengths) > 2 and len(set(map(tuple, together))) > 4


@pytest.mark.parametrize("language", ["de", "zh"])
def test_greedy_text_in_a_language_is_that_of_generate(
    multilingual, plain_multilingual, clips, language
):
    prompt = multilingual.text.prompt(language, FORCED)
    options = {"language": language, "task": "transcribe", "max_new_tokens": CAP}
    expected = generated(plain_multilingual, multilingual, clips, **options)
    assert found_texts(multilingual, clips, prompt) == expected


def test_a_context_gives_the_text_of_generate(tiny_whisper, plain_whisper, clips):
    context = "seven five nine"
    ids = tiny_whisper.text._tokenizer.get_prompt_ids(context, return_tensors="pt")
    prompt = tiny_whisper.text.prompt("en", PromptConfig(context=context))
    options = {"prompt_ids": ids, "max_new_tokens": CAP}
    expected = [generated(plain_whisper, tiny_whisper, [clip], **options)[0] for clip in clips]
    assert found_texts(tiny_whisper, clips, prompt) == expected
    assert expected != found_texts(tiny_whisper, clips, tiny_whisper.text.prompt("en", FORCED))


def test_languages_are_detected_as_the_library_does(multilingual, plain_multilingual, clips):
    auto = multilingual.text.prompt("en", PromptConfig(language="auto"))
    encoded = multilingual.encode(clips)
    state, lines = multilingual.read_language(multilingual.prefill(encoded, [auto] * len(clips)))
    features = [
        multilingual.extractor(clip, sampling_rate=16000, return_tensors="pt").input_features
        for clip in clips
    ]
    detected = plain_multilingual.detect_language(torch.cat(features)).tolist()
    assert lines == multilingual.text.tokens(detected) and len(set(lines)) > 1
    options = {"task": "transcribe", "max_new_tokens": CAP}
    expected = generated(plain_multilingual, multilingual, clips, **options)
    assert [list(h.tokens) for h in greedy(multilingual, state, [CAP] * len(clips))] == expected
    results = Recogniser(multilingual, None, PromptConfig(language="auto")).recognise(
        Clips(clips, ["en"] * len(clips)), [build(DecodeConfig, {"halting": {"kind": "never"}})]
    )[0]
    assert [r.language for r in results] == lines


def test_prompts_of_different_lengths_share_a_batch(tiny_whisper, clips):
    contexts = ["", "call ann and jan", "seven"]
    prompts = [tiny_whisper.text.prompt("en", PromptConfig(context=c)) for c in contexts]
    state = tiny_whisper.prefill(tiny_whisper.encode(clips[:3]), prompts)
    assert torch.isfinite(state.hidden).all()
    assert state.position.tolist() == [len(prompt.after) for prompt in prompts]
    texts = [list(h.tokens) for h in greedy(tiny_whisper, state, [CAP] * 3)]
    for clip, prompt, text in zip(clips, prompts, texts):
        assert found_texts(tiny_whisper, [clip], prompt) == [text]


# Tokens that are never written


def test_suppressed_tokens_are_the_librarys(clips):
    model, extractor, text = build_parts()
    kept = WhisperBackbone(model, extractor, text, "all")
    prompt = text.prompt("en", FORCED)
    before = found_texts(kept, clips, prompt)
    firsts = {row[0] for row in before}
    often = max({t for row in before for t in row} - firsts, key=lambda t: sum(t in r for r in before))
    other, _, _ = build_parts()
    other.generation_config.suppress_tokens += [often]
    other.generation_config.begin_suppress_tokens += sorted(firsts)
    rules = WhisperText(text._tokenizer, other.generation_config, other.config)
    backbone = WhisperBackbone(model, extractor, rules, "fewer")
    after = found_texts(backbone, clips, prompt)
    assert after == generated(other.eval(), backbone, clips, max_new_tokens=CAP)
    assert not any(often in row for row in after) and not firsts & {row[0] for row in after}
    assert any(firsts & set(row[1:]) for row in after), "only the first token is restricted by these"


def test_every_search_keeps_the_rule_and_training_does_not(tiny_whisper, clips):
    backbone, text = tiny_whisper, tiny_whisper.text
    never = {*text.never, *text.never_first}
    state = backbone.prefill(backbone.encode(clips[:2]), [text.prompt("en", FORCED)] * 2)
    logits = backbone.logits(state.hidden)
    cut = backbone.suppress(logits, True)
    assert (cut[:, list(never)] == -torch.inf).all() and torch.isfinite(logits).all()
    mixed = backbone.suppress(logits, torch.tensor([True, False]))
    assert torch.equal(mixed[0], cut[0]) and torch.equal(mixed[1], backbone.suppress(logits, False)[1])
    assert torch.isfinite(mixed[1, list(text.never_first)]).all()
    kept = sorted(set(range(len(backbone.embedding_table))) - never)
    assert torch.equal(cut[:, kept], logits[:, kept])
    flat = SamplingRule(temperature=3.0)
    groups = [
        greedy(backbone, state, [8, 8]),
        *beam_search(backbone, state, [8, 8], 3),
        *sample(backbone, state, [8, 8], [[1, 2, 3, 4]] * 2, flat),
    ]
    for group in groups:
        for hypothesis in group:
            assert not set(hypothesis.tokens) & set(text.never)
            assert hypothesis.tokens and hypothesis.tokens[0] not in text.never_first
    hypotheses = greedy(backbone, state, [CAP] * 2)
    ended = [row for row, hypothesis in enumerate(hypotheses) if not hypothesis.capped]
    scores = sequence_scores(backbone, state, ended, [hypotheses[row].tokens for row in ended])
    assert ended and scores == pytest.approx([hypotheses[r].log_probability for r in ended], abs=1e-3)
    raw, _, _ = teacher_force(backbone, state, [[text.never[0], text.end_id]] * 2)
    assert torch.isfinite(raw).all()


# Positions and the window


def test_a_text_ends_where_positions_end(tiny_whisper, plain_whisper, clips):
    prompt = tiny_whisper.text.prompt("en", FORCED)
    encoded = tiny_whisper.encode(clips)
    state = tiny_whisper.prefill(encoded, [prompt] * len(clips))
    hypotheses = greedy(tiny_whisper, state, [10_000] * len(clips))
    assert [list(h.tokens) for h in hypotheses] == generated(plain_whisper, tiny_whisper, clips)
    capped = [h for h in hypotheses if h.capped]
    assert capped and all(len(h.tokens) == POSITIONS - len(prompt.after) for h in capped)
    row = next(row for row, hypothesis in enumerate(hypotheses) if hypothesis.capped)
    alone = tiny_whisper.prefill(Encoded(encoded.audio[row : row + 1]), [prompt])
    moved = tiny_whisper.step(alone, torch.zeros(1, 5, tiny_whisper.width), everyone(1, 5))
    (shorter,) = greedy(tiny_whisper, moved, [10_000])
    assert len(shorter.tokens) <= POSITIONS - len(prompt.after) - 5
    rest = int(POSITIONS - moved.position)
    full = tiny_whisper.step(moved, torch.zeros(1, rest, tiny_whisper.width), everyone(1, rest))
    (nothing,) = greedy(tiny_whisper, full, [10_000])
    assert nothing.capped and nothing.tokens == ()
    with pytest.raises(DataError, match=f"position {POSITIONS + 1} of a row: .* has {POSITIONS}"):
        tiny_whisper.step(full, torch.zeros(1, 1, tiny_whisper.width), everyone(1))


def test_holes_and_held_positions_take_no_position(tiny_whisper, clips):
    prompt = tiny_whisper.text.prompt("en", FORCED)
    state = tiny_whisper.prefill(tiny_whisper.encode(clips[:2]), [prompt] * 2)
    zeros = torch.zeros(2, 70, tiny_whisper.width)
    held = tiny_whisper.step(state, zeros, everyone(2, 70), advance=False)
    assert held.position.tolist() == state.position.tolist()
    holes = torch.tensor([[False] * 70, [True] * 40 + [False] * 30])
    after = tiny_whisper.step(tiny_whisper.rollback(held, state), zeros, holes)
    assert (after.position - state.position).tolist() == [0, 40]


def test_audio_beyond_the_window_is_refused_with_its_name(tiny_whisper, tmp_path):
    exact = np.full(WINDOW * 16000, 0.1, dtype=np.float32)
    assert len(tiny_whisper.encode([exact]).audio[0]) == 50 * WINDOW
    longer = np.full(WINDOW * 16000 + 1600, 0.1, dtype=np.float32)
    with pytest.raises(DataError, match="clip 2 of 2: 4.10 s, but this recogniser hears 4 s at once"):
        tiny_whisper.encode([exact, longer])
    data = tmp_path / "data"
    data.mkdir()
    for name, clip in (("short", exact), ("long", longer)):
        soundfile.write(data / f"{name}.wav", clip, 16000, "PCM_16")
    tables = {"wav.scp": {n: str(data / f"{n}.wav") for n in ("short", "long")}}
    tables |= {"text": dict.fromkeys(("short", "long"), "jan")}
    tables |= {name: {n: n for n in ("short", "long")} for name in ("utt2spk", "spk2utt")}
    tables |= {"utt2lang": dict.fromkeys(("short", "long"), "en")}
    for name, table in tables.items():
        write_kaldi_table(data / name, table)
    loaded = Loaded(Recogniser(tiny_whisper, None, FORCED), "none", "tiny")
    rules = [Rule("frozen", build(DecodeConfig, {"halting": {"kind": "never"}}))]
    with pytest.raises(DataError, match="utterance 'long': 4.10 s.*hears 4 s"):
        run_job(loaded, rules, data, tmp_path / "out", 1, 1)
    with pytest.raises(DataError, match="utterance 'long': 4.10 s.*hears 4 s"):
        baseline_pass(tiny_whisper, FORCED, data, tmp_path / "cache")
    write_kaldi_table(data / "wav.scp", dict.fromkeys(("short", "long"), str(data / "short.wav")))
    write_kaldi_table(data / "text", {"short": "jan", "long": "jan " * 70})
    with pytest.raises(DataError, match="utterance 'long': prompt and transcript take .* has 64"):
        baseline_pass(tiny_whisper, FORCED, data, tmp_path / "cache")


# Audio is shared


def test_readers_put_the_rows_of_an_utterance_side_by_side():
    assert Readers.of(torch.tensor([0, 1, 2]), 3) is None
    found = Readers.of(torch.tensor([2, 0, 2, 0, 0]), 3)
    assert found.rows.tolist() == [[1, 3, 4], [0, 0, 0], [0, 2, 0]]
    assert found.place.tolist() == [6, 0, 7, 1, 2]
    assert Readers.of(torch.tensor([1, 0]), 2).place.tolist() == [1, 0]


@pytest.mark.parametrize("rows, copied", [([3, 0, 0, 1, 0, 3, 2, 1], False), ([3, 3, 3, 1], True)])
def test_forked_rows_read_the_one_copy_of_their_audio(tiny_whisper, clips, rows, copied):
    """A fork copies audio only when at least half of it is read no more."""
    state = tiny_whisper.prefill(
        tiny_whisper.encode(clips[:4]), [tiny_whisper.text.prompt("en", FORCED)] * 4
    )
    forked = tiny_whisper.fork(state, torch.tensor(rows))
    audio, before = (s.cache.cross_attention_cache.layers[0].keys for s in (forked, state))
    assert len(audio) == len(set(rows)) if copied else audio.data_ptr() == before.data_ptr()
    again = tiny_whisper.fork(forked, torch.tensor([len(rows) - 1, 0, 0]))
    rng = torch.Generator().manual_seed(1)
    embeds = torch.randn(len(rows), 3, tiny_whisper.width, generator=rng)
    found = tiny_whisper.step(forked, embeds, everyone(len(rows), 3)).hidden
    for index, row in enumerate(rows):
        alone = tiny_whisper.fork(state, torch.tensor([row]))
        expected = tiny_whisper.step(alone, embeds[index : index + 1], everyone(1, 3)).hidden
        torch.testing.assert_close(found[index], expected[0], atol=1e-5, rtol=0)
    chosen = tiny_whisper.step(again, embeds[[-1, 0, 0]], everyone(3, 3)).hidden
    torch.testing.assert_close(chosen, found[[-1, 0, 0]], atol=1e-5, rtol=0)


def test_without_audio_the_decoder_reads_text_alone(tiny_whisper, plain_whisper):
    """The internal language model: attention to the audio is left out of every layer."""
    prompt = tiny_whisper.text.prompt("en", FORCED)
    ids = torch.tensor([[*prompt.after, *tiny_whisper.text.target("call ann")[:-1]]])
    expected = plain_whisper.model.decoder(input_ids=ids, use_cache=False).last_hidden_state[0]
    state = silent_state(tiny_whisper, prompt)
    torch.testing.assert_close(state.hidden[0], expected[1], atol=1e-5, rtol=0)
    new = tiny_whisper.embed(ids[:, 2:]).repeat(2, 1, 1)
    state = tiny_whisper.fork(state, torch.tensor([0, 0]))
    trail = tiny_whisper.step(state, new, everyone(2, new.shape[1])).trail
    torch.testing.assert_close(trail[1], expected[1:], atol=1e-5, rtol=0)
    mixed = Encoded((torch.zeros(0, 64), torch.zeros(200, 64)))
    with pytest.raises(ValueError, match=r"positions, 200 \(or 0 for all\)"):
        tiny_whisper.prefill(mixed, [prompt] * 2)


def test_latents_at_all_depths_in_one_batch_equal_each_depth_alone(tiny_whisper, clips):
    sections = {"latent": {"steps": 3, "anchor_token": "<|notimestamps|>"}}
    torch.manual_seed(0)
    method = LatentMethod(model_config("latent", sections), tiny_whisper).eval()
    recogniser = Recogniser(tiny_whisper, method, FORCED)
    some = Clips(clips[:4], ["en"] * 4)
    rules = [build(DecodeConfig, {"halting": {"kind": "always"}, "depths": "all"})]
    rules += [build(DecodeConfig, {"halting": {"kind": "fixed", "steps": k}}) for k in (1, 2, 3)]
    rules += [build(DecodeConfig, {"halting": {"kind": "never"}})]
    every, *alone, frozen = recogniser.recognise(some, rules)
    for row, result in enumerate(every):
        depths = [hypothesis.tokens for _, hypothesis in result.depths]
        expected = [found[row].hypothesis.tokens for found in (frozen, *alone)]
        assert depths == expected
    assert len({h.tokens for _, h in every[0].depths}) > 1


# Adaptations


QUIET = {"steps": 2, "anchor_token": "<|notimestamps|>", "drop": 0.0, "noise": {"std": 0.0}}
TEXTS = ["turn on the light", "call ann", "seven five nine zero", "jan"]


@pytest.fixture(scope="module")
def batch(tiny_whisper, clips):
    targets = [tiny_whisper.text.target(text) for text in TEXTS]
    encoded, prompts = tiny_whisper.encode(clips[:4]), [tiny_whisper.text.prompt("en", FORCED)] * 4
    with torch.no_grad():
        logits, ids, rows = teacher_force(tiny_whisper, tiny_whisper.prefill(encoded, prompts), targets)
    base_ce, base_acc = token_scores(logits, ids, rows, 4)
    return TrainBatch(encoded, prompts, targets, base_ce, base_acc)


@pytest.mark.parametrize(
    "kind, section",
    [
        ("full", {}),
        ("lora", {"lora": {"rank": 2, "dropout": 0.0}}),
        ("prompt", {"prompt_tuning": {"text": "turn on the light"}}),
        ("latent", {"latent": QUIET, "value": {"flip": {"prob": 0.0}}}),
    ],
)
def test_every_adaptation_starts_at_the_frozen_one_and_learns(tiny_whisper, batch, kind, section):
    torch.manual_seed(0)
    method = build_method(model_config(kind, section), tiny_whisper)
    if kind in ("full", "lora"):
        with torch.no_grad():
            _, stats = method.eval().loss(batch, 0.0, None)
        torch.testing.assert_close(stats["ce"], stats["ce_base"], atol=1e-5, rtol=0)
    frozen = {k: v.clone() for k, v in tiny_whisper.model.state_dict().items()}
    before = {k: v.detach().clone() for k, v in method.named_parameters()}
    optimizer = torch.optim.SGD(method.train().parameters(), lr=1e-2)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss, _ = method.loss(batch, 0.0, torch.Generator().manual_seed(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    moved = {k for k, v in method.named_parameters() if not torch.equal(v, before[k])}
    assert moved == set(before)
    assert all(torch.equal(v, frozen[k]) for k, v in tiny_whisper.model.state_dict().items())


def maps(method) -> set[str]:
    """Linear maps that LoRA stands beside."""
    return {name.split("/lora_")[0].rsplit("/", 1)[-1] for name, _ in method.named_parameters()}


def test_what_the_baselines_train(tiny_whisper):
    decoder = tiny_whisper.decoder
    full = build_method(model_config("full", {}), tiny_whisper)
    assert sum(p.numel() for p in full.parameters()) == sum(p.numel() for p in decoder.parameters())
    assert "embed_positions/weight" in dict(full.named_parameters())
    lora = build_method(model_config("lora", {"lora": {"rank": 2}}), tiny_whisper)
    assert maps(lora) == {"q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"}
    assert any("encoder_attn/k_proj" in name for name in dict(lora.named_parameters()))
    some = build_method(model_config("lora", {"lora": {"rank": 2, "modules": "fc1"}}), tiny_whisper)
    assert maps(some) == {"fc1"}


# Loading


def test_save_and_load_offline(tiny_whisper, tiny_whisper_dir, clips):
    name = str(tiny_whisper_dir)
    assert kind_of_folder(name) == "whisper" and kind_of_folder("openai/whisper-tiny.en") is None
    loaded = load_backbone(BackboneConfig(kind="whisper", name=name))
    assert not any(p.requires_grad for p in loaded.model.parameters())
    text = load_tokenizer(BackboneConfig(kind="whisper", name=name))
    prompt = text.prompt("en", FORCED)
    assert prompt == tiny_whisper.text.prompt("en", FORCED)
    assert text.vocabulary() == tiny_whisper.text.vocabulary()
    assert (text.never, text.never_first) == (tiny_whisper.text.never, tiny_whisper.text.never_first)
    states = [b.prefill(b.encode(clips), [prompt] * len(clips)) for b in (tiny_whisper, loaded)]
    assert torch.equal(states[0].hidden, states[1].hidden)


def test_the_fingerprint_follows_the_rules_of_generation(tiny_whisper_dir, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(tiny_whisper_dir, folder)
    original = load_whisper(str(tiny_whisper_dir)).fingerprint
    assert load_whisper(str(folder)).fingerprint == original
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"suppress_tokens": [1]}))
    assert load_whisper(str(folder)).fingerprint != original


def test_folders_of_another_kind_are_refused(tiny_whisper_dir, tiny_backbone_dir):
    with pytest.raises(ConfigError, match="model_type 'qwen3_asr', expected 'whisper'"):
        load_whisper(str(tiny_backbone_dir))
    with pytest.raises(ConfigError, match=r"'whisper', expected 'qwen3_asr' \(backbone_conf.kind"):
        load_backbone(BackboneConfig(name=str(tiny_whisper_dir)))
    with pytest.raises(ConfigError, match="needs backbone_conf.revision"):
        load_whisper("openai/whisper-tiny.en")


def test_an_extractor_of_another_window_is_refused(tiny_whisper):
    from transformers import WhisperFeatureExtractor

    other = WhisperFeatureExtractor(feature_size=16, chunk_length=30)
    with pytest.raises(ConfigError, match="480000 samples, but the encoder .* takes 64000"):
        WhisperBackbone(tiny_whisper.model, other, tiny_whisper.text, "x")


def test_bfloat16_only_rounds(tiny_whisper, tiny_whisper_dir, clips):
    rough = load_whisper(str(tiny_whisper_dir), dtype="bfloat16")
    assert {p.dtype for p in rough.model.parameters()} == {torch.bfloat16}
    prompt: Prompt = rough.text.prompt("en", FORCED)
    found = rough.prefill(rough.encode(clips[:3]), [prompt] * 3)
    exact = tiny_whisper.prefill(tiny_whisper.encode(clips[:3]), [prompt] * 3)
    assert found.hidden.dtype == torch.bfloat16
    assert rough.logits(found.hidden).dtype == torch.float32
    assert (found.hidden.float() - exact.hidden).abs().mean() < 0.1


def test_a_multilingual_folder_loads(tmp_path):
    save_whisper(tmp_path, multilingual=True)
    text = load_tokenizer(BackboneConfig(kind="whisper", name=str(tmp_path)))
    assert text.multilingual and len(text.language_ids) == 4


@pytest.mark.parametrize("owner", [[0, 1, 2], [0, 0, 2, 1, 0]])
def test_trained_queries_over_frozen_audio_attend_as_the_library_does(owner):
    class Layer(torch.nn.Module):
        is_causal = False

    generator = torch.Generator().manual_seed(0)
    query = torch.randn(len(owner), 2, 3, 4, generator=generator)
    key, value = (torch.randn(3, 2, 7, 4, generator=generator) for _ in range(2))
    readers = Readers.of(torch.tensor(owner), 3)
    gradients, outputs = [], []
    for trained_keys in (False, True):  # with trained keys the library's own attention is used
        leaf = query.clone().requires_grad_()
        keys = key.clone().requires_grad_(trained_keys)
        found, _ = attend(Layer(), leaf, keys, value, None, readers=readers, scaling=0.7, dropout=0.0)
        found.square().sum().backward()
        gradients.append(leaf.grad)
        outputs.append(found.detach())
    assert torch.allclose(*outputs, atol=1e-6) and torch.allclose(*gradients, atol=1e-5)
    rows = torch.nn.functional.scaled_dot_product_attention(query, key[owner], value[owner], scale=0.7)
    assert torch.allclose(outputs[0], rows.transpose(1, 2), atol=1e-6)
