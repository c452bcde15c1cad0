"""Grids of rescoring rules, and the choice on a development set."""

import csv

import pytest
import yaml

from espnet_latentasr.bin import choose_rescoring
from espnet_latentasr.errors import ConfigError
from espnet_latentasr.rescoring.config import load_rescore_config
from espnet_latentasr.rescoring.grid import load_grid
from espnet_latentasr.rescoring.nbest_list import Candidate, Meta, NBest, write_nbest

META = Meta("sys", 2, "none", "m")


def test_every_combination_in_order(tmp_path):
    (tmp_path / "base.yaml").write_text("kind: mbr\nloss: wer\nscore: {pll: 1.0}\n")
    (tmp_path / "grid.yaml").write_text(
        "joint: {rule: base.yaml, try: {score.am: [1.0, 2.0], posterior.tau: [1, 5, 9]}}\n"
        "argmax: {rule: {kind: argmax, score: {am: 1.0}}}\n"
    )
    grid = load_grid(tmp_path / "grid.yaml")
    assert [trial.values for trial in grid["joint"]] == [
        {"score.am": am, "posterior.tau": tau} for am in (1.0, 2.0) for tau in (1, 5, 9)
    ]
    config = grid["joint"][4].config
    assert (config.score.am, config.score.pll, config.posterior.tau, config.loss) == (2, 1, 5, "wer")
    assert [trial.values for trial in grid["argmax"]] == [{}]


@pytest.mark.parametrize(
    "text, message",
    [
        ("r: {rule: {kind: argmax}, try: {score.am: 1.0}}", "r.try.score.am: 1.0, a list of values"),
        ("r: {rule: {kind: argmax}, try: {score.am: []}}", r"r.try.score.am: \[\], a list of values"),
        ("r: {rules: {kind: argmax}}", "r.rules: unknown; 'rule' and 'try' expected"),
        ("r: {rule: {kind: argmax}, try: {posterior.tau: [1]}}", "posterior: without effect"),
        ("r: 3", "r: 3, a mapping with 'rule' and 'try' expected"),
        ("", "no rule in it"),
    ],
)
def test_a_wrong_grid_is_refused(tmp_path, text, message):
    (tmp_path / "grid.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_grid(tmp_path / "grid.yaml")


def test_the_choice_is_the_lowest_rate_and_of_ties_the_first(tmp_path):
    def row(utt, *hyps):
        made = (Candidate(t, t, (1,), am, 1, am, {"pll": pll}) for t, am, pll in hyps)
        return NBest(utt, META, tuple(made))

    lists = [
        row("u1", ("a x", -1.0, -9.0), ("a b", -2.0, -1.0)),  # pll is right
        row("u2", ("c d", -1.0, -9.0), ("c x", -9.0, -8.0)),  # am is right, unless pll weighs much
    ]
    write_nbest(tmp_path / "dev.jsonl", lists)
    (tmp_path / "text").write_text("u1 a b\nu2 c d\n")
    (tmp_path / "grid.yaml").write_text(
        "both: {rule: {kind: argmax, score: {am: 1.0}}, try: {score.pll: [0.0, 0.5, 1.0, 20.0]}}\n"
    )
    options = ["--nbest", tmp_path / "dev.jsonl", "--ref", tmp_path / "text"]
    options += ["--grid", tmp_path / "grid.yaml", "--out", tmp_path / "out"]
    choose_rescoring.main(list(map(str, options)))
    with open(tmp_path / "out/tried.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(r["error rate"]) for r in rows] == [25.0, 0.0, 0.0, 25.0]
    assert [r["chosen"] for r in rows] == ["False", "True", "False", "False"]
    written = tmp_path / "out/both.yaml"
    assert yaml.safe_load(written.read_text()) == {"kind": "argmax", "score": {"am": 1.0, "pll": 0.5}}
    assert load_rescore_config(written).score.pll == 0.5
