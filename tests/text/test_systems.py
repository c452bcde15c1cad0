"""Several systems against the first: numbers, corrections and what is refused."""

import csv
import io
import math
import pickle
from pathlib import Path

import numpy as np
import pytest

from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.stats.bootstrap import paired_bootstrap
from espnet_latentasr.stats.mapsswe import mapsswe
from espnet_latentasr.stats.multiplicity import benjamini_hochberg, holm
from espnet_latentasr.text import normalize, scoring
from espnet_latentasr.text.error_rate import score
from espnet_latentasr.text.languages import get_language
from espnet_latentasr.text.normalize import get_normalizer
from espnet_latentasr.text.scoring import System, score_systems, system_names
from espnet_latentasr.text.systems import Bootstrap, Scored, compare_systems, write_comparison

NONE = get_normalizer("none")
FAST = {"replicates": 200}


def texts(seed, wrong):
    rng = np.random.default_rng(seed)
    return {
        f"s{u % 5}-{u:03d}": " ".join("x" if rng.random() < wrong else w for w in "abcdefg"[: 1 + u % 7])
        for u in range(70)
    }


REFS = texts(0, 0)
HYPS = {"base": texts(1, 0.3), "good": texts(2, 0.1), "same": texts(1, 0.3), "bad": texts(3, 0.5)}


def scored(unit):
    return {name: Scored.of(score(REFS, hyps, unit, NONE)) for name, hyps in HYPS.items()}


def test_rows_are_those_of_the_single_tests():
    units = [scored("wer"), scored("cer_nospace")]
    rows = compare_systems(units, Bootstrap(**FAST, seed=3))
    assert [(r.scored[1].unit, r.system) for r in rows] == [
        (unit, name) for unit in ("wer", "cer_nospace") for name in ("good", "same", "bad")
    ]
    p = [row.difference.p for row in rows]
    for row, strict, loose in zip(rows, holm(p), benjamini_hochberg(p)):
        baseline, system = row.scored
        assert row.baseline == "base" and (row.p_holm, row.p_bh) == (strict, loose)
        alone = paired_bootstrap(baseline.errors, system.errors, baseline.lengths, **FAST, seed=3)
        assert row.difference == alone
        assert row.matched == mapsswe(baseline.operations, system.operations)
    good, same, bad = rows[:3]
    assert good.difference.delta < 0 < bad.difference.delta
    assert (same.difference.p, same.p_holm, same.matched.p) == (1, 1, 1)
    assert (same.difference.better, same.difference.worse, same.difference.same) == (0, 0, 70)


def test_speakers_are_drawn():
    speakers = {utt: utt[:2] for utt in REFS}
    rows = compare_systems([scored("wer")], Bootstrap(speakers, **FAST))
    assert {row.difference.units for row in rows} == {5}


def test_tables(tmp_path):
    bootstrap = Bootstrap(**FAST)
    rows = compare_systems([scored("wer")], bootstrap)
    write_comparison(tmp_path, rows, bootstrap)
    table = list(csv.DictReader(io.StringIO((tmp_path / "comparison.csv").read_text("utf-8"))))
    assert [line["system"] for line in table] == ["good", "same", "bad"]
    first, row = table[0], rows[0]
    assert float(first["delta"]) == 100 * row.difference.delta
    assert (float(first["p_holm"]), float(first["p_bh"])) == (row.p_holm, row.p_bh)
    assert float(first["mapsswe_p"]) == row.matched.p
    assert (first["normalizer"], first["normalizer_version"]) == ("none", "identity")
    assert (first["resampled"], first["units"], first["replicates"]) == ("utterances", "70", "200")
    lines = (tmp_path / "comparison.md").read_text("utf-8").splitlines()
    assert "normaliser none (identity)" in lines[2] and "exactly the 3 tests of this table" in lines[2]
    body = [line for line in lines if line.startswith("|wer|")]
    assert len(body) == 3
    assert body[1].endswith("|+0.00|[+0.00, +0.00]|1.0000|1.0000|1.0000|1.0000|0/0/70|")


