"""Time and memory of preparing many short files: ``python benchmarks/prepare.py --files 100000``.

Lays out ``--files`` clips of ``--seconds`` as LibriSpeech is (a few hundred recordings under many names,
hard links), runs the commands of stages 1 and 3 on them, and compares with merely reading every file once
with soundfile.  ``--parquet true`` has the clips embedded in Parquet files instead.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import soundfile

RECORDINGS = 200
IN_CHAPTER = 100
READ = """import sys, pathlib, soundfile
for path in pathlib.Path(sys.argv[1]).rglob("*.flac"): soundfile.read(path)"""


def recordings(seconds: float) -> list[np.ndarray]:
    """Noise at a low level, which FLAC takes about as long to read as speech."""
    rng = np.random.default_rng(0)
    return [0.1 * rng.standard_normal(round(16000 * seconds)) for _ in range(RECORDINGS)]


def write_files(root: Path, num: int, seconds: float) -> None:
    """Write ``LibriSpeech/train-clean-100/<speaker>/<chapter>/*.flac`` with their transcripts."""
    pool = [root / f".{n}.flac" for n in range(RECORDINGS)]
    for path, samples in zip(pool, recordings(seconds), strict=True):
        soundfile.write(path, samples, 16000)
    for first in range(0, num, IN_CHAPTER):
        speaker, chapter = str(1000 + first // (4 * IN_CHAPTER)), str(first // IN_CHAPTER)
        folder = root / "LibriSpeech/train-clean-100" / speaker / chapter
        folder.mkdir(parents=True)
        lines = []
        for n in range(min(IN_CHAPTER, num - first)):
            name = f"{speaker}-{chapter}-{n:04}"
            os.link(pool[(first + n) % RECORDINGS], folder / f"{name}.flac")
            lines.append(f"{name} CHAPTER {chapter} SENTENCE {n}\n")
        (folder / f"{speaker}-{chapter}.trans.txt").write_text("".join(lines))
    for path in pool:
        path.unlink()


def write_parquet(root: Path, num: int, seconds: float) -> None:
    """Write the same as ``clean/train.100/*.parquet``, as on the hub."""
    import pyarrow
    from pyarrow import parquet

    clips = []
    for samples in recordings(seconds):
        buffer = io.BytesIO()
        soundfile.write(buffer, samples, 16000, format="FLAC")
        clips.append(buffer.getvalue())
    (root / "clean/train.100").mkdir(parents=True)
    for first in range(0, num, 10_000):
        rows = [{"audio": {"bytes": clips[n % RECORDINGS], "path": f"{n}.flac"}, "text": f"SENTENCE {n}",
                 "speaker_id": 1000 + n // 400, "id": f"1000-{n // 400}-{n}"}
                for n in range(first, min(num, first + 10_000))]  # fmt: skip
        path = root / f"clean/train.100/{first // 10_000:04}.parquet"
        parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=100)


def measure(words: list[str]) -> tuple[float, float, float]:
    """Run a command; return its wall and CPU seconds and its peak memory (MiB)."""
    started, peak = time.perf_counter(), 0
    with tempfile.TemporaryFile() as error:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=error)
        # Of the process itself: what wait4 gives counts the memory of this one before it.
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak = max(peak, *map(int, re.findall(r"VmHWM:\s+(\d+)", status)), 0)
            time.sleep(0.05)
        _, code, usage = ended
        if code:
            error.seek(0)
            raise SystemExit(f"{' '.join(words)}\n{error.read().decode()[-2000:]}")
    return time.perf_counter() - started, usage.ru_utime + usage.ru_stime, peak / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--parquet", choices=["true", "false"], default="false")
    parser.add_argument("--nj", type=int, default=1, help="of stage 3")
    parser.add_argument("--dir", type=Path, help="where files are made, and deleted")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.dir) as name:
        root = Path(name)
        embedded = args.parquet == "true"
        (root / "src").mkdir()
        (write_parquet if embedded else write_files)(root / "src", args.files, args.seconds)
        command = [sys.executable, "-m", "espnet_latentasr.bin.prepare"]
        where = ["librispeech", "--src", str(root / "src"), "--out", str(root / "data")]
        stage1 = measure([*command, *where, "--parts", "clean", "--splits", "train"])
        again = measure([*command, *where, "--parts", "clean", "--splits", "train"])
        command[-1] = "espnet_latentasr.bin.format_wav"
        data = ["--data_dir", f"{root}/data/librispeech_clean_train", "--output_dir", f"{root}/dump"]
        stage3 = measure([*command, *data, "--kind", "train", "--nj", str(args.nj)])
        clips = root / ("data/librispeech_clean_train/audio" if embedded else "src")
        floor = measure([sys.executable, "-c", READ, str(clips)])
        lines = (root / "dump/wav.scp").read_text().count("\n")
        assert lines == args.files, f"{lines} of {args.files} files are prepared"
    what = {"read with soundfile": floor, "stage 1": stage1, "stage 1 again": again, "stage 3": stage3}
    print(f"{args.files} files of {args.seconds} s, --nj {args.nj}")
    for label, (wall, cpu, memory) in what.items():
        ratio = cpu / floor[1]
        print(f"{label:20} {wall:8.1f} s wall {cpu:8.1f} s CPU ({ratio:4.2f} x) {memory:6.0f} MiB")


if __name__ == "__main__":
    main()
