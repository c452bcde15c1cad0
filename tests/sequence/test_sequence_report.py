"""From decoded sets, trajectories and saved posteriors to tables: numbers by hand, refusals by name."""

import csv
import json
import shutil

import kaldiio
import numpy as np
import pytest

from espnet_latentasr.analysis.sequence_gap import gap_rows
from espnet_latentasr.analysis.sequence_variance import ratio_rows
from espnet_latentasr.bin import sequence_gap, sequence_report
from espnet_latentasr.data.kaldi_dir import write_kaldi_table
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.report.sequence_report import gap_table, read_gaps
from espnet_latentasr.report.sequence_summary import sequence_markdown
from espnet_latentasr.sequence.candidates import Drawn

REFS = {"u1": "a b c d", "u2": "a b", "u3": "a b c d"}
START = {"u1": "a b c x", "u2": "x x", "u3": "a b c d"}
SEEDS = {
    1: {"u1": "a b c d", "u2": "a x", "u3": "a b c d"},
    2: {"u1": "a b c x", "u2": "a x", "u3": "a b c x"},
}


def lists(*errors, words=4):
    return [
        Drawn(f"u{n}", ((),) * len(e), tuple(map(str, e)), np.array(e), words)
        for n, e in enumerate(errors)
    ]


@pytest.fixture
def experiment(tmp_path):
    """One checkpoint, one method, two seeds, decoded."""
    write_kaldi_table(tmp_path / "ref", REFS)
    write_kaldi_table(tmp_path / "root/early/decode/set/text", START)
    for seed, texts in SEEDS.items():
        run = tmp_path / f"root/early_mwer_seed{seed}"
        write_kaldi_table(run / "decode/set/text", texts)
        rows = ["epoch,steps,wer_corpus,wer_macro,errors,words,utterances,train_usable"]
        rows += ["0,0,30.0,40.0,3,10,3,", f"1,4,{20.0 + seed},{30.0 + seed},2,10,3,0.5"]
        (run / "trajectory.csv").write_text("\n".join(rows) + "\n")
    return tmp_path


def report(root, *extra):
    words = ["--root", root / "root", "--checkpoints", "early", "--methods", "mwer", "--seeds", 1, 2]
    words += ["--test_set", "set", "--ref", root / "ref", "--out", root / "out", *extra]
    sequence_report.main(list(map(str, words)))
    return {p.stem: list(csv.DictReader(p.open())) for p in (root / "out").glob("*.csv")}


def test_outcomes_by_hand(experiment):
    tables = report(experiment)
    (row,) = tables["outcomes"]
    # 10 words; 3 errors before, 1 and 3 after.
    assert float(row["before"]) == pytest.approx(30) and float(row["macro before"]) == pytest.approx(
        125 / 3
    )
    assert float(row["after"]) == pytest.approx(20)
    assert float(row["sd"]) == pytest.approx(np.std([10, 30], ddof=1))
    assert float(row["macro after"]) == pytest.approx((50 / 3 + 100 / 3) / 2)
    assert float(row["Δ"]) == pytest.approx(-10) and row["p"] == row["p Holm"]
    counts = [row[f"better/worse/same {name}"] for name in ("better", "worse", "same")]
    assert counts == ["2", "1", "0"], "the errors of all seeds of an utterance are added up"
    assert [r["epoch"] for r in tables["trajectories"]] == ["0", "1", "0", "1"]
    line = tables["trajectory_early"]
    assert [float(r["wer_corpus"]) for r in line] == [30, 21.5]
    assert (line[1]["wer_corpus low"], line[1]["wer_corpus high"]) == ("21.0", "22.0")
    text = (experiment / "out/sequence.md").read_text()
    assert "corrected for the one test of this table" in text and "trajectory_early.svg" in text
    assert (experiment / "out/trajectory_early.png").stat().st_size > 1000


def test_what_is_missing_is_named(experiment):
    (experiment / "root/early_mwer_seed2/trajectory.csv").unlink()
    with pytest.raises(
        DataError, match="early_mwer_seed2/trajectory.csv: not found; this training has not"
    ):
        report(experiment)
    (experiment / "root/early_mwer_seed1/decode/set/text").unlink()
    with pytest.raises(
        DataError, match="early_mwer_seed1/decode/set/text: not found; this model is not dec"
    ):
        report(experiment)


