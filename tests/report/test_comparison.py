"""Latent against frozen: which rows, corrected for exactly those, the same table wherever printed."""

import json
from dataclasses import replace

import numpy as np
import pytest

from espnet_latentasr.bin import make_results, report
from espnet_latentasr.config import PromptConfig
from espnet_latentasr.errors import DataError
from espnet_latentasr.report.comparison import compare_decoded, comparison_markdown, paired_table
from espnet_latentasr.report.experiment import Options, load_experiment, main_units, read_sets
from espnet_latentasr.stats.bootstrap import paired_bootstrap
from espnet_latentasr.stats.multiplicity import benjamini_hochberg, holm
from espnet_latentasr.text.error_rate import score
from espnet_latentasr.text.normalize import get_normalizer
from espnet_latentasr.text.score_dir import write_score_dir

REFS = {f"u{i:02d}": "a b c d" for i in range(40)}


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    for command in (make_results, report):
        monkeypatch.setattr(command, "setup_logging", lambda: None)


def texts(wrong, seed, refs=REFS):
    rng = np.random.default_rng(seed)
    return {u: " ".join("x" if rng.random() < wrong else w for w in t.split()) for u, t in refs.items()}


def scored(folder, hyps, refs=REFS, unit="wer", language="en"):
    """A set decoded elsewhere: a score folder and nothing else."""
    result = score(refs, hyps, unit, get_normalizer("none"))
    speakers = {utt: utt for utt in refs}
    write_score_dir(folder / f"score_{unit.split('_')[0]}", result, speakers, language=language)
    return folder


def recorded(folder, hyps, refs=REFS, steps=1):
    scored(folder, hyps, refs)
    row = {"steps": steps, "stopped": "budget", "capped": False, "audio_seconds": 2.0, "values": [0.5]}
    row |= {f"update_{kind}": [] for kind in ("norms", "cosines", "jumps")}
    row["seconds"] = {"encode": 0.5, "prefill": 0.0, "loop": 0.0, "decode": 0.5 * steps}
    lines = (json.dumps(row | {"utt_id": utt}) + "\n" for utt in refs)
    (folder / "latent.jsonl").write_text("".join(lines), encoding="utf-8")


def cells(table):
    """Rows by column name of the Markdown table of latent against frozen."""
    lines = table.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|dataset|frozen|latent|"))
    end = next((i for i in range(start, len(lines)) if not lines[i].startswith("|")), len(lines))
    names, _, *rows = (line.strip("|").split("|") for line in lines[start:end])
    return [dict(zip(names, row, strict=True)) for row in rows]


def test_the_family_is_the_rows_printed(tmp_path):
    for test_set, seed in (("one", 0), ("two", 1)):
        recorded(tmp_path / "decode_frozen" / test_set, texts(0.3, seed), steps=0)
        recorded(tmp_path / "decode_latent" / test_set, texts(0.22, seed + 10))
    recorded(tmp_path / "decode_other" / "one", texts(0.5, 20))
    recorded(tmp_path / "decode_latent" / "without_frozen", texts(0.5, 21))
    for tag in ("decode_frozen", "decode_latent"):
        recorded(tmp_path / tag / "silent", {"u": "x"}, {"u": ""})
    printed = comparison_markdown(tmp_path)
    rows = cells(printed)
    names = ["decode_latent/one", "decode_latent/two", "decode_other/one"]
    assert [row["dataset"] for row in rows] == names
    assert "corrected for exactly the 3 tests of this table" in printed
    assert "decode_latent/without_frozen: decode_frozen of the set is not scored." in printed
    assert "decode_latent/silent: no reference token" in printed
    sets = read_sets(tmp_path, "wer")
    p = []
    for name in names:
        tag, test_set = name.split("/")
        frozen, latent = sets["decode_frozen", test_set], sets[tag, test_set]
        p.append(paired_bootstrap(frozen.errors, latent.errors, frozen.lengths).p)
    for column, values in (("p", p), ("p Holm", holm(p)), ("p BH", benjamini_hochberg(p))):
        assert [row[column] for row in rows] == [f"{value:.4f}" for value in values]
    assert len({row["p Holm"] for row in rows}) > 1
    costs = {tuple(row[name] for name in ("RTF", "RTF ratio", "mean K")) for row in rows}
    assert costs == {("0.5000", "2.000", "1.00")}


