"""The command from decoded folders to a report, and what it refuses."""

import csv
import json
import re
from html import unescape
from urllib.parse import unquote

import numpy as np
import pytest

from espnet_latentasr.bin import report as command
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.report.experiment import Options, load_experiment, training_sets


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    # Logging to stderr would outlive the test and count its warnings at exit.
    monkeypatch.setattr(command, "setup_logging", lambda: None)


def run(root, out, *options, name="asr_test"):
    command.main(
        ["--exp", str(root / "exp" / name), "--out", str(out), "--data_root", str(root / "dump" / "raw"),
         "--dev", "valid", *options]
    )  # fmt: skip
    return (out / "RESULTS.md").read_text(encoding="utf-8")


def table(out, name):
    with open(out / "report" / f"{name}.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def report(experiment, tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    command_setup, command.setup_logging = command.setup_logging, lambda: None
    try:
        text = run(experiment, out, "--train", "train", "--figures", "false", "--max_utterances", "20")
    finally:
        command.setup_logging = command_setup
    return out, text


def test_every_question_has_its_section(report):
    _, text = report
    sections = re.findall(r"^### (.+)$", text, re.MULTILINE)
    assert sections == [
        "WER", "Latent against frozen", "Halting rules", "Error rate against compute",
        "Where the steps go", "Who gains", "Was the gate right", "Does the value predict the gain",
        "What the steps do", "What changes", "What it costs", "Overlap of training and test sets",
    ]  # fmt: skip
    assert text.startswith("# RESULTS: asr_test\n") and "![" not in text
    assert "Published: Table 1: main comparison" in text
    assert "regression to the mean" in text
    assert "<script>" not in text


def test_halting_rules_agree_with_the_scored_decodings(report, experiment):
    out, _ = report
    rates = {row["dataset"]: row for row in table(out, "halting_decode_depths")}
    assert list(rates) == ["test_a", "test_b"]
    for name, row in rates.items():
        for tag, column in (("decode_frozen", "frozen"), ("decode_latent", "θ = 0")):
            path = experiment / "exp" / "asr_test" / tag / name / "score_wer" / "score.json"
            scored = json.loads(path.read_text(encoding="utf-8"))
            assert float(row[column]) == pytest.approx(scored["rates"]["Err"])
        rules = [
            float(row[c]) for c in ("frozen", "θ = 0", "threshold, dev", "fixed, dev", "confidence, dev")
        ]
        assert float(row["oracle depth"]) <= min(rules)


def test_thresholds_come_from_the_development_set(report, experiment):
    out, _ = report
    chosen = {row["rule"]: row for row in table(out, "halting_chosen_decode_depths")}
    assert set(chosen) == {"threshold, dev", "fixed, dev", "confidence, dev"}
    for row in chosen.values():
        assert float(row["rule on dev"]) <= float(row["frozen on dev"])


def test_overlap_and_allocation(report):
    out, _ = report
    rows = {row["test set"]: row for row in table(out, "overlap")}
    assert rows["test_a"]["training set"] == "train"
    assert (rows["test_a"]["same id"], rows["test_a"]["same speaker"]) == ("0", "41")
    shares = [float(v) for k, v in table(out, "allocation_decode_depths")[0].items() if k.endswith("%")]
    assert sum(shares) == pytest.approx(100)


def test_the_page_is_bounded(report):
    out, _ = report
    text = (out / "report.html").read_text(encoding="utf-8")
    assert text.count('<details class="utt"') == 20
    assert "20 of 71 utterances" in text


def test_figures_are_written_and_shown(make_experiment, tmp_path):
    make_experiment(tmp_path, {"test_a": 12, "valid": 8})
    text = run(tmp_path, tmp_path, "--max_utterances", "1")
    for name in re.findall(r"\]\((report/[^)]+\.png)\)", text):
        assert (tmp_path / name).is_file()
        assert (tmp_path / name).with_suffix(".svg").is_file()
    assert len(list((tmp_path / "report").glob("*.png"))) == 7
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert html.count("<figure>") == 7
    links = {unescape(link) for link in re.findall(r'<a href="([^"#]+)"', html)}
    assert {link.rpartition(".")[2] for link in links} == {"csv", "png", "svg", "txt"}
    for link in links:
        assert (tmp_path / unquote(link)).is_file(), link


def test_files_of_an_earlier_report_go_and_others_stay(make_experiment, tmp_path):
    make_experiment(tmp_path, {"test_a": 12})
    run(tmp_path, tmp_path, "--figures", "false")
    before = {path.name for path in (tmp_path / "report").iterdir()}
    (tmp_path / "report" / "mine.csv").write_text("")
    for path in (tmp_path / "exp" / "asr_test" / "decode_depths" / "test_a").glob("score_wer/score.json"):
        path.unlink()
    run(tmp_path, tmp_path, "--figures", "false")
    after = {path.name for path in (tmp_path / "report").iterdir()}
    assert "halting_decode_depths.csv" in before - after
    assert after - before == {"mine.csv"} and "paired.csv" in after


def test_without_all_depths_the_rest_is_reported(make_experiment, tmp_path):
    make_experiment(tmp_path, {"test_a": 12}, all_depths=False)
    text = run(tmp_path, tmp_path / "out", "--figures", "false")
    assert "need a decoding with `depths: all`" in text
    assert "decode_latent/test_a" in text
    assert "Not checked: name the training sets with `--train`." in text


def test_without_a_development_set_no_threshold_is_chosen(make_experiment, tmp_path):
    make_experiment(tmp_path, {"test_a": 12})
    text = run(tmp_path, tmp_path / "out", "--figures", "false")
    assert "No threshold was chosen" in text and "threshold, dev" not in text


def test_seeds(make_experiment, tmp_path):
    for seed in (0, 1, 2):
        make_experiment(tmp_path, {"test_a": 15}, seed, f"asr_seed{seed}", all_depths=False)
    others = [str(tmp_path / "exp" / f"asr_seed{seed}") for seed in (1, 2)]
    out = tmp_path / "out"
    text = run(tmp_path, out, "--figures", "false", "--seed_exps", *others, name="asr_seed0")
    (row,) = table(out, "seeds")
    deltas = []
    for seed in (0, 1, 2):
        rates = []
        for tag in ("decode_frozen", "decode_latent"):
            path = tmp_path / "exp" / f"asr_seed{seed}" / tag / "test_a" / "score_wer" / "score.json"
            rates.append(json.loads(path.read_text(encoding="utf-8"))["rates"]["Err"])
        deltas.append(rates[1] - rates[0])
    assert float(row["Δ mean"]) == pytest.approx(np.mean(deltas))
    assert float(row["Δ sd"]) == pytest.approx(np.std(deltas, ddof=1))
    assert "### Over seeds" in text
    (tmp_path / "exp" / "asr_seed2" / "decode_latent" / "test_a" / "score_wer" / "score.json").unlink()
    with pytest.raises(DataError, match="asr_seed2: decode_latent/test_a or .* is not scored"):
        run(tmp_path, out, "--seed_exps", *others, name="asr_seed0")


def options(root, **changes):
    return Options(**{"data_root": root / "dump" / "raw", "dev": "valid"} | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalizer": "whisper_en"}, "scored with normalizer 'none', 'whisper_en' asked"),
        ({"lang": "German"}, "scored with language 'en', 'de' asked"),
        ({"unit": "cer"}, "no score_cer/score.json"),
    ],
)
def test_scores_of_another_kind_are_refused(experiment, changes, message):
    with pytest.raises(DataError, match=message):
        load_experiment(experiment / "exp" / "asr_test", options(experiment, **changes))


