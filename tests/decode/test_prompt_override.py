"""A decoding configuration may read another prompt than the model was trained with."""

import json

import pytest
from test_job import data_dir, decode, loaded, tables  # noqa: F401  (fixtures)

from espnet_latentasr.config import DecodeConfig, PromptConfig, build, config_hash, decode_hash
from espnet_latentasr.decode.job import Rule
from espnet_latentasr.decode.loading import Loaded
from espnet_latentasr.decode.nbest import NbestConfig
from espnet_latentasr.decode.nbest_job import run_nbest
from espnet_latentasr.decode.recogniser import Recogniser
from espnet_latentasr.errors import ConfigError
from espnet_latentasr.rescoring.nbest_list import read_nbest

TOLD = {"user_text": "Transcribe the audio into text."}


def rule(tag, prompt=None, kind="always", **keys):
    own = {} if prompt is None else {"prompt": prompt}
    return Rule(tag, build(DecodeConfig, {"halting": {"kind": kind}, "batch_size": 4} | own | keys))


@pytest.fixture(scope="module")
def trained_with_it(loaded):  # noqa: F811
    own = loaded.recogniser
    other = Recogniser(own.backbone, own.method, build(PromptConfig, TOLD))
    return Loaded(other, loaded.model_hash, loaded.backbone_fingerprint)


@pytest.mark.parametrize("keys", [{"kind": "never"}, {}, {"latents": "swapped"}])
def test_both_prompts_in_one_job_are_each_what_it_is_alone(
    loaded, trained_with_it, data_dir, tmp_path, keys  # noqa: F811
):
    decode(loaded, [rule("a", **keys), rule("b", TOLD, **keys)], data_dir, tmp_path / "both")
    decode(loaded, [rule("a", **keys)], data_dir, tmp_path / "own")
    decode(trained_with_it, [rule("b", **keys)], data_dir, tmp_path / "other")
    own, other = (tables(tmp_path / "both", tag) for tag in "ab")
    assert own == tables(tmp_path / "own", "a")
    assert other == tables(tmp_path / "other", "b")
    assert own != other, "the prompts must matter for this to show anything"


def test_the_prompt_is_stored_in_words_and_the_rest_keeps_its_identity(
    loaded, data_dir, tmp_path  # noqa: F811
):
    rules = [rule("a"), rule("b", TOLD), rule("c", {"language": "auto"})]
    decode(loaded, rules, data_dir, tmp_path)
    found = [json.loads((tmp_path / t / "test_tones/identity.json").read_text()) for t in "abc"]
    assert "prompt" not in found[0] and len({identity["decode"] for identity in found}) == 1
    assert build(PromptConfig, found[1]["prompt"]) == build(PromptConfig, TOLD)
    assert found[2]["prompt"]["language"] == "auto"
    lines = [json.loads(line) for line in open(tmp_path / "c/test_tones/latent.jsonl")]
    assert all("language" in row for row in lines)


def test_results_of_before_the_key_stay_finished():
    before = {
        "halting": {"kind": "never", "theta": 0.0, "steps": 0}, "on_halt": "keep", "depths": "policy",
        "latents": "own", "batch_size": 16, "tokens_per_second": 8.0, "tokens_extra": 16,
    }  # fmt: skip
    for prompt in ({}, {"prompt": None}, {"prompt": TOLD}):
        assert decode_hash(build(DecodeConfig, before | prompt)) == config_hash(before)


def test_candidate_lists_read_it_too(loaded, trained_with_it, data_dir, tmp_path):  # noqa: F811
    few, lists = NbestConfig(samples=2, beam=0), []
    for name, model, prompt in (
        ("own", loaded, None),
        ("told", loaded, TOLD),
        ("trained", trained_with_it, None),
    ):
        path = tmp_path / f"{name}.jsonl"
        run_nbest(model, rule(name, prompt, "never", tokens_extra=4).config, few, data_dir, path)
        lists.append(list(read_nbest(path)))
    own, told, trained = ([n.texts for n in found] for found in lists)
    assert told == trained != own
    assert lists[1][0].meta.extra["prompt"] == lists[2][0].meta.extra["prompt"]


def test_wrong_keys_are_refused():
    with pytest.raises(ConfigError, match="prompt.user_txt.*did you mean"):
        rule("a", {"user_txt": "x"})
