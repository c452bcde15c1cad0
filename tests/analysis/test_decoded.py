"""Reading one scored decoding, and refusing comparisons that mean nothing."""

import json
from dataclasses import replace

import numpy as np
import pytest

from espnet_latentasr.analysis.decoded import check_same_utterances, error_rate, read_decoded
from espnet_latentasr.errors import DataError
from espnet_latentasr.text.error_rate import score
from espnet_latentasr.text.normalize import get_normalizer
from espnet_latentasr.text.score_dir import write_score_dir

REFS, HYPS = {"a": "x y", "b": "z"}, {"a": "x q w", "b": "z"}


def record(utt, **other):
    row = {
        "utt_id": utt, "values": [0.1], "steps": 0, "stopped": "entry", "update_norms": [],
        "update_cosines": [], "update_jumps": [], "capped": False, "audio_seconds": 1.5,
        "seconds": {"encode": 0.1, "prefill": 0.2, "loop": 0.0, "decode": 0.3},
    }  # fmt: skip
    return row | other


@pytest.fixture
def folder(tmp_path):
    result = score(REFS, HYPS, "wer", get_normalizer("none"))
    write_score_dir(tmp_path / "score_wer", result, {"a": "a", "b": "b"}, language="en")
    rows = [record("b", steps=2, stopped="step", values=[0.1, 0.2, -0.3]), record("a")]
    (tmp_path / "latent.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_arrays(folder):
    found = read_decoded(folder)
    assert found.utts == ("a", "b")
    assert (found.errors.tolist(), found.lengths.tolist()) == ([2, 0], [2, 1])
    assert (found.references, found.hypotheses) == (("x y", "z"), ("x q w", "z"))
    assert (found.steps.tolist(), found.stopped.tolist()) == ([0, 2], ["entry", "step"])
    assert found.seconds.tolist() == [[0.1, 0.2, 0.0, 0.3]] * 2
    assert found.values[1] == [0.1, 0.2, -0.3]
    assert found.rate == pytest.approx(2 / 3)
    assert np.isnan(error_rate(np.array([1]), np.array([0])))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stopped": "late"}, "latent.jsonl:2: utterance 'b': stopped: 'late', one of entry"),
        ({"seconds": {"encode": 1}}, "latent.jsonl:2: utterance 'b': 'prefill'"),
        ({"utt_id": "c"}, "latent.jsonl has 2 utterances, per_utt.csv 2; first differing id 'b'"),
    ],
)
def test_broken_records(folder, change, message):
    rows = [record("a"), record("b") | change]
    (folder / "latent.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match=message):
        read_decoded(folder)


def test_comparisons_that_mean_nothing(folder):
    one = read_decoded(folder)
    check_same_utterances(one, one)
    with pytest.raises(DataError, match="different utterances or references"):
        check_same_utterances(one, replace(one, lengths=one.lengths + 1))
    other = replace(one, summary=one.summary | {"normalizer": "whisper_en"})
    with pytest.raises(DataError, match="normaliser 'none', .* with 'whisper_en'"):
        check_same_utterances(one, other)
