"""Decoding jobs: the same text however the work is cut, and nothing lost when it is killed."""

import json

import numpy as np
import pytest
import soundfile
import torch

from espnet_latentasr.adaptation.latent import LatentMethod
from espnet_latentasr.config import DecodeConfig, ModelConfig, PromptConfig, build
from espnet_latentasr.data.kaldi_dir import read_kaldi_table, write_kaldi_table
from espnet_latentasr.decode.job import Rule, run_job
from espnet_latentasr.decode.loading import Loaded
from espnet_latentasr.decode.merge import RECORDS, TABLES, merge_jobs
from espnet_latentasr.decode.recogniser import Clips, Recogniser, policy_of, token_cap
from espnet_latentasr.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory, clips):
    folder = tmp_path_factory.mktemp("dump") / "test_tones"
    folder.mkdir()
    ids = [f"utt{index}" for index in range(len(clips))]
    wav = {}
    for utt_id, clip in zip(ids, clips):
        wav[utt_id] = str(folder / f"{utt_id}.wav")
        soundfile.write(wav[utt_id], clip, 16000, "PCM_16")
    write_kaldi_table(folder / "wav.scp", wav)
    write_kaldi_table(folder / "text", dict.fromkeys(ids, "turn on the light"))
    write_kaldi_table(folder / "utt2spk", {i: i for i in ids})
    write_kaldi_table(folder / "spk2utt", {i: i for i in ids})
    write_kaldi_table(folder / "utt2lang", dict.fromkeys(ids, "en"))
    return folder


@pytest.fixture(scope="module")
def loaded(tiny_backbone):
    torch.manual_seed(0)
    method = LatentMethod(build(ModelConfig, {"latent": {"scale": {"init": 2.0}}}), tiny_backbone)
    torch.nn.init.normal_(method.value_head.linear.weight, std=2.0)
    return Loaded(Recogniser(tiny_backbone, method, PromptConfig()), "model", "tiny")


def rule(tag="decode_latent", batch_size=1, **halting):
    halting = halting or {"kind": "threshold", "theta": 0.0}
    return Rule(tag, build(DecodeConfig, {"halting": halting, "batch_size": batch_size}))


def decode(loaded, rules, data_dir, output, jobs=1):
    for job in range(1, jobs + 1):
        run_job(loaded, rules, data_dir, output, job, jobs)
    for each in rules:
        merge_jobs(output, each.tag, data_dir, jobs)


def tables(output, tag, name="test_tones"):
    folder = output / tag / name
    return {t: (folder / t).read_text() for t in TABLES if t != "score"}


def test_one_shard_is_four_shards_is_batch_eight(loaded, data_dir, tmp_path):
    found = []
    for index, (jobs, size) in enumerate([(1, 1), (4, 1), (1, 8)]):
        decode(loaded, [rule(batch_size=size)], data_dir, tmp_path / str(index), jobs)
        found.append(tables(tmp_path / str(index), "decode_latent"))
    assert found[0] == found[1] == found[2]
    steps = [
        [json.loads(x)["steps"] for x in open(tmp_path / f"{i}/decode_latent/test_tones/latent.jsonl")]
        for i in range(3)
    ]
    assert steps[0] == steps[1] == steps[2]
    assert len(set(steps[0])) > 1, "the random value head should treat utterances differently"


@pytest.mark.parametrize("size", [1, 8])
def test_infinite_threshold_is_the_frozen_recogniser(loaded, tiny_backbone, data_dir, tmp_path, size):
    rules = [
        rule("never", size, kind="never"),
        rule("infinite", size, kind="threshold", theta=float("inf")),
    ]
    decode(loaded, rules, data_dir, tmp_path / "latent")
    frozen = Loaded(Recogniser(tiny_backbone, None, PromptConfig()), "none", "tiny")
    decode(frozen, [rule("never", size, kind="never")], data_dir, tmp_path / "frozen")
    expected = tables(tmp_path / "frozen", "never")
    assert tables(tmp_path / "latent", "never") == expected
    assert tables(tmp_path / "latent", "infinite") == expected


def test_rules_decoded_together_equal_rules_decoded_alone(loaded, data_dir, tmp_path):
    rules = [rule("a", 4, kind="always"), rule("b", 4), rule("c", 4, kind="fixed", steps=2)]
    decode(loaded, rules, data_dir, tmp_path / "together")
    for each in rules:
        decode(loaded, [each], data_dir, tmp_path / "alone")
        assert tables(tmp_path / "together", each.tag) == tables(tmp_path / "alone", each.tag)
    rows = [json.loads(line) for line in open(tmp_path / "together/c/test_tones/latent.jsonl")]
    assert {row["steps"] for row in rows} == {2} and {row["stopped"] for row in rows} == {"step"}
    assert all(len(row["values"]) == 3 and len(row["update_cosines"]) == 1 for row in rows)


