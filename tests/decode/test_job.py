"""Decoding jobs: the same text however the work is cut, and nothing lost when it is killed."""

import json
import shutil
import weakref

import numpy as np
import pytest
import soundfile
import torch

from espnet_latentasr.adaptation.latent import LatentMethod
from espnet_latentasr.bin import latentasr_inference
from espnet_latentasr.config import DecodeConfig, ModelConfig, PromptConfig, build
from espnet_latentasr.data.audio import read_audio
from espnet_latentasr.data.kaldi_dir import read_kaldi_table, write_kaldi_table
from espnet_latentasr.decode import share
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


@pytest.mark.parametrize("left", [b"", b'{"model": "mo', b"\xff\xfe"])
def test_a_damaged_marker_is_none(loaded, data_dir, undisturbed, tmp_path, left):
    assert run_job(loaded, [rule(batch_size=3)], data_dir, tmp_path, 1, 1) == 8
    (partial(tmp_path).parent / "done.json").write_bytes(left)
    run_job(loaded, [rule(batch_size=3)], data_dir, tmp_path, 1, 1)
    merge_jobs(tmp_path, "decode_latent", data_dir, 1)
    assert comparable(tmp_path, "decode_latent") == undisturbed


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
    copy = tmp_path / "test_tones"
    shutil.copytree(data_dir, copy)
    table = {u: str(copy / f"{u}.wav") for u in read_kaldi_table(data_dir / "wav.scp")}
    write_kaldi_table(copy / "wav.scp", table)
    assert run_job(loaded, [rule()], copy, tmp_path / "out", 1, 1) == 8
    assert run_job(loaded, [rule()], copy, tmp_path / "out", 1, 1) == 0
    soundfile.write(table["utt3"], clips[0][::-1], 16000, "PCM_16")
    assert run_job(loaded, [rule()], copy, tmp_path / "out", 1, 1) == 8


def test_a_set_without_languages_is_an_error_that_says_what_to_write(loaded, data_dir, tmp_path):
    copy = tmp_path / "test_tones"
    shutil.copytree(data_dir, copy)
    (copy / "utt2lang").unlink()
    with pytest.raises(DataError, match="utt2lang: not found.*'utt1 en'"):
        run_job(loaded, [rule()], copy, tmp_path / "out", 1, 1)


# Disturbed jobs


def comparable(output, tag, name="test_tones"):
    """All files of a set, records without what a clock measured."""
    folder = output / tag / name
    found = {t: (folder / t).read_text() for t in TABLES}
    for record in RECORDS:
        rows = [json.loads(line) for line in open(folder / record)]
        found[record] = [{k: v for k, v in row.items() if k != "seconds"} for row in rows]
    return found


@pytest.fixture(scope="module")
def undisturbed(loaded, data_dir, tmp_path_factory):
    output = tmp_path_factory.mktemp("undisturbed")
    decode(loaded, [rule(batch_size=3)], data_dir, output)
    return comparable(output, "decode_latent")


def partial(output, tag="decode_latent", job=1):
    return output / tag / "test_tones/logdir" / f"output.{job}" / "results.partial"


def copied(data_dir, place, clip=None):
    """The set below another folder; ``clip`` replaces the samples of utt3 as floats."""
    copy = place / "test_tones"
    shutil.copytree(data_dir, copy)
    table = {u: str(copy / f"{u}.wav") for u in read_kaldi_table(data_dir / "wav.scp")}
    write_kaldi_table(copy / "wav.scp", table)
    if clip is not None:
        soundfile.write(table["utt3"], clip, 16000, "FLOAT")
    return copy


class Spy:
    """Counts the batches of a recogniser; ends the job at one of them."""

    def __init__(self, recogniser, monkeypatch, dies_at=None):
        self.batches, original = [], recogniser.recognise

        def recognise(clips, configs, keys, donors):
            if len(self.batches) + 1 == dies_at:
                raise KeyboardInterrupt
            found = original(clips, configs, keys, donors)
            self.batches.append(list(keys))
            return found

        monkeypatch.setattr(recogniser, "recognise", recognise)


