"""Learned rerankers: features by hand, parity with scikit-learn, folders, what is refused."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from espnet_latentasr.bin import choose_rescoring, rerank_nbest, train_reranker
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.rescoring.config import rescore_config
from espnet_latentasr.rescoring.grid import simplex
from espnet_latentasr.rescoring.nbest_list import Candidate, Meta, NBest, read_nbest, write_nbest
from espnet_latentasr.rescoring.posterior import Terms, loglinear, standardised
from espnet_latentasr.rescoring.rerankers import load_reranker
from espnet_latentasr.rescoring.rerankers_config import reranker_config
from espnet_latentasr.rescoring.rerankers_data import (
    Judged,
    draw_candidates,
    is_held_out,
    judged_lists,
    split_lists,
)
from espnet_latentasr.rescoring.rerankers_features import (
    NAMES,
    FeatureReranker,
    list_features,
    majority_agreement,
    train_features,
)
from espnet_latentasr.rescoring.select import select

META = Meta("sys", 8, "none", "m")
WORDS = ("turn", "on", "the", "light", "off", "now")


def row(utt: str, *hyps: tuple[str, float], ref: str | None = None, meta: Meta = META) -> NBest:
    made = (Candidate(t, t, tuple(range(1, 1 + len(t.split()))), lp) for t, lp in hyps)
    return NBest(utt, meta, tuple(made), ref)


def random_lists(count: int, seed: int, prefix: str = "utt") -> list[NBest]:
    """Lists whose log-probability says little about errors, unlike their length."""
    rng, lists = np.random.default_rng(seed), []
    for index in range(count):
        ref = " ".join(rng.choice(WORDS, 4))
        texts = {ref: None}
        while len(texts) < 5:
            words = [w for w in ref.split() if rng.random() > 0.4]
            texts[" ".join(words) or rng.choice(WORDS)] = None
        order = rng.permutation(list(texts))
        hyps = [(str(t), -float(rng.uniform(1, 3))) for t in order]
        lists.append(row(f"{prefix}{index:04d}", *hyps, ref=ref))
    return lists


# Features


def test_features_by_hand():
    found = list_features(row("u", ("a b", -1.0), ("a b c d", -3.0), ("x", -2.0)))
    column = dict(zip(NAMES, found.T.tolist()))
    assert column["logp"] == [-1.0, -3.0, -2.0] and column["rank"] == [0, 2, 1]
    assert column["logp_per_token"] == [-0.5, -0.75, -2.0]
    assert column["logp_per_character"] == pytest.approx([-1 / 3, -3 / 7, -2.0])
    assert (column["tokens"], column["characters"]) == ([2, 4, 1], [3, 7, 1])
    assert column["words"] == [2, 4, 1]
    sd = math.sqrt(14 / 9)
    assert column["tokens_z"] == pytest.approx([-1 / 3 / sd, 5 / 3 / sd, -4 / 3 / sd])
    # Distances over the longer one: 4/7, 3/3 and 7/7 characters, 2/4, 2/2 and 4/4 words.
    assert column["cer_to_others"] == pytest.approx([(4 / 7 + 1) / 2, (4 / 7 + 1) / 2, 1])
    assert column["wer_to_others"] == pytest.approx([0.75, 0.75, 1])
    assert column["agreement"] == [1, 1, 0]
    assert column["logp_below_best"] == [0, -2, -1]
    mass = np.exp([-1, -3, -2])
    p = mass / mass.sum()
    assert column["probability"] == pytest.approx(p.tolist())
    assert column["entropy"] == pytest.approx([-(p * np.log(p)).sum()] * 3)


def test_a_single_or_empty_candidate_has_finite_features():
    for hyps in ([("a b", -1.0)], [("", -1.0)], [("", -1.0), ("a", -2.0)]):
        assert np.isfinite(list_features(row("u", *hyps))).all()


def test_agreement_ties_go_to_the_first():
    assert majority_agreement([["a", "b"], ["c", "b"], []]).tolist() == [1.0, 0.5, 0.0]


@settings(max_examples=20)
@given(st.permutations(range(4)))
def test_features_follow_their_candidates(order):
    hyps = [("a b", -1.0), ("a c", -1.5), ("a", -2.0), ("d a b", -4.0)]
    straight = list_features(row("u", *hyps))
    turned = list_features(row("u", *(hyps[i] for i in order)))
    # All but the majority word, which goes to the first where two are equally frequent.
    kept = [i for i, name in enumerate(NAMES) if name != "agreement"]
    assert np.allclose(turned[:, kept], straight[order][:, kept])


# Data


def test_errors_are_those_of_the_normalised_reference(tmp_path):
    write_nbest(tmp_path / "n.jsonl", [row("u", ("a b", -1.0), ("a", -2.0), ref="a b c")])
    (judged,) = judged_lists(tmp_path / "n.jsonl", None, "wer")
    assert (judged.errors.tolist(), judged.length) == ([1, 2], 3)
    assert judged.rates.tolist() == pytest.approx([1 / 3, 2 / 3])
    (judged,) = judged_lists(tmp_path / "n.jsonl", {"u": "ab"}, "cer_nospace")
    assert judged.errors.tolist() == [0, 1]
    with pytest.raises(DataError, match="utterance 'u': no reference in --ref"):
        list(judged_lists(tmp_path / "n.jsonl", {}, "wer"))


def test_draws_depend_on_utterance_and_seed_alone():
    drawn = draw_candidates(100, 16, "u1", 1)
    assert drawn == draw_candidates(100, 16, "u1", 1) == sorted(set(drawn))
    assert drawn[0] == 0 and len(drawn) == 16 and drawn[-1] < 100
    assert drawn != draw_candidates(100, 16, "u2", 1) != draw_candidates(100, 16, "u2", 2)
    assert draw_candidates(3, 16, "u1", 1) == [0, 1, 2]
    share = np.mean([is_held_out(f"u{i}", 0.25, 7) for i in range(2000)])
    assert share == pytest.approx(0.25, abs=0.04)


def test_lists_without_a_choice_are_left_out_of_training(tmp_path):
    lists = random_lists(40, 0)
    name = next(f"v{i}" for i in range(99) if not is_held_out(f"v{i}", 0.2, 1))
    flat = row(name, ("a", -1.0), ("b", -2.0), ref="c")
    write_nbest(tmp_path / "n.jsonl", [*lists, flat])
    training, held_out = split_lists(tmp_path / "n.jsonl", None, "wer", 3, 0.2, 1)
    ids = {j.nbest.utt_id for j in training}
    assert name not in ids and ids.isdisjoint({j.nbest.utt_id for j in held_out})
    assert all(len(j.nbest) == len(j.errors) == 3 for j in training)
    assert all(len(set(j.errors)) > 1 for j in training)
    write_nbest(tmp_path / "flat.jsonl", [flat])
    with pytest.raises(DataError, match="0 lists to train on, 0 held out .1 lists"):
        split_lists(tmp_path / "flat.jsonl", None, "wer", 3, 0.2, 1)


# The feature reranker


def judged(lists):
    from espnet_latentasr.text.edit_distance import align

    return [
        Judged(n, np.array([align(n.ref.split(), t.split()).counts.errors for t in n.texts]), 4)
        for n in lists
    ]


@pytest.mark.parametrize("model", ["mlp", "ridge", "pairwise"])
def test_a_reranker_learns_what_the_lists_say(model):
    config = reranker_config({"kind": "features", "features": {"model": model}}).features
    arrays = train_features(judged(random_lists(120, 1)), config, 42)
    again = train_features(judged(random_lists(120, 1)), config, 42)
    assert all(np.array_equal(arrays[name], again[name]) for name in arrays)
    reranker, test = FeatureReranker(arrays), judged(random_lists(60, 2))
    chosen = sum(int(j.errors[np.argmax(reranker.score(j.nbest))]) for j in test)
    assert chosen < 0.5 * sum(int(j.errors[0]) for j in test)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scores_are_minus_the_predictions_of_the_library():
    """The arrays and numpy give what scikit-learn's own pipeline predicts."""
    from sklearn.linear_model import Ridge
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    lists, test = judged(random_lists(60, 3)), random_lists(5, 4)
    rows = np.concatenate([list_features(j.nbest) for j in lists])
    rates = np.concatenate([j.rates for j in lists])
    peers = {
        "mlp": MLPRegressor(hidden_layer_sizes=(32, 16), early_stopping=True, random_state=42),
        "ridge": Ridge(1.0),
    }
    for model, peer in peers.items():
        config = reranker_config({"kind": "features", "features": {"model": model}}).features
        fitted = make_pipeline(StandardScaler(), peer).fit(rows, rates)
        reranker = FeatureReranker(train_features(lists, config, 42))
        for nbest in test:
            expected = -fitted.predict(list_features(nbest))
            assert reranker.score(nbest) == pytest.approx(expected.tolist(), abs=1e-9)


