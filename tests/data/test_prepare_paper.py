"""All data of the paper from small copies of its corpora: pools, test sets, the recipe's stage 1."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from published_layouts import TREES

from espnet_latentasr.bin import prepare
from espnet_latentasr.data.corpora import PREPARE
from espnet_latentasr.data.kaldi_dir import KaldiDir
from espnet_latentasr.data.manifest import read_manifest
from espnet_latentasr.data.overlap import find_overlap
from espnet_latentasr.data.paper import prepare_paper
from espnet_latentasr.errors import ConfigError, DataError

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "egs2" / "latentasr" / "asr1"
# Small as the copies are: of six utterances of Common Voice (three locales) four, and so on.
MIXTURES = """
paper:
  seed: 42
  size: 5
  pool: 7
  split: train
  shares:
    common_voice: {quota: 2, cap: 2}
    fleurs: {quota: 1}
    librispeech: {quota: 1, parts: [clean]}
    ascend: {quota: 1}
paper_dev:
  {seed: 42, size: 2, pool: 2, split: dev, shares: {common_voice: {quota: 1}, fleurs: {quota: 1}}}
"""
TESTS = ["fleurs_en_us_test", "ascend_main_test", "librispeech_clean_test_1"]


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Write the copies that need no Parquet once."""
    root = tmp_path_factory.mktemp("corpora")
    for name in ("common_voice", "fleurs", "librispeech", "ascend"):
        (root / name).mkdir()
        TREES[name](root / name)
    (root / "m.yaml").write_text(MIXTURES)
    return root


@pytest.fixture
def corpora(originals, tmp_path):
    return Path(shutil.copytree(originals, tmp_path / "corpora"))


@pytest.fixture
def run(corpora, tmp_path):
    def prepared(tests=TESTS, **options):
        own = {"mixtures": corpora / "m.yaml", "downloads": tmp_path / "downloads", "threads": 1}
        return prepare_paper(tmp_path / "data", corpora, tests, **own | options)

    return prepared


def test_everything(run, tmp_path):
    counts = run(languages="all")
    assert counts == {"fleurs_en_us_test": 2, "ascend_main_test": 3, "librispeech_clean_test_1": 1,
                      "paper_pool": 7, "paper_dev": 2}  # fmt: skip
    sets = {name: KaldiDir.load(tmp_path / "data" / name) for name in counts}
    pool, dev = sets.pop("paper_pool"), sets.pop("paper_dev")
    assert not find_overlap([pool], {**sets, "dev": dev}).excluded()
    assert not find_overlap([dev], sets).excluded()
    drawn = read_manifest(tmp_path / "data/paper_pool/manifest.tsv")
    assert sorted(one.corpus for one in drawn[:5]) == [
        "ascend", "common_voice", "common_voice", "fleurs", "librispeech"
    ]  # fmt: skip
    for name in ("paper_pool", "paper_dev"):
        report = tmp_path / "data/paper_overlap" / name
        assert "Nothing is shared" in (report / "overlap.md").read_text()
        assert json.loads((report / "overlap.json").read_text())["excluded"] == 0


def test_only_languages_whose_prompt_can_be_forced(run, tmp_path):
    run()
    codes = set(KaldiDir.load(tmp_path / "data/paper_pool").languages().values())
    assert "auto" not in codes and len(codes) >= 3
    about = json.loads((tmp_path / "data/paper_pool/mixture.json").read_text())
    assert about["languages"] == "those Qwen3-ASR has a name for"


