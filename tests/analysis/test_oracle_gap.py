"""The oracle gap of hand-made lists, and the commands that choose and report without a model."""

import csv
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from espnet_latentasr.analysis.ctc_frames import frame_rows, frame_shares
from espnet_latentasr.analysis.oracle_gap import (
    best_alpha,
    condition_rows,
    depth_rows,
    diversity,
    list_ranking,
    macro_rate,
    mean_interval,
    nested_sizes,
    oracle_by_size,
    proposition1,
    ranking_by_size,
    ranking_row,
    ranking_rows,
    rule_rows,
    subsets,
    sweep_row,
)
from espnet_latentasr.analysis.oracle_lists import Judged, Study, study_file, sweep_rules
from espnet_latentasr.bin import oracle_gap as oracle_gap_command
from espnet_latentasr.bin import rescore as rescore_command
from espnet_latentasr.data.kaldi_dir import read_kaldi_table
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.report.oracle_summary import summary_markdown
from espnet_latentasr.rescoring.config import rescore_config
from espnet_latentasr.rescoring.nbest_list import Candidate, Meta, NBest, write_nbest

ROOT = Path(__file__).parents[2]
META = Meta("sys", 3, "none", "m")
# utterance: reference, then (text, am, pll) by candidate.
LISTS = {
    # Recoverable; the masked model finds the oracle.
    "u1": ("a b c d", [("a b x d", -1, -9), ("a b c d", -2, -1), ("a y x d", -3, -9)]),
    # Greedy is right; the masked model prefers another text.
    "u2": ("e f", [("e f", -1, -9), ("e g", -2, -1), ("g g", -4, -8)]),
    # Nothing better than greedy: a coverage error.
    "u3": ("h i j", [("h i k", -1, -2), ("h k k", -2, -3), ("k k k", -3, -4)]),
    # Recoverable, not found: a selection error.
    "u4": ("l", [("l m", -1, -1), ("l", -2, -9), ("l m n", -3, -5)]),
    # One empty candidate, and only one with text.
    "u5": ("o p", [("", -1, None), ("o p", -2, -3)]),
}


def nbest(utt, rows, meta=META, **more):
    hyps = []
    for index, (text, am, pll) in enumerate(rows):
        scores = {} if pll is None else {"pll": float(pll)}
        depth = index if meta.gen == "latent-depth" else None
        path = None if depth is not None else am - 0.5
        tokens = tuple(map(ord, text))
        hyps.append(Candidate(text, text, tokens, float(am), 1, path, scores, depth))
    return NBest(utt, meta, tuple(hyps), **more)


@pytest.fixture
def saved(tmp_path):
    write_nbest(tmp_path / "nbest.jsonl", (nbest(u, rows) for u, (_, rows) in LISTS.items()))
    (tmp_path / "text").write_text("".join(f"{u} {ref}\n" for u, (ref, _) in LISTS.items()))
    return tmp_path


REFS = {utt: ref for utt, (ref, _) in LISTS.items()}
PLL = rescore_config({"posterior": {"tau": 0.1}})
RULES = {"pll": PLL, "greedy": rescore_config({"kind": "greedy"})}


@pytest.fixture
def study(saved):
    rules = sweep_rules(RULES, [1, 2, 3], [0.1, math.inf], [0.0, 1.0], ["pll"])
    return study_file(saved / "nbest.jsonl", REFS, rules)


def test_errors_and_choices_by_hand(study):
    assert [judged.errors.tolist() for judged in study.lists] == [
        [1, 0, 2], [0, 1, 2], [1, 2, 3], [1, 0, 2], [2, 0]
    ]  # fmt: skip
    assert study.lengths.tolist() == [4, 2, 3, 1, 2] and study.greedy.tolist() == [1, 0, 1, 1, 2]
    assert study.choices["pll"].errors == [0, 1, 1, 1, 0]
    assert study.choices["pll"].changed == [True, True, False, False, True]
    assert study.choices["pll"].rank == [1, 2, 1, 3, 1]
    assert study.choices["pll"].near == [0, 1, 0, 1, 0]
    assert study.choices["greedy"].errors == [1, 0, 1, 1, 2]


