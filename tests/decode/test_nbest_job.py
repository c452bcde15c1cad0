"""Candidate lists of a set: the same however work is cut, greedy as decoded, nothing lost or stale."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest
import soundfile
from test_job import data_dir, loaded  # noqa: F401  (fixtures)

from espnet_latentasr.adaptation.registry import build_method
from espnet_latentasr.backbone.frozen import Frozen, write_frozen
from espnet_latentasr.bin import ar_nbest, score_nbest
from espnet_latentasr.config import BackboneConfig, DecodeConfig, ModelConfig, PromptConfig, build
from espnet_latentasr.data.kaldi_dir import KaldiDir, read_kaldi_table
from espnet_latentasr.decode import nbest_job
from espnet_latentasr.decode.job import Rule, run_job
from espnet_latentasr.decode.loading import Loaded
from espnet_latentasr.decode.merge import merge_jobs
from espnet_latentasr.decode.nbest import NbestConfig
from espnet_latentasr.decode.nbest_job import merge_nbest, run_nbest
from espnet_latentasr.decode.recogniser import Recogniser
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.rescoring.nbest_list import read_nbest

FEW = NbestConfig(samples=3, beam=2)


def rule(**keys) -> DecodeConfig:
    short = {"tokens_per_second": 1.0, "tokens_extra": 4, "batch_size": 3}
    return build(DecodeConfig, {"halting": {"kind": "never"}} | short | keys)


@pytest.fixture(scope="module")
def frozen(tiny_backbone) -> Loaded:
    return Loaded(Recogniser(tiny_backbone, None, PromptConfig()), "none", tiny_backbone.fingerprint)


@pytest.fixture(scope="module")
def small(data_dir, tmp_path_factory):  # noqa: F811
    """Five of the clips: enough for two batches and two jobs."""
    folder = tmp_path_factory.mktemp("dump") / "test_few"
    KaldiDir.load(data_dir).subset([f"utt{i}" for i in (0, 1, 3, 4, 6)]).save(folder)
    return folder


def texts(path) -> dict[str, list[str]]:
    return {nbest.utt_id: nbest.texts for nbest in read_nbest(path)}


@pytest.fixture(scope="module")
def whole(frozen, small, tmp_path_factory):
    path = tmp_path_factory.mktemp("lists") / "nbest.jsonl"
    assert run_nbest(frozen, rule(), FEW, small, path) == 5
    return path


def test_shares_joined_are_the_whole(frozen, small, whole, tmp_path):
    shares = [tmp_path / f"nbest.{job}.jsonl" for job in (1, 2)]
    for job, path in enumerate(shares, 1):
        run_nbest(frozen, rule(batch_size=1), FEW, small, path, job, 2)
    assert merge_nbest(shares, tmp_path / "nbest.jsonl") == 5
    assert texts(tmp_path / "nbest.jsonl") == texts(whole)
    with pytest.raises(DataError, match="duplicate"):
        merge_nbest([*shares, shares[0]], tmp_path / "twice.jsonl")
    other = tmp_path / "other.jsonl"
    run_nbest(frozen, rule(), dataclasses.replace(FEW, seed=1), small, other, 2, 2)
    with pytest.raises(DataError, match="seed 1 against 0|seed 0 against 1"):
        merge_nbest([shares[0], other], tmp_path / "mixed.jsonl")


def test_a_row_says_how_it_was_made(whole, small):
    nbest = next(read_nbest(whole))
    assert nbest.ref == read_kaldi_table(small / "text")[nbest.utt_id]
    assert (nbest.meta.gen, nbest.meta.G, nbest.meta.num_paths) == ("ar-sample", 6, 3)
    assert nbest.meta.model == "tiny/none" and nbest.meta.extra["temperature"] == 1.0
    assert set(nbest.hyps[0].extra) == {"from", "samples", "variants", "capped", "looping"}


def test_a_finished_file_is_left_and_another_seed_text_or_rule_is_not(frozen, small, tmp_path):
    path = tmp_path / "nbest.jsonl"
    assert run_nbest(frozen, rule(), FEW, small, path) == 5
    assert run_nbest(frozen, rule(), FEW, small, path) == 0
    assert run_nbest(frozen, rule(), dataclasses.replace(FEW, max_rows=7), small, path) == 0
    assert run_nbest(frozen, rule(), dataclasses.replace(FEW, seed=1), small, path) == 5
    assert run_nbest(frozen, rule(tokens_extra=5), FEW, small, path) == 5
    assert not list(tmp_path.glob("*.partial"))


def test_a_killed_job_goes_on_behind_its_last_batch(frozen, small, whole, tmp_path, monkeypatch):
    path, calls = tmp_path / "nbest.jsonl", []
    original = nbest_job.nbest_lists

    def dying(*args, **kwargs):
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    monkeypatch.setattr(nbest_job, "nbest_lists", dying)
    with pytest.raises(KeyboardInterrupt):
        run_nbest(frozen, rule(), FEW, small, path)
    monkeypatch.undo()
    partial = tmp_path / "nbest.jsonl.partial"
    with open(partial, "a") as file:
        file.write('{"utt_id": "cut of')
    assert not path.exists()
    assert run_nbest(frozen, rule(), FEW, small, path) == 2
    assert path.read_text() == whole.read_text() and not partial.exists()


def test_a_partial_file_of_another_kind_is_not_used(frozen, small, whole, tmp_path):
    partial = tmp_path / "nbest.jsonl.partial"
    partial.write_text('{"model": "other"}\n' + whole.read_text())
    assert run_nbest(frozen, rule(), FEW, small, tmp_path / "nbest.jsonl") == 5


def test_an_utterance_that_proves_bad_costs_only_itself(frozen, small, whole, tmp_path, caplog):
    data = KaldiDir.load(small)
    wav = tmp_path / "utt3.wav"
    soundfile.write(wav, np.full(4000, np.nan), 16000, "FLOAT")
    copy = dataclasses.replace(data, wav=data.wav | {"utt3": str(wav)}).save(tmp_path / "test_few").path
    out = tmp_path / "nbest.jsonl"
    with pytest.raises(DataError, match="1 of 5 utterances could not be decoded.*'utt3': non_finite"):
        run_nbest(frozen, rule(), FEW, copy, out)
    assert "left out: utterance 'utt3'" in caplog.text and not out.exists()
    shutil.copy(data.wav["utt3"], wav)
    assert run_nbest(frozen, rule(), FEW, copy, out) == 3, "its batch, as a whole"
    assert out.read_text() == whole.read_text()


# A trained model


def decoded(loaded, small, tmp_path, config, tag="decode"):  # noqa: F811
    run_job(loaded, [Rule(tag, config)], small, tmp_path, 1, 1)
    merge_jobs(tmp_path, tag, small, 1)
    return tmp_path / tag / small.name


@pytest.mark.parametrize("halting", [{"kind": "never"}, {"kind": "threshold", "theta": 0.0}])
def test_the_greedy_candidate_is_what_decoding_gives(loaded, small, tmp_path, halting):  # noqa: F811
    config = rule(halting=halting)
    expected = read_kaldi_table(decoded(loaded, small, tmp_path, config) / "text", allow_empty=True)
    run_nbest(loaded, config, FEW, small, tmp_path / "nbest.jsonl")
    found = {nbest.utt_id: nbest.hyps[0] for nbest in read_nbest(tmp_path / "nbest.jsonl")}
    assert {utt_id: c.surface for utt_id, c in found.items()} == expected
    scores = read_kaldi_table(tmp_path / "decode" / small.name / "score")
    for utt_id, candidate in found.items():
        if not candidate.extra["capped"]:
            # Decoding counts the one end token it took, the list all of them.
            assert candidate.path_logp >= float(scores[utt_id]) - 1e-3


def test_latents_change_the_lists_and_adapted_models_have_their_own(
    loaded, tiny_backbone, small, whole, tmp_path  # noqa: F811
):
    run_nbest(loaded, rule(halting={"kind": "always"}), FEW, small, tmp_path / "latent.jsonl")
    assert texts(tmp_path / "latent.jsonl") != texts(whole)
    run_nbest(loaded, rule(), FEW, small, tmp_path / "frozen.jsonl")
    assert texts(tmp_path / "frozen.jsonl") == texts(whole), "never: the frozen recogniser's lists"
    with pytest.raises(ConfigError, match="depths: policy"):
        run_nbest(loaded, rule(halting={"kind": "always"}, depths="all"), FEW, small, tmp_path / "x")
    full = build_method(build(ModelConfig, {"adaptation": "full"}), tiny_backbone)
    for parameter in full.parameters():
        parameter.data.mul_(1.1)
    adapted = Loaded(Recogniser(tiny_backbone, full, PromptConfig()), "full", "tiny")
    run_nbest(adapted, rule(halting={"kind": "always"}), FEW, small, tmp_path / "full.jsonl")
    assert texts(tmp_path / "full.jsonl") != texts(whole)


def test_lists_by_depth_are_taken_in(loaded, small, tmp_path):  # noqa: F811
    depths = rule(halting={"kind": "always"}, depths="all")
    by_depth = decoded(loaded, small, tmp_path, depths) / "nbest.jsonl"
    config = rule(halting={"kind": "never"})
    out = tmp_path / "nbest.jsonl"
    run_nbest(loaded, config, FEW, small, out, depth_nbest=by_depth)
    for union, views in zip(read_nbest(out), read_nbest(by_depth), strict=True):
        assert set(views.texts) <= set(union.texts)
        for view in views.hyps:
            (same,) = [c for c in union.hyps if c.text == view.text]
            assert "depth" in same.extra["from"] and same.depth <= view.depth
        assert union.hyps[0].depth == 0
    assert run_nbest(loaded, config, FEW, small, out) == 5, "without them it is another list"
    strange = Loaded(loaded.recogniser, "another model", "tiny")
    with pytest.raises(DataError, match="decoded by model 'model'"):
        run_nbest(strange, config, FEW, small, tmp_path / "x", depth_nbest=by_depth)


# The commands


@pytest.fixture(scope="module")
def backbone_dir(tiny_backbone_dir, tmp_path_factory):
    from espnet_latentasr.backbone.qwen3_asr import load_qwen3_asr

    folder = tmp_path_factory.mktemp("backbone")
    loaded_backbone = load_qwen3_asr(str(tiny_backbone_dir))
    record = Frozen(BackboneConfig(name=str(tiny_backbone_dir)), loaded_backbone.fingerprint, 1, "x")
    write_frozen(folder, record, loaded_backbone.text.vocabulary())
    return folder


def test_commands_make_and_score_lists(backbone_dir, small, tmp_path, capsys):
    (tmp_path / "decode.yaml").write_text(
        "halting: {kind: never}\ntokens_per_second: 1.0\ntokens_extra: 4\n"
    )
    lists, config = tmp_path / "nbest.jsonl", f"--inference_config {tmp_path / 'decode.yaml'}"
    base = f"--backbone_dir {backbone_dir} --data_dir {small} {config}"
    ar_nbest.main(f"{base} --out {lists} --samples 3 --temperature 0.5 --normalizer whisper_en".split())
    assert "5 utterances computed" in capsys.readouterr().out
    assert next(read_nbest(lists)).meta.extra["temperature"] == 0.5
    out = tmp_path / "scored.jsonl"
    ilm = f"--nbest {lists} --scorer ilm --model {backbone_dir} --data_dir {small} --out {out}"
    score_nbest.main([*ilm.split(), "--cache_dir", str(tmp_path / "cache")])
    first = capsys.readouterr().out
    score_nbest.main([*ilm.split(), "--cache_dir", str(tmp_path / "cache")])
    again = capsys.readouterr().out
    assert "0 scored now" in again and "0 scored now" not in first
    for nbest in read_nbest(out):
        assert all(-1000 < c.scores["ilm"] < 0 for c in nbest.hyps)
        assert len({round(c.scores["ilm"], 4) for c in nbest.hyps}) == len(nbest)
    (identity,) = json.loads((tmp_path / "scored.jsonl.ilm.json").read_text()).values()
    assert identity["scorer"] == "InternalLM" and "language English" in identity["prompt"][1]
    with pytest.raises(DataError, match="have a score 'ilm' already"):
        score_nbest.main(ilm.replace(str(lists), str(out), 1).split())
    with pytest.raises(ConfigError, match="--revision is without effect"):
        score_nbest.main([*ilm.split(), "--revision", "abc"])
    ar_nbest.main(["--merge", str(lists), "--out", str(tmp_path / "merged.jsonl")])
    assert (tmp_path / "merged.jsonl").read_text() == lists.read_text()
    with pytest.raises(ConfigError, match="needed"):
        ar_nbest.main(["--out", "x"])