def test_the_report_and_the_results_print_the_same_table(experiment, tmp_path):
    exp = experiment / "exp" / "asr_test"
    data = str(experiment / "dump" / "raw")
    report.main(["--exp", str(exp), "--out", str(tmp_path), "--data_root", data, "--dev", "valid",
                 "--figures", "false", "--max_utterances", "1"])  # fmt: skip
    make_results.main(
        ["--expdir", str(exp.parent), "--output", str(tmp_path / "all.md"), "--dev", "valid"]
    )
    tables = [cells((tmp_path / name).read_text("utf-8")) for name in ("RESULTS.md", "all.md")]
    assert tables[0] == tables[1]
    assert [row["dataset"] for row in tables[0]] == ["decode_latent/test_a", "decode_latent/test_b"]
    html = (tmp_path / "report.html").read_text("utf-8")
    assert "corrected for exactly the 2 tests of this table" in html


@pytest.fixture(scope="module")
def loaded(experiment):
    options = Options(data_root=experiment / "dump" / "raw", dev="valid")
    return load_experiment(experiment / "exp" / "asr_test", options)


def test_numbers(loaded):
    tests = {key: loaded.decoded[key] for key in loaded.test_keys()}
    comparison = compare_decoded(tests, "decode_frozen", loaded.depths, replicates=200)
    table = paired_table(comparison.pairs, "wer")
    rows = {row[0]: dict(zip((c.header for c in table.columns), row)) for row in table.rows}
    row, latent = rows["decode_latent/test_a"], loaded.decoded["decode_latent", "test_a"]
    frozen = loaded.decoded["decode_frozen", "test_a"]
    assert row["Δ"] == pytest.approx(row["latent"] - row["frozen"])
    assert row["frozen"] == pytest.approx(100 * frozen.errors.sum() / frozen.lengths.sum())
    assert row["mean K"] == pytest.approx(latent.steps.mean())
    assert row["skip %"] == pytest.approx(100 * (latent.steps == 0).mean())
    assert row["RTF"] == pytest.approx(latent.seconds.sum() / latent.audio_seconds.sum())
    assert row["RTF ratio"] == pytest.approx(latent.seconds.sum() / frozen.seconds.sum())
    assert row["p Holm"] >= row["p BH"] >= row["p"]
    assert row["95 % CI"][0] <= row["Δ"] <= row["95 % CI"][1]


def test_a_pass_over_all_depths_is_a_row_only_where_it_is_the_one_decoding_of_its_texts(loaded):
    tests = {key: loaded.decoded[key] for key in loaded.test_keys()}
    comparison = compare_decoded(tests, "decode_frozen", loaded.depths, replicates=200)
    assert {pair.tag for pair in comparison.pairs} == {"decode_latent"}
    assert "decode_depths (2 sets): every depth decoded at once" in comparison.remarks()
    alone = {key: d for key, d in tests.items() if key != ("decode_latent", "test_a")}
    comparison = compare_decoded(alone, "decode_frozen", loaded.depths, replicates=200)
    rows = {pair.tag: dict(zip(("RTF", "ratio"), paired_table([pair], "wer").rows[0][-3:]))
            for pair in comparison.pairs if pair.test_set == "test_a"}  # fmt: skip
    # Decoding all depths at once took the time of no system.
    assert rows == {"decode_depths": {"RTF": None, "ratio": None}}


def test_another_prompt_is_no_latent_system(loaded):
    tests = {k: loaded.decoded[k] for k in loaded.test_keys() if k[0] != "decode_depths"}
    told = {k: replace(d, prompt=PromptConfig()) for k, d in tests.items()}
    told["decode_auto", "test_a"] = replace(
        told["decode_frozen", "test_a"], prompt=PromptConfig("auto")
    )
    comparison = compare_decoded(told, "decode_frozen", replicates=200)
    assert {pair.tag for pair in comparison.pairs} == {"decode_latent"}
    assert comparison.remarks().endswith("decode_auto/test_a: another prompt than decode_frozen's.")


