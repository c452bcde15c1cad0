"""What training and test sets share is found by id, speaker, words and sound, and written down."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from published_layouts import tone

from espnet_latentasr.bin import check_overlap
from espnet_latentasr.data.kaldi_dir import KaldiDir, read_kaldi_table
from espnet_latentasr.data.overlap import find_overlap, text_keys, write_overlap
from espnet_latentasr.errors import DataError


def make(root: Path, name: str, rows: dict[str, tuple[str, str, str]], lang: str = "en") -> KaldiDir:
    """Write a set: utterance -> speaker, text, what its tone follows from."""
    wav = {}
    for utt, (_, _, sound) in rows.items():
        wav[utt] = str(root / name / f"{utt}.wav")
        Path(wav[utt]).parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(wav[utt], tone(sound), 16000)
    text, spk = ({utt: row[n] for utt, row in rows.items()} for n in (1, 0))
    return KaldiDir(root / name, wav, text, spk, dict.fromkeys(rows, lang)).save(root / name)


TRAIN = {
    "a-1": ("a", "it's late", "one"),
    "b-1": ("b", "good morning", "two"),
    "c-1": ("c-1", "see you", "three"),
    "d-1": ("d", "nothing shared", "four"),
}


@pytest.fixture
def sets(tmp_path):
    """Return a training set and a test set that shares a text, a speaker and a recording with it."""
    tested = {
        "b-9": ("b", "other words", "five"),
        "e-1": ("e", "It is LATE!", "six"),
        "f-1": ("f", "more words", "three"),
    }
    return make(tmp_path, "train", TRAIN), make(tmp_path, "test_a", tested)


def test_each_kind(sets, tmp_path):
    train, test = sets
    clean = make(tmp_path, "test_b", {"z-1": ("z", "quite new", "seven")})
    found = find_overlap([train], {"test_a": test, "test_b": clean})
    assert found.tests["test_a"].shared == {
        "utterance": {}, "speaker": {"b-1": "b-9"}, "text": {"a-1": "e-1"}, "audio": {"c-1": "f-1"}
    }  # fmt: skip
    assert not any(found.tests["test_b"].shared.values())
    assert found.speakers_known == 3 and found.utterances == 4
    assert found.excluded() == {
        "b-1": "speaker test_a b-9", "a-1": "text test_a e-1", "c-1": "audio test_a f-1"
    }  # fmt: skip
    unread = find_overlap([train], {"test_a": test}, audio=False)
    assert set(unread.excluded()) == {"a-1", "b-1"} and unread.kinds == ("utterance", "speaker", "text")


def test_the_same_recording_cut_out_of_a_longer_one_or_in_another_container(sets, tmp_path):
    train, _ = sets
    samples, silence = soundfile.read(train.wav["a-1"], dtype="int16")[0], np.zeros(800, "int16")
    soundfile.write(tmp_path / "long.flac", np.concatenate([silence, samples, silence]), 16000)
    cut = KaldiDir(
        tmp_path, {"r": str(tmp_path / "long.flac")}, {"x": "new words"}, {"x": "x"}, {"x": "en"},
        {"x": "r 0.05 0.35"},
    )  # fmt: skip
    assert find_overlap([train], {"t": cut}).tests["t"].shared["audio"] == {"a-1": "x"}


def test_texts_of_many_scripts():
    assert text_keys("Don't!", "en") & text_keys("do not", "en")
    assert not text_keys("don't", "de") & text_keys("do not", "de")
    assert text_keys("我 们 走。", "zh") == text_keys("我们走", "zh")
    assert text_keys("กา", "th") != text_keys("กี", "th")  # vowel signs count
    assert text_keys("...", "en") == set()  # what has no words equals nothing


@settings(max_examples=25)
@given(st.text(min_size=1, max_size=30), st.sampled_from(["en", "de", "zh", "auto"]))
def test_a_text_is_itself_in_any_case_and_spacing(text, language):
    keys = text_keys(text, language)
    assert keys == text_keys(f"  {text} ", language)
    assert all(not key.isspace() and " " not in key for key in keys)


def test_wrong_sets(sets, tmp_path):
    train, test = sets
    with pytest.raises(DataError, match="0 training and 1 test sets"):
        find_overlap([], {"t": test})
    with pytest.raises(DataError, match="utterance 'a-1' is in two training sets"):
        find_overlap([train, train], {"t": test})
    Path(test.wav["e-1"]).unlink()
    with pytest.raises(DataError, match=r"test_a: 1 of 3 utterances are unusable \(missing=1\)"):
        find_overlap([train], {"t": test})


def test_report(sets, tmp_path):
    train, test = sets
    write_overlap(find_overlap([train], {"test_a": test}), tmp_path / "report")
    text = (tmp_path / "report/overlap.md").read_text()
    assert "3 training utterances are shared: 4 training utterances" in text
    assert "| test_a | 3 | 3 | 0 | 1 | 1 | 1 |" in text and "- b-1: speaker test_a b-9" in text
    table = json.loads((tmp_path / "report/overlap.json").read_text())
    assert table["tests"]["test_a"]["shared"]["audio"] == {"c-1": "f-1"} and table["excluded"] == 3
    assert list(read_kaldi_table(tmp_path / "report/exclude")) == ["a-1", "b-1", "c-1"]


def test_command(sets, tmp_path, capsys):
    train, test = sets
    words = ["--train", str(train.path), "--output_dir", f"{tmp_path}/report", "--nj", "1", "--test"]
    with pytest.raises(DataError, match="report/exclude: 3 training utterances are shared"):
        check_overlap.main([*words, str(test.path)])
    clean = make(tmp_path, "test_b", {"z-1": ("z-1", "quite new", "seven")})
    check_overlap.main([*words, str(clean.path)])
    out = capsys.readouterr().out
    assert (
        "Nothing is shared: 4 training utterances" in out and "| test_b | 1 | 0 | 0 | 0 | 0 | 0 |" in out
    )
    assert read_kaldi_table(tmp_path / "report/exclude") == {}
    make(tmp_path / "x", "test_b", {"z-1": ("z", "a", "seven")})
    with pytest.raises(DataError, match="two test sets are named 'test_b'"):
        check_overlap.main([*words, str(clean.path), f"{tmp_path}/x/test_b"])
