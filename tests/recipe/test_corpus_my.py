"""``run.sh --corpus my``, stages 1 to 4 with the real commands, on Kaldi directories of a user's own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile
from published_layouts import tone

from espnet_latentasr.data.kaldi_dir import KaldiDir

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "egs2" / "latentasr" / "asr1"


def write_table(path: Path, rows: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key} {value}\n" for key, value in rows.items()), encoding="utf-8")


@pytest.fixture
def mine(tmp_path) -> Path:
    """Three directories as Kaldi's own recipes leave them: three makes of audio, one with segments."""
    root = tmp_path / "my corpus".replace(" ", "_")
    (root / "audio").mkdir(parents=True)
    for name, utts, rate, suffix in (
        ("train_si", ("bob-1", "amy-1", "amy-2"), 44100, "flac"),
        ("dev_si", ("cat-1",), 8000, "wav"),
    ):
        paths = {}
        for utt in utts:  # not sorted, and relative to the folder's own
            paths[utt] = f"audio/{utt}.{suffix}"
            soundfile.write(root / paths[utt], tone(utt, rate), rate)
        write_table(root / name / "wav.scp", paths)
        write_table(root / name / "text", {utt: f"words of {utt}" for utt in utts})
        write_table(root / name / "utt2spk", {utt: utt.split("-")[0] for utt in utts})
    test = root / "eval_a"
    soundfile.write(root / "audio/talk.ogg", tone("talk", seconds=1.0), 16000, format="OGG")
    write_table(test / "wav.scp", {"talk": str(root / "audio/talk.ogg")})
    write_table(test / "segments", {"eve-1": "talk 0 0.4", "eve-2": "talk 0.5 0.9"})
    write_table(test / "text", {"eve-1": "grüezi", "eve-2": "mitenand"})
    write_table(test / "utt2spk", {"eve-1": "eve", "eve-2": "eve"})
    write_table(test / "utt2lang", {"eve-1": "de", "eve-2": "de"})
    return root


def run(tmp_path: Path, *words: str) -> tuple[Path, subprocess.CompletedProcess]:
    recipe = tmp_path / "checkout/egs2/latentasr/asr1"
    if not recipe.exists():
        ignored = shutil.ignore_patterns("data", "dump*", "exp*", "downloads", "results", "mini_backbone")
        shutil.copytree(RECIPE, recipe, ignore=ignored)
        (recipe.parents[2] / "espnet_latentasr").symlink_to(ROOT / "espnet_latentasr")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["./run.sh", "--corpus", "my", "--nj", "1", "--num_activation", "2", "--stop_stage", "4", *words],
        cwd=recipe, env={**os.environ, "PATH": path}, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=600,
    )  # fmt: skip
    return recipe, done


def test_stages_1_to_4(mine, tmp_path):
    dirs = ["--train_dir", f"{mine}/train_si", "--valid_dir", f"{mine}/dev_si",
            "--test_dirs", f"{mine}/eval_a"]  # fmt: skip
    recipe, done = run(tmp_path, *dirs)
    assert done.returncode != 0 and "--lang" in done.stderr  # two of them say no language
    recipe, done = run(tmp_path, *dirs, "--lang", "en")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    test = KaldiDir.load(recipe / "dump_my/raw/eval_a")
    assert test.text == {"eve-1": "grüezi", "eve-2": "mitenand"} and test.segments is None
    assert set(test.languages().values()) == {"de"}
    train = KaldiDir.load(recipe / "dump_my/raw/train_si")
    assert train.utts == ["amy-1", "amy-2", "bob-1"] and set(train.languages().values()) == {"en"}
    for data in (test, train, KaldiDir.load(recipe / "dump_my/raw/dev_si")):
        for utt in data.utts:
            info = soundfile.info(recipe / data.wav[utt])
            assert (info.samplerate, info.channels) == (16000, 1)
    assert len(KaldiDir.load(recipe / "dump_my/raw/activation_2").utts) == 2
    # Nothing is written where the user's own directories are.
    assert {p.name for p in (mine / "train_si").iterdir()} == {"wav.scp", "text", "utt2spk"}