def test_what_a_test_set_shares_is_never_drawn(run, corpora, tmp_path):
    """A test sentence in a training set, and a training recording that a test set has too."""
    table = corpora / "ascend/train_metadata.csv"
    text = table.read_text(encoding="utf-8")
    lines = text.splitlines()
    lines[1] = lines[1].replace("好的 train", "En-us: TEST 0!")
    lines[2] = lines[2].replace("我们 go 吧,快 train", "en us test 1").replace('"', "")
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    clean = corpora / "librispeech/LibriSpeech"
    tested = clean / "test-clean/1089/7/1089-7-0000.flac"
    shutil.copy(tested, clean / "train-clean-100/103/7/103-7-0001.flac")
    run()
    pool = KaldiDir.load(tmp_path / "data/paper_pool")
    assert "ls103-103_7_0001" not in pool.utts and "ls103-103_7_0000" in pool.utts
    ascend = [text for utt, text in pool.text.items() if utt.startswith("as")]
    assert ascend == ["okay train"]  # the only one that FLEURS does not test


def test_too_much_is_shared(run, corpora, tmp_path):
    clean = corpora / "librispeech/LibriSpeech"
    for number in range(2):
        shutil.copy(clean / "test-clean/1089/7/1089-7-0000.flac",
                    clean / f"train-clean-100/103/7/103-7-000{number}.flac")  # fmt: skip
    with pytest.raises(DataError, match="librispeech: 1 wanted, 0 of 2 candidates are usable"):
        run()


def test_a_test_set_in_a_language_without_a_code(run, tmp_path):
    """Nothing could be told a recogniser, or be scored, in the end: it is refused before any work."""
    with pytest.raises(ConfigError, match="part 'af_za' has no language of text/languages.yaml"):
        run(tests=[*TESTS, "fleurs_af_za_test"])
    assert not (tmp_path / "data").exists()
    with pytest.raises(ConfigError, match="languages 'every': one of named, known, all expected"):
        run(languages="every")


@pytest.mark.parametrize("samples", [np.zeros(4800), np.ones((4800, 2)) / 2], ids=["silent", "stereo"])
def test_what_stage_3_would_refuse_is_not_drawn(run, tmp_path, caplog, samples):
    """What no header shows, or no length: the other of two utterances is drawn instead."""
    run()
    pool = tmp_path / "data/paper_pool"
    (drawn,) = [utt for utt in KaldiDir.load(pool).utts if utt.startswith("ls")]
    soundfile.write(KaldiDir.load(pool).wav[drawn], samples, 16000)
    run()
    (other,) = [utt for utt in KaldiDir.load(pool).utts if utt.startswith("ls")]
    assert other != drawn and f"passed over: utterance '{drawn}'" in caplog.text
    assert json.loads((pool / "mixture.json").read_text())["passed_over"]["unreadable"] == 1


def test_a_rerun_makes_the_same_and_reads_no_corpus_again(run, tmp_path, monkeypatch, files_of):
    run()
    before = files_of(tmp_path / "data")
    monkeypatch.setattr("espnet_latentasr.data.corpus_set.collect", None)
    run()
    assert files_of(tmp_path / "data") == before


def test_what_no_copy_has_is_asked_of_the_hub(run, corpora, tmp_path, monkeypatch):
    shutil.rmtree(corpora / "librispeech")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match="librispeech_clean_train: .*needs the package datasets"):
        run(tests=TESTS[:2])
    with pytest.raises(ConfigError, match="librispeech: revision 'main' is no commit"):
        run(tests=TESTS[:2], revisions={"librispeech": "main"})
    with pytest.raises(ConfigError, match="revision of 'libri': one of common_voice"):
        run(revisions={"libri": "0" * 40})
    with pytest.raises(DataError, match="set 'fleurs_en_us_dev': <corpus>_<part>_test"):
        run(tests=["fleurs_en_us_dev"])