def test_oracle_over_nested_lists(study):
    one, two, three = oracle_by_size(study, [1, 2, 3])
    assert (one["greedy"], one["oracle"], one["gap"], one["coverage"]) == (5 / 12, 5 / 12, 0, 0)
    assert two["oracle"] == three["oracle"] == pytest.approx(1 / 12)
    assert two["relative gap"] == pytest.approx(0.8)
    assert (two["recoverable"], two["coverage"], two["greedy wrong"], two["not covered"]) == (3, 1, 4, 1)


def test_selection_and_coverage_errors(study):
    pll, greedy = rule_rows(study, ["pll", "greedy"], replicates=200)
    assert pll["error rate"] == pytest.approx(3 / 12) and pll["delta"] == pytest.approx(-2 / 12)
    assert (pll["coverage errors"], pll["selection errors"]) == (1, 2)
    assert (pll["recoverable"], pll["selection"]) == (3, 1)
    assert pll["closure"] == pytest.approx(0.5)
    assert pll["picked"] == pytest.approx(2 / 3) and pll["within one"] == 1
    assert (pll["rank median"], pll["rank mean"]) == (1, pytest.approx(5 / 3))
    assert (pll["changed"], pll["better"], pll["worse"], pll["same"]) == (3, 2, 1, 2)
    assert pll["macro"] == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 + 0) / 5)
    assert (greedy["closure"], greedy["delta"], greedy["p"], greedy["picked"]) == (0, 0, 1, 0)
    assert pll["low"] <= pll["delta"] <= pll["high"]
    assert pll["Holm p"] == pytest.approx(min(1, 2 * pll["p"]))
    swept = sweep_row(study, "pll tau=0.1", 200)
    assert {k: swept[k] for k in ("error rate", "delta", "low", "p")} == {
        k: pll[k] for k in ("error rate", "delta", "low", "p")
    }


def test_without_a_gap_closure_is_undefined(tmp_path):
    write_nbest(tmp_path / "n.jsonl", [nbest("u", [("a", -1, -1), ("b", -2, -2)])])
    study = study_file(tmp_path / "n.jsonl", {"u": "a"}, RULES)
    (row,) = rule_rows(study, ["pll"], 100)
    assert row["closure"] is None and row["picked"] is None and row["recoverable"] == 0


def test_macro_leaves_empty_references_out():
    assert macro_rate(np.array([1, 3, 1]), np.array([2, 0, 4])) == pytest.approx(0.375)
    assert math.isnan(macro_rate(np.array([1]), np.array([0])))


@settings(max_examples=25)
@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=9), min_size=1, max_size=6))
def test_the_oracle_is_never_worse_than_greedy_and_falls_with_size(drawn):
    lists = [Judged(str(i), 5, np.array(errors), {}, 1, 0.0) for i, errors in enumerate(drawn)]
    rows = oracle_by_size(Study(META, "wer", lists, {}), nested_sizes(9))
    rates = [row["oracle"] for row in rows]
    assert rates[0] == rows[0]["greedy"] and rates == sorted(rates, reverse=True)
    coverage = [row["coverage"] for row in rows]
    assert coverage == [None] * 5 or (coverage == sorted(coverage) and coverage[-1] == 1)


def test_nested_sizes():
    assert [nested_sizes(n) for n in (1, 2, 6, 8)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]


def test_ranking_of_one_list_equals_scipy():
    judged = Judged(
        "u", 9, np.array([2, 0, 3, 3, 1]), {"s": np.array([-1.0, -2, -5, -5, np.nan])}, 5, 0.0
    )
    rho, tau, top = list_ranking(judged, "s")
    values, errors = [-1, -2, -5, -5], [2, 0, 3, 3]
    assert rho == pytest.approx(scipy_stats.spearmanr(values, errors).statistic)
    assert tau == pytest.approx(scipy_stats.kendalltau(values, errors).statistic)
    assert top == 0
    assert list_ranking(judged, "s", 2) is None and list_ranking(judged, "none") is None
    alike = Judged("u", 9, np.array([1, 1, 1]), {"s": np.arange(3.0), "t": np.ones(3)}, 3, 0.0)
    assert list_ranking(alike, "s") is None and list_ranking(alike, "t") is None