def test_changed_references_are_noticed(make_experiment, tmp_path):
    path = make_experiment(tmp_path, {"test_a": 12})
    text = tmp_path / "dump" / "raw" / "test_a" / "text"
    lines = text.read_text(encoding="utf-8").splitlines()
    text.write_text("".join(f"{line} extra\n" for line in lines), encoding="utf-8")
    with pytest.raises(DataError, match=r"utterance '.+': \d+ errors at its depth \d, \d+ scored"):
        load_experiment(path, options(tmp_path))
    text.unlink()
    with pytest.raises(DataError, match="name its parent with --data_root"):
        load_experiment(path, options(tmp_path))


def test_paths_that_are_none_are_noticed(make_experiment, tmp_path):
    path = make_experiment(tmp_path, {"test_a": 12}) / "decode_depths" / "test_a" / "latent.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        row["update_jumps"] = [jump + 1 for jump in row["update_jumps"]]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with pytest.raises(DataError, match=r"latent.jsonl, the \d+ utterances .* not of one path"):
        run(tmp_path, tmp_path / "out", "--figures", "false")


def test_an_unknown_tag_is_refused(experiment):
    exp = load_experiment(experiment / "exp" / "asr_test", options(experiment, tag="decode_x"))
    with pytest.raises(ConfigError, match="--tag decode_x: .* there are decode_depths"):
        exp.shown_tag()


def test_training_sets_are_read_from_the_training_configuration(tmp_path):
    assert training_sets(tmp_path) == []
    (tmp_path / "config.yaml").write_text(
        "train_data_path_and_name_and_type:\n"
        "- - exp/cache/activation/states.scp\n  - speech\n  - kaldi_ark\n"
        "valid_data_path_and_name_and_type:\n- - dump/raw/valid/wav.scp\n  - speech\n  - sound\n"
    )
    assert training_sets(tmp_path) == ["activation", "valid"]
    (tmp_path / "config.yaml").write_text("- no mapping\n")
    with pytest.raises(DataError, match="name the sets with --train"):
        training_sets(tmp_path)


def test_texts_of_another_toolkit_are_reported(make_experiment, tmp_path):
    """A text file, scored, is all that is needed; what was not recorded is a dash and no zero."""
    path = make_experiment(tmp_path, {"test_a": 12}, all_depths=False)
    for folder in path.glob("*/test_a"):
        for name in ("latent.jsonl", "nbest.jsonl"):
            (folder / name).unlink()
    out = tmp_path / "out"
    text = run(tmp_path, out, "--figures", "false")
    (row,) = table(out, "paired")
    assert row["dataset"] == "decode_latent/test_a" and row["p"] and row["mean K"] == row["RTF"] == ""
    assert {row["K"] for row in table(out, "corrections")} == {""}
    assert "No decoding of one depth per utterance recorded its seconds." in text
    assert table(out, "latency") == []
    assert 'data-k="nan"' in (out / "report.html").read_text(encoding="utf-8")


def test_measured_batch_sizes_are_shown(make_experiment, tmp_path):
    path = make_experiment(tmp_path, {"test_a": 12}, all_depths=False)
    row = {"batch_size": 4, "utterances": [4, 3], "audio": [8.0, 12.0], "peak_bytes": 2**29}
    seconds = {"decode_frozen": [1.0, 2.0], "decode_latent": [1.5, 2.0]}
    rows = [row | {"configuration": name, "seconds": found} for name, found in seconds.items()]
    (path / "batch_sizes.json").write_text(json.dumps({"device": "a computer", "rows": rows}))
    text = run(tmp_path, tmp_path / "out", "--figures", "false")
    assert "|4|decode_frozen|2.33|0.1500|–|–|0.50|" in text
    assert "|4|decode_latent|2.00|0.1750|1.167|1.250 [1.050, 1.450]|0.50|" in text
    assert "Measured on a computer" in text
