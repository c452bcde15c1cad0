"""The call: what it takes, what it returns, what it refuses."""

import dataclasses

import numpy as np
import pytest
import soundfile
import soxr
import torch
from small_experiment import write_experiment

from espnet_latentasr import Speech2Text
from espnet_latentasr.config import DecodeConfig, HaltingConfig, build
from espnet_latentasr.decode.recogniser import Clips
from espnet_latentasr.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def asr(experiment):
    return Speech2Text(experiment.backbone_dir, experiment.config, experiment.model, experiment.decode)


def texts(found):
    return [nbest[0][0] for nbest in found]


def steps(found):
    return [nbest[0][3].trace.steps for nbest in found]


def test_a_clip_gives_espnets_list_and_a_list_gives_lists(asr, clips):
    ((text, tokens, token_ids, hypothesis),) = asr(clips[0])
    assert isinstance(text, str) and len(tokens) == len(token_ids) == len(hypothesis.tokens) > 0
    assert hypothesis.score == hypothesis.log_probability < 0 and hypothesis.language == "en"
    assert asr([clips[0]]) == [asr(clips[0])]
    assert asr([]) == []


def test_a_list_equals_its_clips_alone(asr, clips):
    together = asr(clips)
    alone = [asr(clip) for clip in clips]
    assert texts(together) == texts(alone) and steps(together) == steps(alone)
    for (one,), (two,) in zip(together, alone):
        assert one[3].score == pytest.approx(two[3].score, abs=1e-4)


def test_arrays_tensors_and_files_are_one(asr, tones):
    exact, _ = soundfile.read(tones[1], dtype="float32")
    expected = asr(tones[1])
    for same in (exact, exact.astype(np.float64), torch.from_numpy(exact), str(tones[1])):
        assert asr(same)[0][2] == expected[0][2]
        assert asr(same)[0][3].score == expected[0][3].score


def test_another_rate_is_resampled(asr, clips):
    high = soxr.resample(clips[2], 16000, 48000, quality="HQ")
    back = soxr.resample(high, 48000, 16000, quality="HQ")
    assert asr(high, 48000)[0][2] == asr(back)[0][2]
    assert len(asr.load(high, 48000)) == pytest.approx(len(clips[2]), abs=1)


def test_theta_steps_and_halting_are_the_recipes_rules(asr, clips):
    def recipe(**keys):
        config = build(DecodeConfig, keys | {"batch_size": 4})
        found = asr.recogniser.recognise(Clips(clips[:4], ["en"] * 4), [config])[0]
        return [result.text for result in found], [result.trace.steps for result in found]

    def here(**options):
        found = asr(clips[:4], **options)
        return texts(found), steps(found)

    never = recipe(halting={"kind": "never"})
    assert here(halting="never") == here(steps=0) == here(theta=float("inf")) == never
    assert here(theta=0.3) == recipe(halting={"kind": "threshold", "theta": 0.3})
    assert here(steps=2) == recipe(halting={"kind": "fixed", "steps": 2})
    assert here(steps=4)[1] == [4] * 4
    assert here(halting=HaltingConfig("always")) == recipe(halting={"kind": "always"})
    assert here(halting="surest") == recipe(halting={"kind": "surest"}, depths="all")
    assert here() == recipe(halting={"kind": "threshold", "theta": 0.0})


def test_nbest_is_a_beam_sorted_by_score(asr, clips):
    wide = asr(clips[0], nbest=4)
    scores = [hypothesis.score for *_, hypothesis in wide]
    assert 1 < len(wide) <= 4 and scores == sorted(scores, reverse=True)
    assert len({tuple(token_ids) for _, _, token_ids, _ in wide}) == len(wide)
    greedy = asr(clips[0])[0][3]
    assert scores[0] >= greedy.score - 1e-4
    assert {h.trace.steps for *_, h in wide} == {greedy.trace.steps}
    assert asr(clips[0], nbest=1) == asr(clips[0])
    frozen = asr(clips[0], nbest=2, halting="never")
    assert frozen[0][3].trace.steps == 0
    with pytest.raises(ConfigError, match="continues from one depth"):
        asr(clips[0], nbest=2, halting="surest")
    with pytest.raises(ConfigError, match="nbest: 0"):
        asr(clips[0], nbest=0)