def test_ranking_summary():
    found = [(-1.0, -0.5, 1.0), None, (0.5, 0.5, 0.0), (-0.25, -0.1, 1.0)]
    row = ranking_row(found, 500)
    assert row["N"] == 3 and row["rho"] == pytest.approx(-0.25) and row["anti"] == pytest.approx(1 / 3)
    assert row["tau-b"] == pytest.approx(-0.1 / 3) and row["P(top is best)"] == pytest.approx(2 / 3)
    assert -1 <= row["low"] <= row["rho"] <= row["high"] <= 0.5
    nothing = ranking_row([None])
    assert nothing["N"] == 0 and nothing["rho"] is None


def test_interval_of_a_mean_is_seeded_and_shrinks():
    values = np.random.default_rng(0).normal(1, 2, 400)
    found = mean_interval(values, 2000)
    assert found == mean_interval(values, 2000)
    error = 1.96 * values.std() / 20
    assert found.low == pytest.approx(values.mean() - error, abs=0.04)
    assert found.high == pytest.approx(values.mean() + error, abs=0.04)
    assert math.isnan(mean_interval(values[:1]).low)


def test_rankings_of_the_study(study):
    rows = {(row["score"], row["subset"]): row for row in ranking_rows(study, 200)}
    # am ranks u2 and u3 perfectly; u1 and u4 have their best candidate second.
    assert rows["am", "all"]["N"] == 4 and rows["am", "all"]["rho"] == pytest.approx(-0.75)
    assert rows["am", "greedy optimal"]["rho"] == pytest.approx(-1)
    assert rows["path", "all"]["rho"] == rows["am", "all"]["rho"]
    assert rows["pll", "recoverable"]["N"] == 2
    sized = ranking_by_size(study, [1, 2, 3], 200)
    assert {row["G"] for row in sized} == {3}
    assert sized[0]["rho"] == rows["am", "all"]["rho"]
    masks = subsets(study)
    assert masks["recoverable"].tolist() == [True, False, False, True, True]
    thirds = [mask for name, mask in masks.items() if "length" in name]
    assert np.sum(thirds, axis=0).tolist() == [1] * 5


def test_interpolation_sweep(study):
    alpha, rate = best_alpha(study, "pll", [0.0, 1.0], 3)
    assert (alpha, rate) == (0.0, pytest.approx(3 / 12)), "alpha 1 is greedy, except the empty text"
    assert study.choices["pll alpha=1@3"].errors == [1, 0, 1, 1, 2]


def test_diversity(study):
    row = diversity(study)
    assert (row["distinct"], row["drawn"], row["full"], row["one candidate"]) == (2.8, 2.8, 0.8, 0)
    # Word distances: u1 1 1 2, u2 1 2 1, u3 1 2 1, u4 1 1 2, u5 2.
    assert row["pairwise distance"] == pytest.approx((4 / 3 * 4 + 2) / 5)


def test_proposition_1_is_measured_not_assumed(tmp_path):
    rows = [("a a a a", -1, -3.0), ("a a a b", -1, -1.0), ("b b b b", -1, -1.2)]
    write_nbest(tmp_path / "n.jsonl", [nbest("u", rows)])
    config = rescore_config({"posterior": {"tau": 1}})
    choices = study_file(tmp_path / "n.jsonl", {"u": "a"}, {"r": config}).choices["r"]
    q = np.exp([-3.0, -1.0, -1.2])
    q /= q.sum()
    losses = np.array([[0, 1, 4], [1, 0, 3]]) / 7
    wanted = [(q * row**2).sum() - (q * row).sum() ** 2 for row in losses[::-1]]
    assert choices.variance[0] == pytest.approx(wanted)
    assert choices.changed == [True]
    assert proposition1(choices) == float(wanted[0] > wanted[1])