def test_gap_by_hand(tmp_path):
    drawn = lists([2, 1, 3], [0, 0, 1], [1, 1, 0])
    first, second = gap_rows({"early": drawn}, [2, 3])
    assert (first["greedy"], first["oracle"], first["gap"]) == pytest.approx((3 / 12, 2 / 12, 1 / 12))
    assert (second["oracle"], second["better"], first["better"]) == pytest.approx((1 / 12, 2 / 3, 1 / 3))
    assert (first["usable"], second["usable"]) == pytest.approx((1 / 3, 1))
    assert first["low"] <= first["gap"] <= first["high"] and first["low"] >= 0
    table = gap_table([first, second])
    (tmp_path / "gap.csv").write_text(table.csv())
    again = read_gaps(tmp_path / "gap.csv")
    assert gap_table(again).markdown() == table.markdown()
    with pytest.raises(DataError, match="no such file; bin.sequence_gap writes it"):
        read_gaps(tmp_path / "none.csv")
    with pytest.raises(DataError, match="3 utterances without a reference word"):
        gap_rows({"early": lists([1, 0], [0, 0], [0, 1], words=0)}, [2])


def test_gap_of_saved_posteriors(tmp_path, capsys):
    # "a" is likelier, "b" is said: greedy is wrong, and the list holds the right text.
    lp = np.log(np.array([[0.1, 0.5, 0.4], [0.8, 0.1, 0.1]], dtype=np.float32))
    folder = tmp_path / "logp"
    folder.mkdir()
    kaldiio.save_ark(str(folder / "ctc_logp.ark"), {"u1": lp, "u2": lp}, scp=str(folder / "ctc_logp.scp"))
    (folder / "tokens.txt").write_text("<blank>\na\nb\n")
    (folder / "posteriors.json").write_text(json.dumps({"model": "m"}))
    write_kaldi_table(tmp_path / "ref", {"u1": "b", "u2": "a"})
    words = ["--posteriors", f"early={folder}", "--ref", tmp_path / "ref", "--token_type", "word"]
    words += ["--sizes", 2, 8, "--out", tmp_path / "gap.csv"]
    sequence_gap.main(list(map(str, words)))
    two, eight = read_gaps(tmp_path / "gap.csv")
    assert (two["greedy"], eight["oracle"], eight["gap"]) == (0.5, 0.0, 0.5) and eight["better"] == 0.5
    with pytest.raises(ConfigError, match="NAME=DIR expected"):
        sequence_gap.main(["--posteriors", str(folder), "--ref", "x", "--out", "y"])


def test_ratios_of_variances():
    rows = [
        {"marginal": 1.0, "viterbi": v, "sampled": s, "sampled expected": 2.0}
        for v, s in ((0.5, 3.0), (2.5, 1.0))
    ]
    found = {row["ratio"]: row for row in ratio_rows(rows, replicates=200)}
    assert found["viterbi / marginal"]["mean"] == 1.5 and found["viterbi / marginal"]["below 1"] == 1
    assert found["sampled / viterbi"]["median"] == pytest.approx((6 + 0.4) / 2)
    exact = found["expected sampled / marginal"]
    assert (exact["mean low"], exact["mean"], exact["mean high"]) == (2, 2, 2) and exact["below 1"] == 0
    assert np.isnan(ratio_rows(rows[:1], replicates=200)[0]["mean low"]), "one utterance has no interval"


def test_methods_against_the_control_by_hand(experiment):
    for seed, texts in SEEDS.items():
        run = experiment / f"root/early_ce_seed{seed}"
        write_kaldi_table(run / "decode/set/text", texts | {"u3": "a b x x"})
        shutil.copy(experiment / f"root/early_mwer_seed{seed}/trajectory.csv", run)
    (row,) = report(experiment, "--methods", "mwer", "ce", "--control", "ce")["against_control"]
    # u3: 2 errors with each seed, against 0 and 1; the other utterances are equal; 20 words.
    assert (row["method"], row["control"]) == ("mwer", "ce") and float(row["Δ"]) == pytest.approx(-15)
    counts = [row[f"better/worse/same {name}"] for name in ("better", "worse", "same")]
    assert counts == ["1", "0", "2"]
    with pytest.raises(ConfigError, match="--control raft: none of --methods mwer"):
        report(experiment, "--control", "raft")


def test_the_tables_stand_one_level_lower_in_results(tmp_path):
    study = tmp_path / "sequence/default"
    for place, text in (
        ("report/sequence.md", "# Training, test\n\n## Outcomes\n\n| a |\n\n## Trajectories\n\n![x]\n"),
        ("early/variance/logits/ratios.md", "# Gradient variance\n\n| b |\n"),
    ):
        (study / place).parent.mkdir(parents=True)
        (study / place).write_text(text)
    assert sequence_markdown(study) == (
        "## Training, test\n\n### Outcomes\n\n| a |\n\n"
        "## Gradient variance: checkpoint 'early'\n\n| b |\n"
    )