def test_a_killed_job_goes_on_behind_its_last_batch(
    loaded, data_dir, undisturbed, tmp_path, monkeypatch
):
    spy = Spy(loaded.recogniser, monkeypatch, dies_at=3)
    with pytest.raises(KeyboardInterrupt):
        run_job(loaded, [rule(batch_size=3)], data_dir, tmp_path, 1, 1)
    monkeypatch.undo()
    assert not partial(tmp_path).with_name("done.json").exists()
    with open(partial(tmp_path), "a") as file:
        file.write('{"utt_id": "cut of')
    again = Spy(loaded.recogniser, monkeypatch)
    assert run_job(loaded, [rule(batch_size=3)], data_dir, tmp_path, 1, 1) == 2
    assert [len(batch) for batch in again.batches] == [2]
    assert sorted(sum(spy.batches + again.batches, [])) == [f"utt{i}" for i in range(8)]
    merge_jobs(tmp_path, "decode_latent", data_dir, 1)
    assert comparable(tmp_path, "decode_latent") == undisturbed
    assert not partial(tmp_path).exists()


def test_a_rule_that_comes_later_is_decoded_beside_what_is_kept(
    loaded, data_dir, undisturbed, tmp_path, monkeypatch
):
    Spy(loaded.recogniser, monkeypatch, dies_at=2)
    with pytest.raises(KeyboardInterrupt):
        run_job(loaded, [rule(batch_size=3)], data_dir, tmp_path, 1, 1)
    monkeypatch.undo()
    rules = [rule(batch_size=3), rule("frozen", 3, kind="never")]
    decode(loaded, rules, data_dir, tmp_path)
    assert comparable(tmp_path, "decode_latent") == undisturbed
    decode(loaded, rules[1:], data_dir, tmp_path / "alone")
    assert comparable(tmp_path, "frozen") == comparable(tmp_path / "alone", "frozen")


def test_what_another_model_left_is_not_continued(loaded, data_dir, tmp_path, monkeypatch):
    Spy(loaded.recogniser, monkeypatch, dies_at=3)
    with pytest.raises(KeyboardInterrupt):
        run_job(loaded, [rule(batch_size=3)], data_dir, tmp_path, 1, 1)
    monkeypatch.undo()
    new_model = Loaded(loaded.recogniser, "other weights", "tiny")
    assert run_job(new_model, [rule(batch_size=3)], data_dir, tmp_path, 1, 1) == 8


def test_an_utterance_that_proves_bad_costs_only_itself(
    loaded, data_dir, undisturbed, tmp_path, clips, monkeypatch, caplog
):
    """NaN samples are no matter of a header; the others are decoded and kept, and the job fails."""
    bad = copied(data_dir, tmp_path, np.full(4000, np.nan))
    with pytest.raises(DataError, match="1 of 8 utterances could not be decoded.*'utt3': non_finite"):
        run_job(loaded, [rule(batch_size=3)], bad, tmp_path / "out", 1, 1)
    assert "left out: utterance 'utt3': non_finite" in caplog.text
    folder = partial(tmp_path / "out").parent
    assert [path.name for path in folder.iterdir()] == ["results.partial"], "no half result"
    with pytest.raises(DataError, match="not finished"):
        merge_jobs(tmp_path / "out", "decode_latent", bad, 1)
    shutil.copy(data_dir / "utt3.wav", bad / "utt3.wav")
    spy = Spy(loaded.recogniser, monkeypatch)
    assert run_job(loaded, [rule(batch_size=3)], bad, tmp_path / "out", 1, 1) == 3
    assert len(spy.batches) == 1 and "utt3" in spy.batches[0], "the batch that it belongs to"
    merge_jobs(tmp_path / "out", "decode_latent", bad, 1)
    assert comparable(tmp_path / "out", "decode_latent") == undisturbed


def test_a_bad_set_does_not_keep_the_next_from_being_decoded(
    loaded, data_dir, tmp_path, monkeypatch, caplog
):
    bad = copied(data_dir, tmp_path / "dump", np.full(4000, np.nan)).rename(tmp_path / "dump/test_bad")
    write_kaldi_table(
        bad / "wav.scp", {u: str(bad / f"{u}.wav") for u in read_kaldi_table(data_dir / "wav.scp")}
    )
    shutil.copytree(data_dir, tmp_path / "dump/test_tones")
    (tmp_path / "decode_latent.yaml").write_text("halting: {kind: threshold, theta: 0.0}\n")
    monkeypatch.setattr(latentasr_inference, "load_recogniser", lambda *_: loaded)
    words = ["--backbone_dir", "x", "--inference_config", tmp_path / "decode_latent.yaml"]
    words += ["--data_root", tmp_path / "dump", "--test_set", "test_bad", "--test_set", "test_tones"]
    with pytest.raises(DataError, match="test_bad: 1 of 8 utterances could not be decoded"):
        latentasr_inference.main([*map(str, words), "--output_dir", str(tmp_path / "out")])
    assert "test_tones: 8 utterances decoded in job 1" in caplog.text
    merge_jobs(tmp_path / "out", "decode_latent", data_dir, 1)