def test_depth_oracle_of_latent_lists(tmp_path):
    meta = Meta("latent-depth", 3, "none", "m")
    lists = [
        nbest("u1", [("a b", -1, -1), ("a c", -1, -1), ("a c", -1, -1)], meta),
        nbest("u2", [("x", -1, -1), ("y", -1, -1), ("z", -1, -1)], meta),
        nbest("u3", [("w", -1, -1), ("w", -1, -1), ("w", -1, -1)], meta),
    ]
    write_nbest(tmp_path / "n.jsonl", lists)
    study = study_file(tmp_path / "n.jsonl", {"u1": "a c", "u2": "z", "u3": "w"}, {})
    assert [len(judged.errors) for judged in study.lists] == [2, 3, 1]
    rows = {row["rule"]: row for row in depth_rows(study)}
    assert [rows[f"depth {k}"]["error rate"] for k in range(3)] == [2 / 4, 1 / 4, 0]
    assert rows["oracle"]["error rate"] == 0 and rows["depth 1"]["closure"] == pytest.approx(0.5)
    assert rows["depth 1"]["picked"] == 1 and rows["oracle"]["recoverable"] == 2


def test_lists_that_are_not_by_depth_have_no_depth_oracle(study):
    assert depth_rows(study) == []


def test_scores_and_references_must_be_complete(saved, tmp_path):
    path = saved / "nbest.jsonl"
    with pytest.raises(DataError, match="utterance 'u5': no reference among 4"):
        study_file(path, {u: r for u, r in REFS.items() if u != "u5"}, {})
    with pytest.raises(DataError, match="5 lists, 6 references; 1 references have no list, first 'u9'"):
        study_file(path, REFS | {"u9": "x"}, {})
    with pytest.raises(DataError, match=r"no reference in the file \(give --ref\)"):
        study_file(path, None, {})
    with pytest.raises(
        ConfigError, match="r: normalizer: whisper_en, but everything is judged with list"
    ):
        study_file(path, REFS, {"r": rescore_config({"normalizer": "whisper_en"})})
    rows = [("a", -1, -1), ("b", -1, None)]
    write_nbest(tmp_path / "m.jsonl", [nbest("u", rows, ref="a")])
    with pytest.raises(DataError, match="candidate 1 'b' has scores .*, others"):
        study_file(tmp_path / "m.jsonl", None, {})


def test_normaliser_is_the_same_on_both_sides(tmp_path):
    write_nbest(tmp_path / "n.jsonl", [nbest("u", [("Hello, world", -1, -1)], ref="hello WORLD.")])
    raw = study_file(tmp_path / "n.jsonl", None, {})
    normal = study_file(tmp_path / "n.jsonl", None, {}, normalizer="whisper_basic")
    assert (raw.lists[0].errors[0], normal.lists[0].errors[0]) == (2, 0)
    assert normal.meta.norm.startswith("whisper_basic")


def test_frame_shares_are_a_partition():
    lp = np.log(np.array([[0.995, 0.005], [0.6, 0.4], [0.1, 0.9], [0.1, 0.9], [0.999, 0.001]]))
    gamma, posterior = frame_rows("u", lp, (1,))
    assert (posterior["dead"], posterior["active"], posterior["ambiguous"]) == (0.4, 0.4, 0.2)
    assert (gamma["variant"], posterior["variant"]) == ("gamma", "posterior")
    assert gamma["dead"] + gamma["active"] + gamma["ambiguous"] == pytest.approx(1)
    assert gamma["frames_per_token"] == 5
    p = np.exp(lp)
    assert posterior["entropy"] == pytest.approx(-(p * lp).sum(1).mean())
    assert math.isnan(frame_rows("u", lp, ())[0]["frames_per_token"])
    assert frame_shares(np.array([True, False]), np.array([False, False]))["ambiguous"] == 0.5


CONF = ROOT / "egs2/latentasr/asr1/conf"