# Commands


def test_from_lists_to_a_choice(tmp_path):
    """Train, score a development set, choose weights on it: by the commands."""
    write_nbest(tmp_path / "train.jsonl", random_lists(120, 1))
    write_nbest(tmp_path / "dev.jsonl", random_lists(40, 2, "dev"))
    (tmp_path / "c.yaml").write_text("kind: features\nfeatures: {model: ridge}\n")
    made = ["--nbest", tmp_path / "train.jsonl", "--config", tmp_path / "c.yaml"]
    train_reranker.main([str(part) for part in [*made, "--out", tmp_path / "r"]])
    record = json.loads((tmp_path / "r/reranker.json").read_text())
    assert record["config"]["features"]["model"] == "ridge" and record["config"]["seed"] == 42
    assert record["held_out"]["oracle"] <= record["held_out"]["reranker"] < record["held_out"]["greedy"]
    scored = tmp_path / "dev.value.jsonl"
    score = ["--nbest", tmp_path / "dev.jsonl", "--reranker", tmp_path / "r", "--out", scored]
    rerank_nbest.main([*map(str, score), "--name", "features"])
    lists = list(read_nbest(scored))
    reranker = load_reranker(tmp_path / "r").reranker
    assert [c.scores["features"] for c in lists[0].hyps] == reranker.score(lists[0])
    assert list(lists[0].meta.extra["scorers"]) == ["features"]
    grid = {
        "mix": {
            "rule": {"kind": "argmax", "term_unit": "list_sd", "names": {"value": "features"}},
            "simplex": {"keys": ["score.am", "score.value"], "step": 0.25},
        }
    }
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(grid))
    choose = ["--nbest", scored, "--grid", tmp_path / "grid.yaml", "--out", tmp_path / "chosen"]
    choose_rescoring.main(list(map(str, choose)))
    chosen = yaml.safe_load((tmp_path / "chosen/mix.yaml").read_text())
    assert chosen["score"]["value"] > chosen["score"]["am"]
    with pytest.raises(DataError, match="have a score 'features' already"):
        score[1] = scored
        rerank_nbest.main([*map(str, score), "--name", "features"])


