"""Scores in candidate lists, and the commands that train small models and apply them."""

from __future__ import annotations

import json

import pytest

from espnet_latentasr.bin import score_nbest, train_small_lm
from espnet_latentasr.data.kaldi_dir import write_kaldi_table
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.rescoring.nbest_list import Candidate, Meta, NBest, read_nbest, write_nbest
from espnet_latentasr.rescoring.score_lists import load_scorer, score_file

NOUNS = ("door", "gate", "lid", "box")
SENTENCES = [f"{verb} the {noun}" for verb in ("open", "close") for noun in NOUNS]
META = Meta("ar-sample", 3, "none", "m", seed=0, extra={"temperature": 1.0})


def make_list(utt_id: str, *surfaces: str, scores=()) -> NBest:
    hyps = tuple(Candidate(s.lower(), s, (1,), -1.0, scores=dict(scores)) for s in surfaces)
    return NBest(utt_id, META, hyps, "open the door")


@pytest.fixture
def lists(tmp_path):
    path = tmp_path / "nbest.jsonl"
    write_nbest(
        path,
        [
            make_list("utt1", "open the door", "open the Door", "open door the", scores={"old": -3.0}),
            make_list("utt2", "open the lid", "", "open the door", scores={"old": -3.0}),
        ],
    )
    return path


@pytest.fixture(scope="module")
def text_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "text"
    write_kaldi_table(path, {f"utt{i:03}": s for i, s in enumerate(SENTENCES * 8)})
    return path


@pytest.fixture(scope="module")
def models(text_file, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    small = "--width 16 --layers 1 --heads 2 --steps 60 --learning_rate 0.01 --held_out 0.2".split()
    for kind in ("masked", "causal"):
        train_small_lm.main(
            ["--text", str(text_file), "--kind", kind, "--out", str(folder / kind), *small]
        )
    train_small_lm.main(
        ["--text", str(text_file), "--kind", "ngram", "--order", "2", "--out", str(folder / "lm.arpa")]
    )
    return folder


def test_training_leaves_a_complete_folder(models):
    record = json.loads((models / "masked" / "training.json").read_text())
    assert record["held_out"] > 0 and record["plan"]["steps"] == 60
    assert record["held_out_perplexity"] < 8
    assert not list(models.glob("*.partial"))


@pytest.mark.parametrize(
    ("scorer", "model", "name"),
    [("pll", "masked", "pll"), ("ll", "causal", "ll"), ("ngram", "lm.arpa", "ng")],
)
def test_every_candidate_gets_its_texts_score(lists, models, tmp_path, scorer, model, name, capsys):
    out, options = tmp_path / "out.jsonl", tmp_path / "options.yaml"
    options.write_text("text: {casing: lower}\n")
    command = f"--nbest {lists} --scorer {scorer} --model {models / model} --config {options}"
    command += f" --name {name} --out {out} --cache_dir {tmp_path / 'cache'}"
    score_nbest.main(command.split())
    counts = f"2 lists, 6 candidates, 5 different texts, 5 scored now, {int(scorer == 'pll')} cand"
    assert counts in capsys.readouterr().out
    found = {c.surface: c.scores for nbest in read_nbest(out) for c in nbest.hyps}
    expected = load_scorer(scorer, str(models / model), options={"text": {"casing": "lower"}}).score(
        dict.fromkeys(found, "u")
    )
    for surface, scores in found.items():
        assert scores["old"] == -3.0
        if scorer == "pll" and not surface:
            assert name not in scores and expected[surface] is None
        else:
            assert scores[name] == pytest.approx(expected[surface], abs=1e-4)
    assert found["open the Door"][name] == pytest.approx(found["open the door"][name], abs=1e-4)
    assert found["open the door"][name] > found["open door the"][name]
    score_nbest.main(command.split())
    assert "5 different texts, 0 scored now" in capsys.readouterr().out
    score_nbest.main([*command.split(), "--text", "text"])
    assert "4 different texts, 0 scored now" in capsys.readouterr().out


def test_lists_scored_by_different_models_do_not_mix(lists, models, tmp_path):
    scorer = load_scorer("ngram", str(models / "lm.arpa"))
    other = load_scorer("ngram", str(models / "lm.arpa"), options={"eos": False})
    for name, each in (("a", scorer), ("b", other)):
        score_file(lists, tmp_path / name, "ngram", lambda n, e=each: e, lambda n, c: c.surface)
    metas = [next(read_nbest(tmp_path / name)).meta for name in "ab"]
    assert metas[0] != metas[1] and metas[0].extra["temperature"] == 1.0
    (identity,) = json.loads((tmp_path / "b.ngram.json").read_text()).values()
    assert identity["options"]["eos"] is False and identity["model"].startswith("sha256:")


def test_a_score_is_never_replaced(lists, models, tmp_path):
    scorer = load_scorer("ngram", str(models / "lm.arpa"))
    with pytest.raises(DataError, match="nbest.jsonl: utterance 'utt1': .*'old' already"):
        score_file(lists, tmp_path / "x", "old", lambda n: scorer, lambda n, c: c.surface)
    assert not (tmp_path / "x").exists()


def test_texts_in_another_casing_are_refused(lists, models, tmp_path):
    options = tmp_path / "upper.yaml"
    options.write_text("text: {casing: upper}\n")
    command = f"--nbest {lists} --scorer ngram --model {models / 'lm.arpa'} --config {options}"
    command += f" --out {tmp_path / 'out.jsonl'}"
    with pytest.raises(DataError, match="12 of 12 tokens are unknown"):
        score_nbest.main(command.split())
    score_nbest.main([*command.split(), "--max_unknown", "1"])


def test_options_without_effect_are_refused(models, tmp_path, lists):
    with pytest.raises(ConfigError, match="unknown key 'pll.bos'"):
        load_scorer("pll", str(models / "masked"), options={"bos": True})
    with pytest.raises(ConfigError, match="revision"):
        load_scorer("ngram", str(models / "lm.arpa"), revision="abc")
    with pytest.raises(ConfigError, match="none of pll"):
        load_scorer("bleu", "x")
    with pytest.raises(ConfigError, match="--dtype is without effect"):
        score_nbest.main(
            f"--nbest {lists} --scorer ngram --model x --dtype bfloat16 --out {tmp_path / 'o'}".split()
        )
    with pytest.raises(ConfigError, match="needs --data_dir"):
        score_nbest.main(f"--nbest {lists} --scorer ilm --model x --out {tmp_path / 'o'}".split())