def test_rescore_command_writes_a_decode_directory(saved, capsys):
    out = saved / "out"
    arguments = ["--nbest", str(saved / "nbest.jsonl"), "--config", str(CONF / "decode_mbr_pll.yaml")]
    (saved / "cold.yaml").write_text(f"base: {CONF / 'decode_mbr_pll.yaml'}\nposterior: {{tau: 0.1}}\n")
    rescore_command.main([*arguments[:3], str(saved / "cold.yaml"), "--out", str(out)])
    text = read_kaldi_table(out / "text", allow_empty=True)
    assert list(text.values()) == ["a b c d", "e g", "h i k", "l m", "o p"]
    assert read_kaldi_table(out / "score") == dict(zip(text, ["-2.0", "-2.0", "-1.0", "-1.0", "-2.0"]))
    for name in ("text", "score", "token_int"):
        assert (out / name).read_bytes() == (out / "1best_recog" / name).read_bytes()
    rows = [json.loads(line) for line in open(out / "selection.jsonl")]
    assert [row["index"] for row in rows] == [1, 1, 0, 0, 1]
    record = json.loads((out / "rescore.json").read_text())
    assert record["config"]["posterior"]["tau"] == 0.1 and record["meta"]["gen"] == "sys"
    assert record["counts"]["changed"] == 3
    assert "5 utterances, 2.8 candidates each, 3 changed, 0 with one candidate" in capsys.readouterr().out


def test_rescore_command_writes_nothing_when_a_score_is_missing(saved):
    (saved / "ll.yaml").write_text("score: {ll: 1}\n")
    arguments = ["--nbest", str(saved / "nbest.jsonl"), "--config", str(saved / "ll.yaml")]
    with pytest.raises(DataError, match="utterance 'u1': candidate 0 'a b x d': score 'll'"):
        rescore_command.main([*arguments, "--out", str(saved / "out")])
    assert not (saved / "out").exists()


def test_rescore_command_refuses_mostly_unknown_text(saved):
    write_nbest(saved / "unk.jsonl", [nbest("u", [("a <unk>", -1, -1), ("b", -1, -1)])])
    arguments = ["--nbest", str(saved / "unk.jsonl"), "--out", str(saved / "out"), "--config"]
    with pytest.raises(DataError, match="unk.jsonl: 1 of 2 words are unknown"):
        rescore_command.main([*arguments, str(CONF / "decode_mbr_pll.yaml")])
    (saved / "lax.yaml").write_text("max_unk_rate: 0.5\n")
    rescore_command.main([*arguments, str(saved / "lax.yaml")])


def test_median_spread_comes_from_the_whole_set(saved):
    (saved / "sd.yaml").write_text("posterior: {tau: 1, tau_unit: median_sd}\n")
    rescore_command.main(
        [
            "--nbest",
            str(saved / "nbest.jsonl"),
            "--config",
            str(saved / "sd.yaml"),
            "--out",
            str(saved / "o"),
        ]
    )
    spreads = [np.std([p for _, _, p in rows if p is not None]) for _, rows in LISTS.values()]
    found = json.loads((saved / "o" / "rescore.json").read_text())["tau_unit_nats"]
    assert found == pytest.approx(np.median([s for s in spreads if s > 0]))


def test_rules_by_condition_and_size(study):
    conditions = {"u1": "clean", "u2": "0", "u3": "clean", "u4": "0", "u5": "0", "other": "5"}
    rows = condition_rows(study, ["pll", "greedy"], [1, 3], conditions, replicates=200)
    found = {(r["condition"], r["G"], r["rule"]): r for r in rows}
    assert [*dict.fromkeys(r["condition"] for r in rows)] == ["all", "0", "clean"]
    assert len(rows) == 12 and all(r["Holm p"] >= r["p"] for r in rows)
    clean = found["clean", 3, "pll"]
    assert (clean["utterances"], clean["greedy"], clean["error rate"]) == (2, 2 / 7, 1 / 7)
    assert (clean["oracle"], clean["closure"]) == (pytest.approx(1 / 7), pytest.approx(1))
    noisy = found["0", 3, "pll"]
    assert (noisy["greedy"], noisy["error rate"], noisy["oracle"]) == (3 / 5, 2 / 5, 0)
    assert found["all", 3, "pll"]["error rate"] == pytest.approx(3 / 12)
    assert found["all", 1, "pll"]["oracle"] == found["all", 1, "pll"]["greedy"]
    with pytest.raises(DataError, match="utterance 'u5' has no condition"):
        condition_rows(study, ["pll"], [1], {u: "x" for u in ("u1", "u2", "u3", "u4")})