@pytest.mark.slow
def test_data_sh(corpora, tmp_path):
    """The recipe's stage 1 on a copy of the recipe, with the real commands."""
    recipe = tmp_path / "egs2/latentasr/asr1"
    (recipe / "local").mkdir(parents=True)
    for name in ("path.sh", "db.sh", "local/data.sh", "local/path.sh"):
        shutil.copy(RECIPE / name, recipe / name)
    (tmp_path / "espnet_latentasr").symlink_to(ROOT / "espnet_latentasr")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    sets = "paper_pool paper_dev fleurs_en_us_test ascend_main_test"
    words = ["--corpus", "paper", "--src", str(corpora), "--mixtures", str(corpora / "m.yaml"), "--cap",
             "common_voice=3,fleurs=2", "--languages", "known", "--nj", "1", "--sets"]  # fmt: skip
    done = subprocess.run(
        ["local/data.sh", *words, sets], cwd=recipe, env={**os.environ, "PATH": path},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "data/paper_pool: 7 utterances" in done.stdout and "Successfully finished" in done.stdout
    about = json.loads((recipe / "data/paper_pool/mixture.json").read_text())
    assert about["mixture"]["shares"]["common_voice"]["cap"] == 3
    assert (recipe / "data/ascend_main_test/score_lang").read_text() == "zh-en\n"
    done = subprocess.run(
        ["local/data.sh", "--corpus", "paper", "--src", str(corpora)], cwd=recipe,
        env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 2 and "--sets: the test sets of the paper" in done.stderr
    # What no prompt can name is refused in any set, unless it is asked for.
    table = recipe / "data/fleurs_en_us_test/utt2lang"
    table.write_text(table.read_text().replace(" en", " auto"))
    words = ["local/data.sh", "--corpus", "none", "--sets", "fleurs_en_us_test"]
    for more, code in (([], 1), (["--allow_auto", "true"], 0)):
        done = subprocess.run([*words, *more], cwd=recipe, env={**os.environ, "PATH": path},
                              capture_output=True, text=True, timeout=300)  # fmt: skip
        assert done.returncode == code, done.stderr
    assert (recipe / "data/log").is_dir()


def test_corpus_defaults():
    """What run.sh sources: the sets that stage 1 makes, each a name that can be read."""
    shown = subprocess.run(
        ["bash", "-euc", 'default() { printf "%s=%s\\n" "$1" "$2"; }; . local/corpus_paper.sh'],
        cwd=RECIPE, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    values = dict(line.split("=", 1) for line in shown.splitlines())
    assert (values["train_set"], values["valid_set"]) == ("paper_pool", "paper_dev")
    assert values["activation_manifest"] == "data/paper_pool/manifest.tsv"
    assert set(values["noisy_test_sets"].split()) <= set(values["test_sets"].split())
    assert (RECIPE / values["asr_config"]).is_file() and values["train_snrs"] == ""
    for name in values["test_sets"].split():
        assert name.rpartition("_")[2] == "test" and any(name.startswith(f"{c}_") for c in PREPARE)


def test_command(corpora, tmp_path, capsys):
    words = f"paper --out {tmp_path}/data --src {corpora} --mixtures {corpora}/m.yaml --nj 1"
    words += f" --downloads {tmp_path}/downloads --sets paper_pool paper_dev ascend_main_test"
    prepare.main(words.split())
    assert capsys.readouterr().out.splitlines() == [
        f"{tmp_path}/data/{name}: {count} utterances"
        for name, count in (("ascend_main_test", 3), ("paper_pool", 7), ("paper_dev", 2))
    ]


def test_embedded_audio_in_a_pool(corpora, tmp_path):
    """A corpus in Parquet beside others in files: its audio is written once, below its own set."""
    pytest.importorskip("pyarrow")
    (corpora / "peoples_speech").mkdir()
    TREES["peoples_speech"](corpora / "peoples_speech")
    text = MIXTURES.replace("ascend: {quota: 1}", "peoples_speech: {quota: 1, parts: [clean]}")
    (corpora / "m.yaml").write_text(text)
    own = {"mixtures": corpora / "m.yaml", "downloads": tmp_path / "downloads", "threads": 1}
    prepare_paper(tmp_path / "data", corpora, ["fleurs_en_us_test"], **own)
    pool = KaldiDir.load(tmp_path / "data/paper_pool")
    paths = [path for utt, path in pool.wav.items() if utt.startswith("ps-")]
    folder = tmp_path / "data/peoples_speech_clean_train/audio"
    assert paths and all(Path(path).parent == folder for path in paths)
