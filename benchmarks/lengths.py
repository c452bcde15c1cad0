"""Time and peak memory against audio length, batch size and list size: ``python benchmarks/lengths.py``.

Every point runs in a process of its own, because a peak is never given back.  Memory is what the point
adds to the loaded recogniser: resident memory on a CPU, allocated memory on a GPU.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from pairs import RECIPE, Bench, bench_of
from shapes_06b import TEXT, random_backbone

from espnet_latentasr.backbone.registry import load_backbone
from espnet_latentasr.config import BackboneConfig, PromptConfig
from espnet_latentasr.data.audio import SAMPLE_RATE
from espnet_latentasr.decode.recogniser import Clips
from espnet_latentasr.decode.sampling import SamplingRule, sample
from espnet_latentasr.fileio import atomic_write_text

POINTS = {
    "seconds": (10, 60, 300, 1200),
    "batch": (1, 4, 8, 16, 32),
    "samples": (1, 16, 64, 128),
}
TOKENS = 30


def noise(seconds: float, seed: int) -> np.ndarray:
    """A clip of that length; what is said in it does not matter to time and memory."""
    rng = np.random.default_rng(seed)
    return (0.1 * rng.standard_normal(int(SAMPLE_RATE * seconds))).astype(np.float32)


def peak(device: str) -> float:
    """Most memory held so far, GiB."""
    if device != "cpu":
        return torch.cuda.max_memory_allocated() / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def clock(device: str) -> float:
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def run_point(bench: Bench, kind: str, value: int) -> dict[str, float]:
    """CPU seconds (on a GPU: seconds) of one point; N = 4 latents and 30 tokens."""
    if kind == "samples":
        with torch.inference_mode():
            prompt = bench.backbone.text.prompt("en", PromptConfig())
            state = bench.backbone.prefill(bench.backbone.encode([noise(10, 0)]), [prompt])
            sample(bench.backbone, state, [TOKENS], [list(range(value))], SamplingRule())
        return {}
    count, seconds = (1, value) if kind == "seconds" else (value, 10)
    clips = [noise(seconds, row) for row in range(count)]
    always = bench.rule(halting={"kind": "always"})
    results = bench.recogniser.recognise(Clips(clips, ["en"] * count), [always])[0]
    return {stage: sum(r.seconds[stage] for r in results) for stage in results[0].seconds}


def point(args: argparse.Namespace) -> dict[str, float]:
    torch.set_num_threads(args.threads)
    if args.shapes == "mini":
        backbone = load_backbone(BackboneConfig(name=str(args.mini_backbone))).to(args.device)
        backbone.end_ids = (-1,)  # every text is as long as it may be
    else:
        backbone = random_backbone(getattr(torch, args.dtype), args.device)
    bench = bench_of(backbone, [], [TEXT], TOKENS, 4)
    before, started = peak(args.device), clock(args.device)
    stages = run_point(bench, *args.point)
    return {"seconds": clock(args.device) - started, "added": peak(args.device) - before, **stages}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--shapes", choices=["mini", "0.6b"], default="mini")
    add("--mini_backbone", type=Path, default=RECIPE / "local/mini_backbone")
    add("--kinds", nargs="*", choices=list(POINTS), default=list(POINTS))
    add("--most", type=int, default=10**9, help="leave out points beyond this number")
    add("--dtype", choices=["float32", "bfloat16"], default="float32")
    add("--device", default="cpu")
    add("--threads", type=int, default=1)
    add("--out", type=Path, help="the table, as Markdown")
    add("--point", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.point:
        args.point = args.point[0], int(args.point[1])
        print(json.dumps(point(args)))
        return
    stages = ("encode", "prefill", "loop", "decode")
    unit = "CPU s" if args.device == "cpu" else "s"
    lines = [f"| | {unit} | wall s: {', '.join(stages)} | added memory, GiB |", "|---|---|---|---|"]
    print("\n".join(lines))
    for kind in args.kinds:
        for value in (v for v in POINTS[kind] if v <= args.most):
            command = [sys.executable, __file__, *sys.argv[1:], "--point", kind, str(value)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            row = json.loads(done.stdout.splitlines()[-1])
            parts = ", ".join(f"{row[s]:.2f}" for s in stages) if "loop" in row else "-"
            lines.append(f"| {kind} {value} | {row['seconds']:.2f} | {parts} | {row['added']:.2f} |")
            print(lines[-1], flush=True)
    if args.out is not None:
        atomic_write_text(args.out, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
