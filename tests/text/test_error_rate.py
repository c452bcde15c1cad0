"""Pooling, units, empty sides and refused ids."""

import json
import math

import pytest

from espnet_latentasr import __version__
from espnet_latentasr.errors import DataError
from espnet_latentasr.text.edit_distance import Counts
from espnet_latentasr.text.error_rate import score
from espnet_latentasr.text.normalize import get_normalizer

NONE = get_normalizer("none")
REFS = {"u2": "hello world", "u1": "the cat sat on the mat", "u3": ""}
HYPS = {"u1": "the cat sit on mat today", "u3": "extra", "u2": "hello world"}


def test_pooled_counts_and_rates():
    result = score(REFS, HYPS, "wer", NONE)
    assert list(result.utterances) == ["u1", "u2", "u3"]
    assert result.utterances["u1"].counts == Counts(4, 1, 1, 1)
    assert result.counts == Counts(6, 1, 1, 2)
    assert result.sentence_errors == 2
    assert result.rates == pytest.approx(
        {"Corr": 75, "Sub": 12.5, "Del": 12.5, "Ins": 25, "Err": 50, "S.Err": 200 / 3}
    )
    assert result.headline() == (
        "wer 50.00 % [ 4 / 8, 2 ins, 1 del, 1 sub ], 3 utterances, 0 empty hypotheses"
    )


def test_pooling_is_not_averaging():
    result = score({"a": "x", "b": "w w w w w w w w w"}, {"a": "y", "b": "w " * 9}, "wer", NONE)
    assert result.rates["Err"] == pytest.approx(10)


def test_normalised_on_both_sides():
    refs, hyps = {"u": "The colour, please!"}, {"u": "the color please"}
    assert score(refs, hyps, "wer", get_normalizer("whisper_en")).counts.errors == 0
    assert score(refs, hyps, "wer", NONE).counts.errors == 3


def test_units():
    refs, hyps = {"u": "我要 book 房间"}, {"u": "我 要 look 房间"}
    found = {
        unit: (r.counts.errors, r.counts.reference_length)
        for unit in ("wer", "cer", "cer_nospace", "mer")
        for r in [score(refs, hyps, unit, NONE)]
    }
    assert found == {"wer": (3, 3), "cer": (2, 10), "cer_nospace": (1, 8), "mer": (1, 5)}


def test_empty_hypothesis_is_all_deletions():
    result = score({"u": "a b c"}, {"u": "  "}, "wer", NONE)
    assert result.counts == Counts(0, 0, 3, 0)
    assert result.rates["Err"] == 100
    assert "1 empty hypotheses" in result.headline()


def test_empty_references_have_counts_but_no_rate():
    result = score({"u": "", "v": ""}, {"u": "noise", "v": ""}, "wer", NONE)
    assert result.counts == Counts(0, 0, 0, 1)
    assert math.isnan(result.rates["Err"])
    assert result.rates["S.Err"] == 50
    assert result.summary()["rates"]["Err"] is None


def test_different_ids_are_refused():
    with pytest.raises(DataError) as error:
        score(dict.fromkeys(["a", "b", "c", "d", "e", "f"], "x"), {"b": "x", "z": "x"}, "wer", NONE)
    message = str(error.value)
    assert "references (6 utterances) and hypotheses (2)" in message
    assert "5 without hypothesis (a, c, d, ...), 1 without reference (z)" in message


def test_nothing_to_score():
    with pytest.raises(DataError, match="no utterance"):
        score({}, {}, "wer", NONE)


def test_ids_are_sorted_by_bytes():
    ids = ["ä", "z", "Z", "a-1", "a_1"]
    texts = dict.fromkeys(ids, "x")
    assert list(score(texts, texts, "wer", NONE).utterances) == ["Z", "a-1", "a_1", "z", "ä"]


def test_summary_is_json_with_its_provenance():
    summary = json.loads(json.dumps(score(REFS, HYPS, "wer", NONE).summary(), allow_nan=False))
    assert summary["unit"] == "wer"
    assert (summary["normalizer"], summary["normalizer_version"]) == ("none", "identity")
    assert summary["cost_model"] == "sclite 4/3/3"
    assert summary["espnet_latentasr_version"] == __version__
    assert summary["counts"] == {
        "sentences": 3,
        "reference_length": 8,
        "correct": 6,
        "substitutions": 1,
        "deletions": 1,
        "insertions": 2,
        "errors": 4,
        "sentence_errors": 2,
    }
