"""The mini corpus: deterministic, disjoint where it says so, honest transcripts."""

import random
import re

import numpy as np
import pytest

from espnet_latentasr.data.mini import asterisk, corpus, espeak, grammar


def test_sentences_are_deterministic_and_use_known_words():
    drawn = grammar.sentences(400, 7)
    assert drawn == grammar.sentences(400, 7) != grammar.sentences(400, 8)
    words = set(grammar.training_words())
    assert {word for text in drawn for word in text.split()} <= words


def test_every_template_is_drawn():
    makers = {maker.__name__ for maker, _ in grammar.TEMPLATES}
    rng = random.Random(1)
    seen = set()
    for maker, _ in grammar.TEMPLATES:
        text = maker(rng)
        assert re.fullmatch(r"[a-z]+( [a-z]+)*", text)
        seen.add(maker.__name__)
    assert seen == makers


def test_excluded_sentences_never_come_back():
    first = grammar.sentences(300, 1)
    assert not set(first) & set(grammar.sentences(300, 2, exclude=set(first), distinct=True))


def test_test_sets_are_new_with_respect_to_all_training_sets():
    sets = corpus.plan_utterances(scale=0.1)
    texts = {name: {u.text for u in utterances} for name, utterances in sets.items()}
    trained = texts["backbone_train"] | texts["activation_pool"]
    for name in ("valid", "test_text", "test_voice"):
        assert not texts[name] & trained
    assert not texts["test_text"] & texts["test_voice"]
    assert len(texts["test_voice"]) == len(sets["test_voice"])


def test_new_voices_are_heard_nowhere_else():
    sets = corpus.plan_utterances(scale=0.2)
    variants = {n: {u.voice.split("+")[1] for u in us} for n, us in sets.items()}
    assert not variants["test_voice"] & (variants["backbone_train"] | variants["activation_pool"])


def test_activation_utterances_are_not_the_recognisers_own():
    sets = corpus.plan_utterances(scale=0.2)
    spoken = {n: {(u.text, u.voice, u.rate, u.pitch) for u in us} for n, us in sets.items()}
    assert not spoken["activation_pool"] & spoken["backbone_train"]


def test_full_sizes():
    sizes = {plan.name: plan.size for plan in corpus.PLANS}
    assert sizes == {
        "backbone_train": 8000,
        "activation_pool": 2000,
        "valid": 300,
        "test_text": 500,
        "test_voice": 500,
        "valid_large": 1000,
        "test_large": 2400,
        "test_confirm": 4800,
    }


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("Thank you.", "thank you"),
        ("I'm sorry, there are no matches...", "i'm sorry there are no matches"),
        ("Press 9 for more entries.", "press nine for more entries"),
        ("A.M.", "a m"),
        ("Call-Forward on Busy.", "call forward on busy"),
        ("[this is a beep]", None),
        ("(2 seconds of silence)", None),
        ("press 12", None),
        ("mgcp", None),
        ("", None),
    ],
)
def test_prompt_transcripts(raw, expected):
    assert asterisk.clean_transcript(raw) == expected


def test_prompt_split_keeps_equal_texts_together():
    texts = {f"p{i}": f"text number {i % 40}" for i in range(120)}
    train, test = corpus.split_prompts(texts)
    assert train.keys() | test.keys() == texts.keys() and not train.keys() & test.keys()
    assert not set(train.values()) & set(test.values())
    assert len(test) > 10


def test_missing_packages_are_said_and_survived(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert asterisk.fetch(tmp_path / "downloads") is None
    assert "no apt-get" in caplog.text


class TestSpeech:
    """With the engine itself (its wheel is part of the environment)."""

    UTTERANCES = [
        espeak.Utterance("a", "turn on the kitchen light", "en-us+f2", 160, 50),
        espeak.Utterance("b", "call mary at nine", "en-gb-x-rp+m3", 200, 40),
        espeak.Utterance("c", "seven five nine zero", "en+Andy", 140, 60),
    ]

    def test_audio_depends_on_the_utterance_alone(self):
        pytest.importorskip("espeakng_loader", reason="the synthesiser's wheel is not installed")
        one = dict(espeak.synthesize(self.UTTERANCES, 1))
        two = dict(espeak.synthesize(self.UTTERANCES[::-1], 2))
        for utt_id, samples in one.items():
            assert samples.dtype == np.int16 and 8000 < len(samples) < 80000
            assert np.abs(samples).max() == pytest.approx(0.6 * 32767, abs=1)
            np.testing.assert_array_equal(samples, two[utt_id])

    def test_unknown_voice_is_an_error(self):
        pytest.importorskip("espeakng_loader", reason="the synthesiser's wheel is not installed")
        wrong = espeak.Utterance("x", "hello", "en-gb+m1", 160, 50)
        with pytest.raises(ValueError, match="no eSpeak voice 'en-gb"):
            list(espeak.synthesize([wrong], 1))

    def test_a_rerun_leaves_complete_sets_alone(self, tmp_path, monkeypatch):
        pytest.importorskip("espeakng_loader", reason="the synthesiser's wheel is not installed")
        monkeypatch.setattr(asterisk, "fetch", lambda folder: None)
        plans = (corpus.SetPlan("valid", 4, ("en-us",), ("m1",), True),)
        monkeypatch.setattr(corpus, "PLANS", plans)

        def prepare():
            return corpus.prepare_mini(tmp_path / "data", tmp_path, nj=1)

        assert prepare() == ["valid"]
        wavs = sorted((tmp_path / "data/valid/wavs").iterdir())
        stamps = [path.stat().st_mtime_ns for path in wavs]
        assert prepare() == ["valid"]
        assert [path.stat().st_mtime_ns for path in wavs] == stamps
        (tmp_path / "data/valid/text").unlink()  # as after a kill: the marker is missing
        prepare()
        assert (tmp_path / "data/valid/text").is_file()
