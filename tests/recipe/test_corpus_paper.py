"""``run.sh --corpus paper``, stages 1 to 4 with the real commands, on small published layouts."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from published_layouts import TREES

from espnet_latentasr.data.kaldi_dir import KaldiDir, read_kaldi_table
from espnet_latentasr.data.manifest import read_manifest

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "egs2" / "latentasr" / "asr1"
# The paper's seven corpora, with less of each: so many utterances as the small copies hold.
MIXTURES = """
paper:
  {seed: 42, size: 10, pool: 13, split: train, shares: {common_voice: {quota: 4, cap: 3},
    fleurs: {quota: 2}, voxpopuli: {quota: 1, parts: [en]}, librispeech: {quota: 0}, ascend: {quota: 1},
    peoples_speech: {quota: 1, parts: [clean]}, gigaspeech: {quota: 1}}}
paper_dev:
  {seed: 42, size: 3, pool: 3, split: dev, shares: {common_voice: {quota: 2}, fleurs: {quota: 1}}}
"""
TESTS = "fleurs_cmn_hans_cn_test ascend_main_test voxpopuli_en_test"
OPTIONS = [
    *("--corpus", "paper", "--test_sets", TESTS, "--noisy_test_sets", "voxpopuli_en_test", "--nj", "1"),
    *("--num_activation", "10", "--stop_stage", "4"),
]


@pytest.fixture(scope="module")
def corpora(tmp_path_factory) -> Path:
    pytest.importorskip("pyarrow", reason="pip install pyarrow")
    root = tmp_path_factory.mktemp("corpora")
    sizes = {"common_voice": 3, "fleurs": 2, "voxpopuli": 3, "librispeech": 2, "ascend": 2,
             "peoples_speech": 2, "gigaspeech": 3}  # fmt: skip
    for name, num in sizes.items():
        (root / name).mkdir()
        TREES[name](root / name, num)
    (root / "mixtures.yaml").write_text(MIXTURES)
    return root


def copy_recipe(root: Path) -> Path:
    """A copy of the recipe beside a link to the package: nothing is written into the real one."""
    recipe = root / "egs2" / "latentasr" / "asr1"
    ignored = shutil.ignore_patterns("data", "dump*", "exp*", "downloads", "results", "mini_backbone")
    shutil.copytree(RECIPE, recipe, ignore=ignored)
    (root / "espnet_latentasr").symlink_to(ROOT / "espnet_latentasr")
    return recipe


def run(recipe: Path, *words: str) -> subprocess.CompletedProcess:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["./run.sh", *words], cwd=recipe, env={**os.environ, "PATH": path}, capture_output=True,
        text=True, stdin=subprocess.DEVNULL, timeout=600,
    )  # fmt: skip


@pytest.fixture(scope="module")
def finished(corpora, tmp_path_factory) -> tuple[Path, str]:
    recipe = copy_recipe(tmp_path_factory.mktemp("checkout"))
    mixtures = f"--mixtures {corpora}/mixtures.yaml"
    done = run(recipe, *OPTIONS, "--corpus_src", str(corpora), "--local_data_opts", mixtures)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return recipe, done.stdout


def test_stages_1_to_4(finished):
    recipe, output = finished
    for stage in range(1, 5):
        assert f"Stage {stage}: " in output
    assert "data/paper_pool: valid, 13 utterances" in output
    assert "activation_10: 10 of 13 utterances, first of data/paper_pool/manifest.tsv" in output
    order = [one.utt for one in read_manifest(recipe / "data/paper_pool/manifest.tsv")]
    activation = KaldiDir.load(recipe / "dump_paper/raw/activation_10")
    assert activation.utts == sorted(order[:10])
    assert len(KaldiDir.load(recipe / "dump_paper/raw/paper_dev").utts) == 3
    # Every language is one that the recogniser can be told.
    assert set(activation.languages().values()) <= {"en", "de", "zh"}
    for name in (*TESTS.split(), "voxpopuli_en_test_snr0"):
        formatted = KaldiDir.load(recipe / "dump_paper/raw" / name)
        source = KaldiDir.load(recipe / "data" / name)
        assert formatted.text == source.text and formatted.utt2lang == source.utt2lang


def test_what_shows_that_training_and_test_sets_are_apart(finished):
    recipe, _ = finished
    for name in ("paper_pool", "paper_dev"):
        report = json.loads((recipe / f"data/paper_overlap/{name}/overlap.json").read_text())
        assert report["excluded"] == 0 and report["kinds"] == ["utterance", "speaker", "text", "audio"]
        assert set(TESTS.split()) <= set(report["tests"])


def test_noisy_copies_and_what_sets_are_scored_as(finished):
    recipe, _ = finished
    noise = read_kaldi_table(recipe / "data/voxpopuli_en_test_snr0/utt2noise")
    assert len(noise) == 3 and all(abs(float(v.split()[2])) < 0.01 for v in noise.values())
    scored = {name: (recipe / f"data/{name}/score_lang").read_text().strip() for name in TESTS.split()}
    assert list(scored.values()) == ["zh", "zh-en", "en"]


def test_a_rerun_reads_no_corpus_again(finished, corpora):
    recipe, _ = finished
    words = ["--corpus_src", str(corpora), "--local_data_opts", f"--mixtures {corpora}/mixtures.yaml"]
    tables = [p for p in recipe.glob("data/*/*") if p.is_file() and p.parent.name != "log"]
    before = {path: path.read_bytes() for path in tables}
    done = run(recipe, *OPTIONS, *words, "--stop_stage", "1")
    assert done.returncode == 0, done.stderr[-3000:]
    assert ": reading " not in done.stderr and done.stderr.count("complete, left as it is") >= 10
    assert before == {path: path.read_bytes() for path in tables}


@pytest.mark.slow
@pytest.mark.parametrize(
    "words, message",
    [
        (["--test_sets", "fleurs_af_za_test"], "part 'af_za' has no language of text/languages.yaml"),
        (["--local_data_opts", "--languages all"], "holds languages that no recogniser"),
    ],
)
def test_languages_that_nothing_can_be_told(corpora, tmp_path, words, message):
    recipe = copy_recipe(tmp_path)
    done = run(recipe, *OPTIONS, "--corpus_src", str(corpora), *words)
    assert done.returncode != 0 and message in done.stderr
    assert not list(recipe.glob("data/*/wav.scp"))
