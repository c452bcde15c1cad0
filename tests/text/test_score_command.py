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