def test_what_does_not_exist_is_empty_not_nan(tmp_path):
    one = {
        name: Scored.of(score({"u": "a b"}, {"u": hyp}, "wer", NONE))
        for name, hyp in (("base", "a b"), ("other", "a x"))
    }
    bootstrap = Bootstrap(**FAST)
    rows = compare_systems([one], bootstrap)
    assert math.isnan(rows[0].difference.low) and math.isnan(rows[0].matched.p)
    write_comparison(tmp_path, rows, bootstrap)
    for name in ("comparison.csv", "comparison.md"):
        assert "nan" not in (tmp_path / name).read_text("utf-8")
    assert "|wer|other|0.00|50.00|+50.00|-|1.0000|1.0000|1.0000|-|0/1/0|" in (
        tmp_path / "comparison.md"
    ).read_text("utf-8")


def test_different_references_are_refused():
    other = Scored.of(score({**REFS, "s0-000": "a b"}, HYPS["good"], "wer", NONE))
    with pytest.raises(DataError, match="'base' and 'other' were scored on different"):
        compare_systems([{"base": scored("wer")["base"], "other": other}])


def test_no_reference_token_is_refused():
    silent = Scored.of(score({"u": ""}, {"u": "x"}, "wer", NONE))
    with pytest.raises(DataError, match="no reference token in 1 utterances"):
        compare_systems([{"base": silent, "other": silent}])


def test_names():
    assert system_names([Path("a/text")]) == ["text"]
    assert system_names([Path("exp/a/test/text"), Path("exp/b/test/text")]) == ["a", "b"]
    assert system_names([Path("x/base.txt"), Path("x/new.txt")]) == ["base", "new"]
    assert system_names([Path("x/a.txt"), Path("x/a")]) == ["a.txt", "a"]
    assert system_names([Path("a/x/text"), Path("a/y/text"), Path("b/x/text")]) == [
        "a_x", "a_y", "b_x",
    ]  # fmt: skip
    assert system_names([Path("/r/t/text"), Path("/r/text")]) == ["t", "r"]
    with pytest.raises(DataError, match="a/text: given twice"):
        system_names([Path("a/text"), Path("b/text"), Path("a/text")])


def test_jobs_in_other_processes_write_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(scoring, "WORTH_JOBS", 0)
    monkeypatch.setattr(normalize, "WORTH_JOBS", 0)
    calls = []

    def run(function, jobs):  # what goes to a process and comes back from it
        calls.append(function)
        return (pickle.loads(pickle.dumps(function(pickle.loads(pickle.dumps(j))))) for j in jobs)

    systems = [System(name, Path(name), hyps) for name, hyps in HYPS.items()]
    for name, how in (("alone", map), ("jobs", run)):
        score_systems(
            (Path("r"), REFS), systems, get_language("en"), get_normalizer("whisper_basic"),
            tmp_path / name, units=["wer", "cer"], replicates=200, run=how,
        )  # fmt: skip
    assert len(calls) == 1 + 2 * len(systems)
    files = {path.relative_to(tmp_path / "alone") for path in (tmp_path / "alone").rglob("*.*")}
    assert len(files) == 2 + 2 * len(systems) * 7
    for file in files:
        assert (tmp_path / "alone" / file).read_bytes() == (tmp_path / "jobs" / file).read_bytes()


def test_options_that_cannot_be(tmp_path):
    systems = [System("base", Path("h"), HYPS["base"])]
    arguments = (Path("r"), REFS), systems, get_language("en"), NONE, tmp_path
    with pytest.raises(ConfigError, match="--resample speakers needs --utt2spk"):
        score_systems(*arguments, resample="speakers")
    with pytest.raises(ConfigError, match="--replicates 99: at least 100"):
        score_systems(*arguments, replicates=99)
    assert not list(tmp_path.iterdir())