def test_trace_says_why_the_loop_ended(loaded, data_dir, tmp_path):
    decode(loaded, [rule("a", 4, kind="always"), rule("n", 4, kind="never")], data_dir, tmp_path)
    for tag, steps, stopped in (("a", 4, "budget"), ("n", 0, "entry")):
        for line in open(tmp_path / tag / "test_tones/latent.jsonl"):
            row = json.loads(line)
            assert (row["steps"], row["stopped"]) == (steps, stopped)
            assert set(row["seconds"]) == {"encode", "prefill", "loop", "decode"}


def test_a_finished_share_is_not_decoded_again(loaded, data_dir, tmp_path):
    assert run_job(loaded, [rule()], data_dir, tmp_path, 1, 1) == 8
    assert run_job(loaded, [rule()], data_dir, tmp_path, 1, 1) == 0
    other = rule(kind="threshold", theta=0.3)
    assert run_job(loaded, [other], data_dir, tmp_path, 1, 1) == 8, "another rule, same tag"
    new_model = Loaded(loaded.recogniser, "other weights", "tiny")
    assert run_job(new_model, [other], data_dir, tmp_path, 1, 1) == 8


def test_a_missing_job_is_an_error_and_more_jobs_than_utterances_are_fine(
    loaded, data_dir, tmp_path
):
    run_job(loaded, [rule()], data_dir, tmp_path, 1, 2)
    with pytest.raises(DataError, match="output.2: not finished"):
        merge_jobs(tmp_path, "decode_latent", data_dir, 2)
    with pytest.raises(DataError, match="another --inference_nj"):
        merge_jobs(tmp_path, "decode_latent", data_dir, 1)
    decode(loaded, [rule()], data_dir, tmp_path / "many", jobs=9)
    assert len(read_kaldi_table(tmp_path / "many/decode_latent/test_tones/token", True)) == 8


def test_records_cover_every_utterance_in_c_order(loaded, data_dir, tmp_path):
    decode(loaded, [rule()], data_dir, tmp_path, jobs=3)
    for name in RECORDS:
        ids = [
            json.loads(line)["utt_id"] for line in open(tmp_path / "decode_latent/test_tones" / name)
        ]
        assert ids == sorted(ids, key=str.encode) and len(ids) == 8


def test_latents_without_a_model_are_refused(tiny_backbone, clips):
    frozen = Recogniser(tiny_backbone, None, PromptConfig())
    with pytest.raises(ConfigError, match="needs a trained model"):
        frozen.recognise(Clips(clips[:1], ["en"]), [build(DecodeConfig, {"halting": {"kind": "always"}})])


def test_policies_and_caps():
    values = torch.tensor([-0.5, 0.0, 0.5])
    config = build(DecodeConfig, {"halting": {"kind": "threshold", "theta": 0.0}})
    assert policy_of(config.halting)(values, 0).tolist() == [False, True, True]
    fixed = build(DecodeConfig, {"halting": {"kind": "fixed", "steps": 2}})
    policy = policy_of(fixed.halting)
    assert [policy(values, k).tolist() for k in range(3)] == [[True] * 3, [True] * 3, [False] * 3]
    assert token_cap(16000, DecodeConfig()) == 24
    assert token_cap(16001, DecodeConfig()) == 25


def test_unknown_language_is_an_error(loaded, clips):
    with pytest.raises(DataError, match="language"):
        loaded.recogniser.recognise(Clips([np.zeros(16000, np.float32)], ["xx"]), [DecodeConfig()])


def test_new_samples_under_an_old_name_are_decoded_again(loaded, data_dir, tmp_path, clips):
    import shutil

    copy = tmp_path / "test_tones"
    shutil.copytree(data_dir, copy)
    table = {u: str(copy / f"{u}.wav") for u in read_kaldi_table(data_dir / "wav.scp")}
    write_kaldi_table(copy / "wav.scp", table)
    assert run_job(loaded, [rule()], copy, tmp_path / "out", 1, 1) == 8
    assert run_job(loaded, [rule()], copy, tmp_path / "out", 1, 1) == 0
    soundfile.write(table["utt3"], clips[0][::-1], 16000, "PCM_16")
    assert run_job(loaded, [rule()], copy, tmp_path / "out", 1, 1) == 8


def test_a_set_without_languages_is_an_error_that_says_what_to_write(loaded, data_dir, tmp_path):
    import shutil

    copy = tmp_path / "test_tones"
    shutil.copytree(data_dir, copy)
    (copy / "utt2lang").unlink()
    with pytest.raises(DataError, match="utt2lang: not found.*'utt1 en'"):
        run_job(loaded, [rule()], copy, tmp_path / "out", 1, 1)