@pytest.fixture
def trained(tmp_path):
    write_nbest(tmp_path / "train.jsonl", random_lists(60, 1))
    (tmp_path / "c.yaml").write_text("kind: features\nfeatures: {model: ridge}\n")
    options = ["--nbest", tmp_path / "train.jsonl", "--config", tmp_path / "c.yaml"]
    train_reranker.main([str(part) for part in [*options, "--out", tmp_path / "r"]])
    return tmp_path


def test_training_utterances_and_other_lists_are_refused(trained):
    options = ["--reranker", str(trained / "r"), "--out", str(trained / "out.jsonl")]
    with pytest.raises(DataError, match="trained on this utterance"):
        rerank_nbest.main(["--nbest", str(trained / "train.jsonl"), *options])
    other = row("dev", ("a", -1.0), meta=Meta("sys", 16, "none", "m"))
    write_nbest(trained / "other.jsonl", [other])
    with pytest.raises(DataError, match="lists with G 16, the reranker was trained on 8"):
        rerank_nbest.main(["--nbest", str(trained / "other.jsonl"), *options])
    assert not (trained / "out.jsonl").exists()
    rerank_nbest.main(["--nbest", str(trained / "other.jsonl"), *options, "--other_lists", "true"])
    assert (trained / "out.jsonl").exists()


def test_damaged_and_unfinished_folders_are_refused(trained):
    with pytest.raises(ConfigError, match="no finished reranker"):
        load_reranker(trained)
    path = trained / "r/reranker.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(DataError, match="damaged or exchanged"):
        load_reranker(trained / "r")


def test_what_a_kind_has_no_use_for_is_refused(trained):
    options = ["--nbest", trained / "train.jsonl", "--config", trained / "c.yaml", "--out", trained / "q"]
    with pytest.raises(ConfigError, match="kind: features has no use for --model"):
        train_reranker.main([*map(str, options), "--model", "x"])
    with pytest.raises(ConfigError, match="give both, or neither"):
        train_reranker.main([*map(str, options), "--embeddings", "x"])
    assert not (trained / "q").exists()


@pytest.mark.parametrize(
    "mapping, message",
    [
        ({}, "reranker.kind: missing"),
        ({"kind": "features", "value": {}}, "reranker.value: without effect under kind: features"),
        ({"kind": "features", "candidates": 4}, "candidates: without effect"),
        ({"kind": "features", "features": {"layers": "32 x"}}, "features.layers: '32 x'"),
        ({"kind": "value", "value": {"dropout": 1.0}}, "value.dropout: 1.0"),
        ({"kind": "masked", "masked": {"lr": 0}}, "masked.lr: 0.0, above 0"),
        ({"kind": "value", "held_out": 0}, "held_out: 0.0, above 0"),
        ({"kind": "values"}, "expected 'features' or 'value' or 'masked'"),
    ],
)
def test_wrong_configurations_are_refused(mapping, message):
    with pytest.raises(ConfigError, match=message):
        reranker_config(mapping)