def test_unreadable_files_and_languages_are_named_before_any_work(
    loaded, data_dir, tmp_path, monkeypatch, caplog
):
    copy = copied(data_dir, tmp_path)
    spy = Spy(loaded.recogniser, monkeypatch)
    (copy / "utt2.wav").unlink()
    (copy / "utt6.wav").write_bytes((copy / "utt6.wav").read_bytes()[:999])
    with pytest.raises(DataError, match=r"utterance 'utt2': missing.*\(and 1 more"):
        run_job(loaded, [rule()], copy, tmp_path / "out", 1, 1)
    assert "utterance 'utt6': unreadable" in caplog.text
    for name in ("utt2", "utt6"):
        shutil.copy(data_dir / f"{name}.wav", copy / f"{name}.wav")
    languages = read_kaldi_table(copy / "utt2lang") | {"utt4": "xx", "utt5": "xx"}
    write_kaldi_table(copy / "utt2lang", languages)
    with pytest.raises(DataError, match="utterance 'utt4': unknown language 'xx'"):
        run_job(loaded, [rule()], copy, tmp_path / "out", 1, 1)
    assert spy.batches == []


def test_audio_of_one_batch_at_a_time_is_in_memory(loaded, data_dir, tmp_path, monkeypatch):
    clips, alive = [], []

    def read(*args, **options):
        clip = read_audio(*args, **options)
        clips.append(weakref.ref(clip))
        alive.append(sum(ref() is not None for ref in clips))
        return clip

    monkeypatch.setattr(share, "read_audio", read)
    assert run_job(loaded, [rule(batch_size=2)], data_dir, tmp_path, 1, 1) == 8
    assert len(clips) == 8 and max(alive) <= 2 * 2, "at most the batch before and this one"


def test_segments_of_a_recording_are_decoded_as_their_own_files_are(loaded, data_dir, tmp_path):
    """Two utterances cut out of one recording."""
    pieces = [soundfile.read(data_dir / f"utt{n}.wav", dtype="int16")[0] for n in (0, 5)]
    folder = tmp_path / "test_tones"
    folder.mkdir()
    soundfile.write(folder / "rec.wav", np.concatenate(pieces), 16000, "PCM_16")
    tables = {"wav.scp": {"rec": str(folder / "rec.wav")}}
    tables["segments"] = {"utt0": "rec 0.0 1.0", "utt5": "rec 1.0 2.25"}
    for name in ("text", "utt2spk", "utt2lang"):
        whole = read_kaldi_table(data_dir / name)
        tables[name] = {utt_id: whole[utt_id] for utt_id in ("utt0", "utt5")}
    for name, table in tables.items():
        write_kaldi_table(folder / name, table)
    assert run_job(loaded, [rule(batch_size=2)], folder, tmp_path / "out", 1, 1) == 2
    decode(loaded, [rule(batch_size=2)], data_dir, tmp_path / "files")
    cut = read_kaldi_table(partial(tmp_path / "out").parent / "1best_recog/text", True)
    found = read_kaldi_table(tmp_path / "files/decode_latent/test_tones/text", True)
    assert cut == {utt_id: found[utt_id] for utt_id in ("utt0", "utt5")}


def test_records_of_a_share_that_lost_one_are_refused(loaded, data_dir, tmp_path):
    run_job(loaded, [rule()], data_dir, tmp_path, 1, 1)
    path = partial(tmp_path).with_name("nbest.jsonl")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(DataError, match="nbest.jsonl: 7 records.* has 8 utterances"):
        merge_jobs(tmp_path, "decode_latent", data_dir, 1)
    assert not (tmp_path / "decode_latent/test_tones/nbest.jsonl").exists()