def test_results_say_where_they_come_from(asr, clips):
    metadata = asr(clips[0], theta=0.5)[0][3].metadata
    assert metadata["rule"]["theta"] == 0.5 and metadata["rule"]["kind"] == "threshold"
    assert metadata["backbone"] == asr.loaded.backbone_fingerprint and metadata["other_backbone"] is False


def test_languages(asr, clips):
    named = asr(clips[:2], language=["English", "de"])
    assert [nbest[0][3].language for nbest in named] == ["English", "de"]
    assert asr(clips[0], language="en") == asr(clips[0])
    with pytest.raises(ConfigError, match="language: 1 given for 2 clips"):
        asr(clips[:2], language=["en"])
    with pytest.raises(DataError, match="unknown language 'xx'"):
        asr(clips[0], language="xx")


def test_an_adapter_that_names_no_language_needs_one_in_the_call(asr, clips):
    other = Speech2Text.__new__(Speech2Text)
    other._set_up(asr.loaded, asr.config, None, {})
    with pytest.raises(ConfigError, match="give language='en'"):
        other(clips[0])
    assert other(clips[0], language="en")[0][0] == asr(clips[0])[0][0]


@pytest.mark.parametrize(
    "speech, message",
    [
        (np.zeros((2, 100), np.float32), "one mono clip"),
        (np.zeros(0, np.float32), "clip 1: empty"),
        (np.zeros(1600, np.float32), "clip 1: silent"),
        (np.full(1600, np.nan, np.float32), "clip 1: non_finite"),
        (np.ones(1600, np.int16), "int16; floats in"),
        (np.full(1600, 12000.0), "a sample of 12000"),
        ([0.1, 0.2], "clip 1: samples .* got float"),
        ("no_such.wav", "missing: no_such.wav"),
    ],
)
def test_bad_audio_is_named_and_never_recognised(asr, speech, message):
    with pytest.raises(DataError, match=message):
        asr(speech)


def test_rates_and_clips_of_a_list_are_named(asr, clips):
    with pytest.raises(DataError, match="clip 2: silent"):
        asr([clips[0], np.zeros(1600, np.float32)])
    with pytest.raises(DataError, match="rate 0 Hz"):
        asr(clips[0], 0)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"theta": 0.1, "steps": 2}, "give one of them"),
        ({"steps": 5}, "this adapter has N = 4"),
        ({"steps": -1}, "halting.steps"),
        ({"halting": "sometimes"}, "halting.kind"),
        ({"theta": float("nan")}, "halting.theta"),
    ],
)
def test_rules_without_a_meaning_are_refused(asr, clips, options, message):
    with pytest.raises(ConfigError, match=message):
        asr(clips[0], **options)


def test_a_clip_longer_than_the_recogniser_hears_is_refused(asr, clips, monkeypatch):
    monkeypatch.setattr(asr.recogniser.backbone, "max_samples", 8000, raising=False)
    with pytest.raises(DataError, match="clip 1.*hears 0.5 s at once"):
        asr(clips[0])


def test_the_frozen_recogniser_alone(experiment, asr, clips):
    frozen = Speech2Text(experiment.backbone_dir)
    assert frozen(clips[0])[0][2] == asr(clips[0], halting="never")[0][2]
    with pytest.raises(ConfigError, match="needs a trained model"):
        frozen(clips[0], theta=0.0)


def test_an_adapted_decoder_has_no_steps(tmp_path, tiny_backbone_dir, clips):
    made = write_experiment(tmp_path, tiny_backbone_dir, clips, "lora", lora={"rank": 2})
    asr = Speech2Text(made.backbone_dir, made.config, made.model)
    assert asr.config.halting.kind == "always" and asr(clips[0], nbest=2)
    with pytest.raises(ConfigError, match="no latent steps"):
        asr(clips[0], steps=1)


def test_what_is_missing_is_said(experiment):
    with pytest.raises(ConfigError, match="backbone_dir: needed for an experiment"):
        Speech2Text()
    with pytest.raises(ConfigError, match="an experiment of the recipe needs its backbone_dir"):
        Speech2Text(asr_train_config=experiment.config, asr_model_file=experiment.model)
    with pytest.raises(ConfigError, match="for shared adapters, not for experiments"):
        Speech2Text(experiment.backbone_dir, allow_other_backbone=True)


def test_a_swapped_control_needs_a_set(asr):
    swapped = dataclasses.replace(asr.config, latents="swapped")
    with pytest.raises(ConfigError, match="swapped needs a set"):
        asr.rule(base=swapped)