def test_report_command(saved):
    frames = ["utt_id,variant,frames,tokens,frames_per_token,dead,active,ambiguous,entropy"]
    frames += ["u1,gamma,9,3,3.0,0.4,0.4,0.2,0.5", "u2,gamma,9,0,,0.6,0.2,0.2,0.7"]
    frames += ["u1,posterior,9,3,3.0,0.3,0.4,0.3,0.5", "u2,posterior,9,0,,0.3,0.4,0.3,0.5"]
    (saved / "frames.csv").write_text("\n".join(frames) + "\n")
    (saved / "pll.yaml").write_text("posterior: {tau: 2}\n")
    arguments = ["--nbest", str(saved / "nbest.jsonl"), "--ref", str(saved / "text")]
    arguments += [
        "--config",
        str(saved / "pll.yaml"),
        "--scorer",
        "pll",
        "--taus",
        "1",
        "2",
        "inf",
    ]
    (saved / "utt2snr").write_text("u1 clean\nu2 0\nu3 clean\nu4 0\nu5 0\n")
    arguments += ["--utt2condition", str(saved / "utt2snr")]
    arguments += ["--frames", str(saved / "frames.csv"), "--out"]
    oracle_gap_command.main([*arguments, str(saved / "first"), "--figures", "false"])
    other = f"noisy={saved / 'first'}"
    oracle_gap_command.main([*arguments, str(saved / "report"), "--other", other])
    made = {p.name for p in (saved / "report").iterdir()}
    for figure in (
        "figure_1_ranking", "figure_2_frames", "figure_5_sizes", "figure_6_ranking", "figure_7_pll",
        "figure_8_conditions",
    ):  # fmt: skip
        assert {f"{figure}.png", f"{figure}.svg", f"{figure}.csv"} <= made
        assert (saved / "report" / f"{figure}.png").read_bytes()[:4] == b"\x89PNG"
    with open(saved / "report/oracle.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["G"] for row in rows] == ["1", "2", "3"]
    assert float(rows[-1]["oracle"]) == pytest.approx(100 / 12)
    with open(saved / "report/frames.csv", newline="") as file:
        gamma, _ = csv.DictReader(file)
    assert (float(gamma["dead"]), float(gamma["dead sd"])) == (pytest.approx(50), pytest.approx(10))
    assert float(gamma["frames_per_token"]) == 3
    with open(saved / "report/figure_8_conditions.csv", newline="") as file:
        assert [row["condition"] for row in csv.DictReader(file)] == ["pll", "noisy: pll"]
    with open(saved / "report/conditions.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {r["condition"] for r in rows} == {"all", "0", "clean"}
    assert {r["G"] for r in rows} == set("123")
    summary = summary_markdown(saved)  # what RESULTS.md prints of it
    assert "all 9 rows by list size, condition and rule" in summary
    assert "|3|5|41.67|8.33|25.00 (-16.67, " in summary and "|clean|2|28.57|14.29|14.29 (" in summary
    text = (saved / "report/oracle_gap.md").read_text()
    assert "5 utterances" in text and "## Rules against greedy (WER)" in text
    assert not list((saved / "first").glob("*.png"))
    with pytest.raises(DataError, match="rules.csv: not a table of bin.oracle_gap"):
        oracle_gap_command.main([*arguments, str(saved / "bad"), "--other", f"x={saved}"])
    (saved / "frames.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="frames.csv: not a table of bin.ctc_nbest"):
        oracle_gap_command.main([*arguments, str(saved / "bad")])


RUN = """
import sys
from espnet_latentasr.bin import oracle_gap, rescore
nbest, text, config, out = sys.argv[1:]
rescore.main(["--nbest", nbest, "--config", config, "--out", out + "/decoded"])
oracle_gap.main(["--nbest", nbest, "--ref", text, "--config", config, "--out", out + "/report"])
print(sorted({"torch", "transformers", "espnet2"} & set(sys.modules)))
"""


def test_rescoring_and_reporting_run_without_torch(saved):
    (saved / "pll.yaml").write_text("posterior: {tau: 2}\n")
    names = [str(saved / name) for name in ("nbest.jsonl", "text", "pll.yaml", "out")]
    done = subprocess.run(
        [sys.executable, "-c", RUN, *names], capture_output=True, text=True, cwd=ROOT
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
