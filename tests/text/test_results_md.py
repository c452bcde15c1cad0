"""ESPnet's tables and the environment block."""

import subprocess
from importlib.metadata import PackageNotFoundError

from espnet_latentasr import __version__
from espnet_latentasr.data.skipped import write_skipped
from espnet_latentasr.report import results_md
from espnet_latentasr.text.error_rate import score
from espnet_latentasr.text.normalize import get_normalizer
from espnet_latentasr.text.score_dir import write_score_dir

RESULT = score(
    {"u1": "the cat sat on the mat", "u2": "a b"},
    {"u1": "the cat sit on mat today", "u2": "a b"},
    "wer",
    get_normalizer("none"),
)
TABLE = """\
|dataset|Snt|Wrd|Corr|Sub|Del|Ins|Err|S.Err|
|---|---|---|---|---|---|---|---|---|
|decode_latent/test|2|8|75.0|12.5|12.5|12.5|37.5|50.0|
"""


def test_table_from_results_and_from_json():
    assert results_md.results_table({"decode_latent/test": RESULT}) == TABLE
    assert results_md.results_table({"decode_latent/test": RESULT.summary()}) == TABLE


def test_a_rate_that_does_not_exist():
    result = score({"u": ""}, {"u": "x"}, "wer", get_normalizer("none"))
    assert results_md.results_table({"d/t": result}).endswith("|d/t|1|0|-|-|-|-|-|100.0|\n")


def test_experiment_section(tmp_path):
    for tag in ("decode_b", "decode_a"):
        write_score_dir(tmp_path / tag / "test" / "score_wer", RESULT, {"u1": "s", "u2": "s"})
    section = results_md.experiment_section(tmp_path)
    assert section.startswith(
        f"## {tmp_path}\n\n### WER\n\nnormaliser: none (identity)\n\n|dataset|"
    )
    assert section.index("|decode_a/test|2|8|") < section.index("|decode_b/test|2|8|")
    assert "### CER" not in section


def test_environment(monkeypatch):
    def version(name):
        if name == "transformers":
            raise PackageNotFoundError(name)
        return {"espnet": "202511", "torch": "2.9.1"}[name]

    monkeypatch.setattr(results_md, "version", version)
    monkeypatch.setattr(results_md, "git_commit", lambda folder: ("abc123", "Mon Nov 30"))
    text = results_md.environment_section()
    assert text.startswith("## Environments\n- date: `")
    assert "- espnet version: `espnet 202511`\n" in text
    assert "- pytorch version: `pytorch 2.9.1`\n" in text
    assert "- transformers version: `transformers not installed`\n" in text
    assert f"- espnet_latentasr version: `espnet_latentasr {__version__}`\n" in text
    assert text.endswith("- Git hash: `abc123`\n  - Commit date: `Mon Nov 30`\n")


def test_commit(monkeypatch):
    def git(command, **options):
        return subprocess.CompletedProcess(command, 0, "abc123\nMon Nov 30\n", "")

    monkeypatch.setattr(results_md.subprocess, "run", git)
    assert results_md.git_commit(".") == ("abc123", "Mon Nov 30")


def test_no_commit_without_repository_or_git(monkeypatch):
    def outside(command, **options):
        raise subprocess.CalledProcessError(128, command)

    def no_git(command, **options):
        raise FileNotFoundError("git")

    for failure in (outside, no_git):
        monkeypatch.setattr(results_md.subprocess, "run", failure)
        assert results_md.git_commit(".") == ("none", "none")


def test_what_test_sets_lack_is_said(tmp_path):
    assert results_md.left_out_section(tmp_path) == ""
    write_skipped(tmp_path / "whole" / "skipped.tsv", [])
    write_skipped(
        tmp_path / "test_b" / "skipped.tsv",
        [("u1", "corrupt", "cut\tshort"), ("u2", "missing", ""), ("u3", "corrupt", "")],
    )
    text = results_md.left_out_section(tmp_path)
    assert "left out\n\n- test_b: 3 left out (2 corrupt, 1 missing);" in text
    assert "whole" not in text
