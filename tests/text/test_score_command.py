"""The scoring command from Kaldi tables to score folders."""

import json

import pytest

from espnet_latentasr.bin import score as command
from espnet_latentasr.errors import DataError


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    # Logging to stderr would outlive the test and count its warnings at exit.
    monkeypatch.setattr(command, "setup_logging", lambda: None)


def run(folder, ref, hyp, *options):
    (folder / "text").write_text(ref, encoding="utf-8")
    (folder / "hyp").write_text(hyp, encoding="utf-8")
    utts = [line.split()[0] for line in ref.splitlines()]
    (folder / "utt2spk").write_text("".join(f"{u} {u[:2]}\n" for u in utts), encoding="utf-8")
    paths = ["--ref", "text", "--hyp", "hyp", "--utt2spk", "utt2spk", "--output_dir", "out"]
    command.main([p if p.startswith("--") else str(folder / p) for p in paths] + list(options))
    return folder / "out"


def test_english(tmp_path):
    out = run(
        tmp_path, "s1-a The colour!\ns2-b It's ok.\n", "s1-a the color\ns2-b\n",
        "--lang", "en", "--unit", "wer", "cer",
    )  # fmt: skip
    wer, cer = (
        json.loads((out / f"score_{unit}/score.json").read_text(encoding="utf-8"))
        for unit in ("wer", "cer")
    )
    assert (wer["normalizer"], wer["language"], wer["unit"]) == ("whisper_en", "en", "wer")
    assert wer["rates"]["Err"] == pytest.approx(60)  # "it is ok" is deleted
    assert (cer["unit"], cer["counts"]["deletions"]) == ("cer", 8)
    assert "t h e <space> c o l o r (s1-s1-a)" in (out / "score_cer/hyp.trn").read_text()


def test_units_and_normaliser_of_the_language(tmp_path):
    out = run(tmp_path, "s1-a 你好，世界\n", "s1-a 你好世 界\n", "--lang", "Chinese")
    assert [path.name for path in out.iterdir()] == ["score_cer"]
    summary = json.loads((out / "score_cer/score.json").read_text(encoding="utf-8"))
    assert (summary["unit"], summary["counts"]["errors"]) == ("cer_nospace", 0)


def test_a_named_normaliser(tmp_path):
    out = run(tmp_path, "s1-a The\n", "s1-a the\n", "--lang", "en", "--normalizer", "none")
    summary = json.loads((out / "score_wer/score.json").read_text(encoding="utf-8"))
    assert (summary["normalizer"], summary["counts"]["errors"]) == ("none", 1)


def test_wrong_ids_name_the_files(tmp_path):
    with pytest.raises(DataError, match=r"text, .*hyp: references \(2 .*s2-b"):
        run(tmp_path, "s1-a x\ns2-b y\n", "s1-a x\n", "--lang", "en")
    assert not (tmp_path / "out").exists()


REF = "s1-a a b c\ns1-b\ns2-a d e\n"
BASE = "s1-a a x c\ns1-b noise\ns2-a d e\n"
GOOD = "s2-a d e\ns1-b\ns1-a a b c\n"  # not sorted


def several(folder, *options, ref=REF, **hyps):
    for name, text in {"ref": ref, "utt2spk": "s1-a s1\ns1-b s1\ns2-a s2\n", **hyps}.items():
        (folder / name).write_text(text, encoding="utf-8")
    first, *others = (str(folder / name) for name in hyps)
    command.main(
        ["--ref", str(folder / "ref"), "--hyp", first, "--hyp2", *others, "--lang", "en"]
        + ["--out", str(folder / "out"), "--replicates", "100", *options]
    )
    return folder / "out"


def test_systems_are_compared(tmp_path):
    out = several(tmp_path, base=BASE, good=GOOD, third=BASE)
    assert sorted(path.name for path in out.iterdir()) == [
        "base", "comparison.csv", "comparison.md", "good", "third",
    ]  # fmt: skip
    summary = json.loads((out / "good/score_wer/score.json").read_text(encoding="utf-8"))
    assert summary["counts"]["errors"] == 0
    table = (out / "comparison.md").read_text("utf-8").splitlines()
    assert [row.split("|")[2:5] for row in table if row.startswith("|wer|")] == [
        ["good", "40.00", "0.00"], ["third", "40.00", "40.00"],
    ]  # fmt: skip


def test_without_speakers_each_utterance_is_its_own_and_it_says_so(tmp_path, caplog):
    with caplog.at_level("INFO"):
        out = several(tmp_path, base=BASE, good=GOOD) / "good/score_wer"
    assert "no utt2spk: every utterance is its own speaker" in caplog.text
    assert "every utterance is its own" in json.loads((out / "score.json").read_text())["speakers"]
    assert "a b c (s1-a-s1-a)" in (out / "ref.trn").read_text("utf-8")


def test_speakers_are_drawn(tmp_path):
    options = "--utt2spk", str(tmp_path / "utt2spk"), "--resample", "speakers"
    out = several(tmp_path, *options, base=BASE, good=GOOD)
    assert "paired bootstrap over 2 speakers" in (out / "comparison.md").read_text("utf-8")
    assert "speakers" not in json.loads((out / "good/score_wer/score.json").read_text())


def test_a_family_is_all_rows_of_all_units(tmp_path):
    out = several(tmp_path, "--unit", "wer", "cer", base=BASE, good=GOOD)
    assert "exactly the 2 tests of this table" in (out / "comparison.md").read_text("utf-8")


def test_wrong_ids_of_one_system_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(DataError, match=r"ref, .*short: references \(3 .*s2-a"):
        several(tmp_path, base=BASE, short="s1-a a\ns1-b b\n")
    assert not (tmp_path / "out").exists()


def test_no_reference_token_names_the_files(tmp_path):
    with pytest.raises(DataError, match=r"ref, .*base: no reference token in 2 utterances \(wer\)"):
        several(tmp_path, ref="s1-a\ns2-a\n", base="s1-a x\ns2-a\n", good="s1-a\ns2-a\n")


def test_a_duplicate_id_is_refused_with_its_line(tmp_path):
    with pytest.raises(DataError, match=r"twice:4: utterance 's1-a': duplicate id"):
        several(tmp_path, base=BASE, twice=GOOD + "s1-a a\n")


def test_a_failed_scoring_leaves_no_old_comparison_behind(tmp_path):
    out = several(tmp_path, base=BASE, good=GOOD)
    ref = REF.replace("a b c", "a @ c")
    with pytest.raises(DataError, match=r"ref, .*base: reference of .*markup"):
        several(tmp_path, "--normalizer", "none", ref=ref, base=BASE, good=GOOD)
    assert [path.name for path in out.iterdir() if path.is_file()] == []
