"""Which decodings differ in the prompt only, and what the prompt changed."""

import json
from dataclasses import replace

import pytest

from espnet_latentasr.analysis.decoded import read_decoded
from espnet_latentasr.analysis.prompts import (
    changed_texts,
    describe,
    detected,
    detected_language,
    prompt_sets,
)
from espnet_latentasr.config import PromptConfig
from espnet_latentasr.errors import DataError
from espnet_latentasr.text.error_rate import score
from espnet_latentasr.text.normalize import get_normalizer
from espnet_latentasr.text.score_dir import write_score_dir

REFS = {"a": "x y", "b": "z", "c": ""}
AUTO, TOLD = PromptConfig(language="auto"), PromptConfig(user_text="Write it down.")


@pytest.fixture
def decoding(tmp_path):
    """Write and read one decoded set: (tag, hypotheses, prompt, other fields) -> Decoded."""

    def make(tag, hyps=REFS, prompt=None, decode="d", model="m", languages=None, name="test"):
        folder = tmp_path / tag / name
        result = score(REFS, hyps, "wer", get_normalizer("none"))
        write_score_dir(folder / "score_wer", result, {u: u for u in REFS}, language="en")
        row = {"values": [], "steps": 0, "stopped": "entry", "capped": False, "audio_seconds": 1.0}
        row |= {f"update_{kind}": [] for kind in ("norms", "cosines", "jumps")}
        row["seconds"] = dict.fromkeys(("encode", "prefill", "loop", "decode"), 0.1)
        rows = [row | {"utt_id": utt} for utt in REFS]
        if languages is not None:
            rows = [row | {"language": line} for row, line in zip(rows, languages)]
        (folder / "latent.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        identity = {"backbone": "b", "model": model, "decode": decode}
        identity |= {} if prompt is None else {"prompt": prompt}
        (folder / "identity.json").write_text(json.dumps(identity))
        return {(tag, name): read_decoded(folder)}

    return make


def test_sets_differ_in_the_prompt_only(decoding):
    decoded = (
        decoding("z_frozen")
        | decoding("frozen_auto", prompt={"language": "auto"})
        | decoding("frozen_again", prompt={})  # the official prompt, said explicitly
        | decoding("latent", decode="other rule")
        | decoding("other_weights", model="m2", prompt={"language": "auto"})
        | decoding("frozen_auto", prompt={"language": "auto"}, name="another_set")
    )
    (found,) = prompt_sets(decoded)
    # The official prompt comes first, whatever its tag; a second decoding of it is left out.
    assert (found.test_set, found.reference) == ("test", "frozen_again")
    assert list(found.decoded) == ["frozen_again", "frozen_auto"]
    assert found.decoded["frozen_auto"].prompt == AUTO


def test_without_the_official_prompt_the_first_tag_is_the_reference(decoding):
    decoded = decoding("b", prompt={"language": "auto"}) | decoding(
        "a", prompt={"user_text": "Write it down."}
    )
    (found,) = prompt_sets(decoded)
    assert (found.reference, found.decoded["a"].prompt) == ("a", TOLD)


def test_what_was_decoded_elsewhere_is_left_out(decoding):
    decoded = decoding("a") | decoding("b", prompt={"language": "auto"})
    assert prompt_sets({key: replace(d, prompt=None) for key, d in decoded.items()}) == []
    assert prompt_sets({}) == []


def test_other_references_are_refused(decoding):
    decoded = decoding("a") | decoding("b", prompt={"language": "auto"})
    one = decoded["b", "test"]
    decoded["b", "test"] = replace(one, lengths=one.lengths + 1)
    with pytest.raises(DataError, match="different utterances or references"):
        prompt_sets(decoded)


def test_descriptions():
    assert describe(PromptConfig()) == "official"
    assert describe(AUTO) == "language auto"
    assert describe(PromptConfig("auto", "names", "Go.")) == (
        "language auto, user text “Go.”, context “names”"
    )
    assert describe(PromptConfig(context="w " * 50)).endswith("w w …”")


def test_changed_texts(decoding):
    first = decoding("a")["a", "test"]
    other = decoding("b", REFS | {"b": "z z"})["b", "test"]
    assert changed_texts(first, first) == 0
    assert changed_texts(first, other) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("line", "code"),
    [("language English", "en"), ("language Cantonese", "yue"), ("<|de|>", "de"), ("", "no line"),
     ("language", "no line"), ("language Elvish", "Elvish")],
)  # fmt: skip
def test_languages_as_recognisers_write_them(line, code):
    assert detected_language(line) == code


def test_detected_languages(decoding):
    lines = ["language English", "language German", "language English"]
    found = decoding("a", prompt={"language": "auto"}, languages=lines)["a", "test"]
    assert detected(found).counts == {"en": 2, "de": 1} and detected(found).right is None
    assert detected(found, {"a": "en", "b": "English", "c": "en"}).right == pytest.approx(2 / 3)
    with pytest.raises(DataError, match="utterance 'c' .* has no language in utt2lang"):
        detected(found, {"a": "en", "b": "en"})
    assert detected(decoding("b")["b", "test"]) is None
