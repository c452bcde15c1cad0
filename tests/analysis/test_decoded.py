"""Reading one scored decoding, and refusing comparisons that mean nothing."""

import json
from dataclasses import replace

import numpy as np
import pytest

from espnet_latentasr.analysis.decoded import (
    check_same_utterances,
    error_rate,
    read_decoded,
    read_identity,
)
from espnet_latentasr.config import PromptConfig
from espnet_latentasr.errors import ConfigError, DataError
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
    for change, name in (
        ({"normalizer": "whisper_en"}, r"'whisper_en' \(identity\)"),
        ({"normalizer_version": "2"}, r"'none' \(2\)"),
    ):
        other = replace(one, summary=one.summary | change)
        with pytest.raises(DataError, match=rf"normaliser 'none' \(identity\), .* with {name}"):
            check_same_utterances(one, other)


def test_texts_from_elsewhere(folder):
    (folder / "latent.jsonl").unlink()
    found = read_decoded(folder)
    assert not found.recorded and not found.thinks and found.prompt is None
    assert found.errors.tolist() == [2, 0] and np.isnan(found.seconds).all()
    # Stage 12 wrote this set: what it recorded was lost.
    (folder / "identity.json").write_text("{}")
    with pytest.raises(DataError, match="latent.jsonl: no such file; decode this set first"):
        read_decoded(folder)


def test_prompts(tmp_path):
    folder = tmp_path / "exp" / "decode" / "test"
    folder.mkdir(parents=True)

    def prompt(identity):
        (folder / "identity.json").write_text(identity)
        return read_identity(folder)[0]

    assert read_identity(folder) is None
    assert prompt("{}") == PromptConfig()
    (tmp_path / "exp" / "config.yaml").write_text("prompt_conf: {user_text: Transcribe.}\n")
    assert prompt("{}") == PromptConfig(user_text="Transcribe.")
    assert prompt('{"prompt": {"language": "auto"}}') == PromptConfig(language="auto")
    with pytest.raises(ConfigError, match="test: prompt.langauge.*did you mean"):
        prompt('{"prompt": {"langauge": "auto"}}')
    for damaged in ("[", "[]"):
        with pytest.raises(DataError, match="identity.json: damaged .*decode this set again"):
            prompt(damaged)
    prompt('{"backbone": "b", "model": "m-w", "decode": "d", "data": "x"}')
    assert read_identity(folder)[1] == ("b", "m-w", "d")


def test_language_lines(folder):
    rows = [record("a") | {"language": "language English"}, record("b") | {"language": ""}]
    (folder / "latent.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_decoded(folder).languages == ("language English", "")