# The three-way grid


def test_a_simplex_has_every_share_once():
    found = simplex({"keys": ["a", "b", "c"], "step": 0.1}, "g")
    assert len(found) == 66 and found[0] == {"a": 1.0, "b": 0.0, "c": 0.0}
    assert all(sum(share.values()) == pytest.approx(1) for share in found)
    assert len({tuple(share.values()) for share in found}) == 66
    halves = [tuple(s.values()) for s in simplex({"keys": ["a", "b"], "step": 0.5}, "g")]
    assert halves == [(1.0, 0.0), (0.5, 0.5), (0.0, 1.0)]


@pytest.mark.parametrize(
    "mapping", [{"keys": ["a"], "step": 0.5}, {"keys": ["a", "b"], "step": 0.3}, {"keys": ["a", "b"]}, 3]
)
def test_a_wrong_simplex_is_refused(mapping):
    with pytest.raises(ConfigError, match="g"):
        simplex(mapping, "g")


def test_standardised_terms():
    """Mean 0 and sd 1 over the candidates in use; a scorer's scale and offset then change nothing."""
    use = np.array([True, True, False, True])
    found = standardised(np.array([1.0, 3.0, 99.0, 5.0]), use)
    assert found[use].mean() == pytest.approx(0) and found[use].std() == pytest.approx(1)
    for equal in (7.0, 0.1, -1e300):
        assert standardised(np.full(4, equal), use).tolist() == [0] * 4
    assert np.full(3, 0.1).std() > 0, "so equal numbers are no matter of course"
    assert standardised(np.array([1.0]), np.array([False])).tolist() == [0]
    hyps = [
        Candidate(t, t, (1,), -am, scores={"pll": pll, "value": value})
        for t, am, pll, value in (("a", 1.0, -3.0, 0.2), ("b", 2.0, -1.0, 0.9), ("c", 3.0, -2.0, 0.1))
    ]
    nbest = NBest("u", META, tuple(hyps))
    weights = {"am": 0.5, "pll": 0.3, "value": 0.2}
    rule = {"kind": "argmax", "term_unit": "list_sd", "score": weights}
    terms = [[-1, -2, -3], [-3, -1, -2], [0.2, 0.9, 0.1]]
    expected = sum(
        w * (np.array(t) - np.mean(t)) / np.std(t) for w, t in zip(weights.values(), terms)
    )
    config = rescore_config(rule)
    found = loglinear(Terms(nbest), config.score, config.names, np.ones(3, bool), config.term_unit)
    assert found == pytest.approx(expected)
    assert select(nbest, config).index == int(np.argmax(expected)) == 1


def test_without_the_unit_a_rule_is_what_it_was():
    nbest = row("u", ("a", -1.0), ("b", -2.0), ("c", -4.0))
    plain = rescore_config({"kind": "argmax", "score": {"am": 2.0}})
    assert plain.term_unit == "nats"
    assert select(nbest, plain).criterion.tolist() == [2.0, 4.0, 8.0]
    with pytest.raises(ConfigError, match="term_unit: without effect under kind: greedy"):
        rescore_config({"kind": "greedy", "term_unit": "list_sd"})
    uniform = {"kind": "mbr", "posterior": {"kind": "uniform"}, "term_unit": "list_sd"}
    with pytest.raises(ConfigError, match="term_unit: without effect under kind: mbr"):
        rescore_config(uniform)


def test_recipe_configurations_are_valid():
    from pathlib import Path

    from espnet_latentasr.rescoring.grid import load_grid
    from espnet_latentasr.rescoring.rerankers_config import load_reranker_config

    conf = Path(__file__).parents[2] / "egs2/latentasr/asr1/conf/tuning"
    kinds = [load_reranker_config(p).kind for p in sorted(conf.glob("reranker_[!g]*.yaml"))]
    assert sorted(set(kinds)) == ["features", "masked", "value"]
    sizes = {name: len(trials) for name, trials in load_grid(conf / "reranker_grid_ctc.yaml").items()}
    assert sizes["masked_three_way"] == sizes["value_three_way"] == 66 and sizes["masked_mbr"] == 60
    assert list(itertools.islice(sizes, 1)) == ["features_alone"]
