"""The recipe itself, stages 1 to 13, on a small corpus and the committed recogniser."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPE = "egs2/latentasr/asr1"
OPTIONS = [
    *("--scale", "0.02", "--num_activation", "24", "--snrs", "0", "--noisy_test_sets", "test_voice"),
    *("--asr_args", "--max_epoch 2 --num_workers 0", "--inference_nj", "2", "--nj", "2"),
]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of the recipe beside links to package and tools: nothing is written into the real one."""
    root = tmp_path_factory.mktemp("checkout")
    for name in ("espnet_latentasr", "tools", "setup.py"):
        (root / name).symlink_to(ROOT / name)
    ignored = shutil.ignore_patterns("data", "dump", "exp", "downloads", "RESULTS.md")
    shutil.copytree(ROOT / RECIPE, root / RECIPE, ignore=ignored)
    return root / RECIPE


def run(recipe: Path, *options: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["./run.sh", *OPTIONS, *options],
        cwd=recipe,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
    )


@pytest.fixture(scope="module")
def finished(checkout) -> tuple[Path, str]:
    done = run(checkout)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return checkout, done.stdout


EXPERIMENTS = ("asr_train_latent", "asr_train_latent_paper")


def experiment(recipe: Path, name: str) -> Path:
    return next(recipe.glob(f"exp/{name}_max_epoch*"))


def test_all_stages_run_and_say_so(finished):
    recipe, output = finished
    for stage in range(1, 14):
        assert f"Stage {stage}: " in output
    assert output.count("nothing to do: no rescoring configuration asks") == 3
    assert "Successfully finished" in output


def test_results_have_both_presets_and_both_decodings(finished):
    recipe, _ = finished
    report = (recipe / "RESULTS.md").read_text()
    assert "|dataset|Snt|Wrd|Corr|Sub|Del|Ins|Err|S.Err|" in report
    for name in EXPERIMENTS:
        assert f"## {experiment(recipe, name).relative_to(recipe)}\n" in report
    for row in ("decode_frozen/test_voice_snr0", "decode_latent/test_text"):
        assert report.count(f"|{row}|") >= 4, "WER and CER of both experiments"
    assert "### Latent against frozen (WER)" in report and "normaliser: none" in report


def test_frozen_decoding_is_the_same_whichever_adapter_is_loaded(finished):
    recipe, _ = finished
    one, two = (experiment(recipe, name) / "decode_frozen" for name in EXPERIMENTS)
    for table in sorted(one.glob("*/text")):
        assert table.read_text() == (two / table.relative_to(one)).read_text()


def test_checkpoints_are_small_and_outputs_complete(finished):
    recipe, _ = finished
    folder = experiment(recipe, "asr_train_latent")
    assert (folder / "valid.ce.best.pth").stat().st_size < 400_000
    rows = [json.loads(x) for x in open(folder / "decode_latent/test_voice/latent.jsonl")]
    expected = (recipe / "dump/raw/test_voice/text").read_text().count("\n")
    assert len(rows) == expected and {"values", "steps", "stopped", "seconds"} <= rows[0].keys()
    assert (folder / "decode_latent/test_voice/score_wer/result.txt").is_file()
    depths = [json.loads(x) for x in open(folder / "decode_latent_depths/test_voice/nbest.jsonl")]
    assert [h["depth"] for h in depths[0]["hyps"]] == [0, 1], "the default takes one step"
    assert "<html" in (folder / "report.html").read_text() and (folder / "report").is_dir()


def test_a_rerun_does_nothing_again(finished):
    recipe, _ = finished
    folder = experiment(recipe, "asr_train_latent")
    watched = [
        folder / "valid.ce.best.pth",
        folder / "decode_latent/test_voice/logdir/output.1/done.json",
        recipe / "exp/backbone/cache/activation_24/shard.0000.ark",
        next((recipe / "data/test_text/wavs").iterdir()),
    ]
    stamps = [path.stat().st_mtime_ns for path in watched]
    done = run(recipe)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert [path.stat().st_mtime_ns for path in watched] == stamps


def test_a_failing_job_shows_the_end_of_its_log_and_stops_the_run(finished):
    recipe, _ = finished
    bad = recipe / "conf/bad.yaml"
    bad.write_text("base: train_latent.yaml\nlatent_conf: {stepz: 4}\n")
    done = run(recipe, "--stage", "11", "--asr_config", "conf/bad.yaml")
    assert done.returncode != 0
    assert "did you mean 'model.latent.steps'" in done.stdout + done.stderr
    assert "Stage 12: " not in done.stdout