def test_texts_from_elsewhere_are_compared_without_costs(tmp_path):
    scored(tmp_path / "decode_frozen" / "one", texts(0.3, 0))
    scored(tmp_path / "decode_new" / "one", texts(0.1, 1))
    (row,) = cells(comparison_markdown(tmp_path))
    assert float(row["Δ"]) < 0
    assert {row[name] for name in ("mean K", "skip %", "RTF", "RTF ratio", "capped")} == {"–"}


def test_nothing_to_compare(tmp_path):
    scored(tmp_path / "decode_frozen" / "one", texts(0.3, 0))
    assert comparison_markdown(tmp_path) == ""


def test_other_utterances_are_refused(tmp_path):
    scored(tmp_path / "decode_frozen" / "one", texts(0.3, 0))
    scored(tmp_path / "decode_latent" / "one", {"u00": "a b"}, {"u00": "a b c d"})
    with pytest.raises(DataError, match="different utterances"):
        comparison_markdown(tmp_path)


def test_sets_are_reported_in_the_main_unit_of_their_language(tmp_path):
    for tag, wrong in (("decode_frozen", 0.3), ("decode_latent", 0.1)):
        for unit in ("wer", "cer"):
            scored(tmp_path / tag / "english", texts(wrong, 0), unit=unit)
            scored(tmp_path / tag / "korean", texts(wrong, 1), unit=unit, language="ko")
        scored(tmp_path / tag / "chinese", texts(wrong, 2), unit="cer_nospace", language="zh")
        scored(tmp_path / tag / "by_character", texts(wrong, 3), unit="cer")
    found = {u: sorted({p.name for p in ps}) for u, ps in main_units(tmp_path).items()}
    assert found == {"wer": ["english"], "cer": ["by_character", "chinese", "korean"]}
    wer, cer = comparison_markdown(tmp_path).split("(CER)")
    assert [row["dataset"] for row in cells(wer)] == ["decode_latent/english"]
    assert [row["dataset"].split("/")[1] for row in cells(cer)] == found["cer"]
    exp = load_experiment(tmp_path, Options())
    assert exp.unit == "cer" and ("decode_latent", "chinese") in exp.decoded
    with pytest.raises(DataError, match=r"no score_mer/score.json .*; there is wer, cer \(--unit\)"):
        load_experiment(tmp_path, Options(unit="mer"))


def test_results_of_all_experiments(tmp_path):
    """Rescored lists took no step; the pass over all depths and the development set are no results."""
    exp = tmp_path / "exp" / "asr_x"
    wrong, right = texts(0.5, 0), dict(REFS)
    for name in ("test", "dev"):
        recorded(exp / "decode_frozen" / name, wrong, steps=0)
        recorded(exp / "decode_latent" / name, right)
    recorded(exp / "decode_latent_depths" / "test", right)
    rows = [
        {"utt_id": u, "hyps": [{"depth": k, "text": t[u]} for k, t in enumerate((wrong, right))]}
        for u in REFS
    ]
    passed = exp / "decode_latent_depths" / "test" / "nbest.jsonl"
    passed.write_text("".join(json.dumps(row) + "\n" for row in rows))
    scored(exp / "decode_mbr_pll" / "test", right)
    (tmp_path / "exp" / "family_losses.md").write_text("## Family losses\n")
    (tmp_path / "exp" / "family_controls.md").write_text("## Family controls\n")
    out = tmp_path / "RESULTS.md"
    make_results.main(
        ["--expdir", str(tmp_path / "exp"), "--output", str(out), "--dev", "dev"]
        + ["--families", str(tmp_path / "exp")]
    )
    text = out.read_text("utf-8")
    rows = cells(text)
    assert [row["dataset"] for row in rows] == ["decode_latent/test", "decode_mbr_pll/test"]
    assert {row["latent"] for row in rows} == {"0.00"}
    assert [row["mean K"] for row in rows] == ["1.00", "–"]
    assert text.index("## Family controls") < text.index("## Family losses")
    # The paper's own table stands behind the family that repeats it, and behind no other.
    assert text.count("Published: ") == 1
    assert text.index("## Family losses") < text.index("Published: Table 9")
