"""Throughput, overhead and peak memory by batch size: ``python benchmarks/latency.py --help``.

Every batch is decoded by each configuration in turn, in one process, in an order that changes from batch
to batch; encoding and prefill are paid by each.  Peak memory is measured in a process of its own for each
configuration and batch size (on a GPU: torch's own count).  The result is what reports print under
"What it costs" when it lies in the experiment's folder as ``batch_sizes.json``.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

from espnet_latentasr.analysis.throughput import read_measured, throughput
from espnet_latentasr.config import DecodeConfig, build, load_yaml
from espnet_latentasr.data.audio import read_audio
from espnet_latentasr.data.kaldi_dir import KaldiDir, c_sorted
from espnet_latentasr.fileio import atomic_write_text


def get_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--backbone_dir", type=Path, required=True)
    add("--asr_train_config", type=Path)
    add("--asr_model_file", type=Path)
    add("--inference_config", type=Path, nargs="+", required=True, help="the first is the baseline")
    add("--data_dir", type=Path, required=True, help="formatted set; its first utterances are taken")
    add("--utterances", type=int, default=64)
    add("--batch_size", type=int, nargs="+", default=[1, 4, 16])
    add("--repeats", type=int, default=2)
    add("--ngpu", type=int, default=0)
    add("--out", type=Path, required=True, help="for reports: batch_sizes.json in the experiment")
    add("--one", choices=["time", "memory"], help=argparse.SUPPRESS)
    return parser


def prepare(args: argparse.Namespace):
    """(recogniser, configurations by name, batches of clips, their seconds of audio)."""
    from espnet_latentasr.decode.loading import load_recogniser
    from espnet_latentasr.decode.recogniser import SAMPLE_RATE, Clips

    device = "cuda" if args.ngpu > 0 else "cpu"
    loaded = load_recogniser(args.backbone_dir, args.asr_train_config, args.asr_model_file, device)
    configs = {p.stem: build(DecodeConfig, load_yaml(p), str(p)) for p in args.inference_config}
    data = KaldiDir.load(args.data_dir)
    languages, utts = data.languages(), c_sorted(data.text)[: args.utterances]
    clips = {utt: read_audio(data.wav[utt], utt) for utt in utts}
    utts.sort(key=lambda utt: len(clips[utt]))
    size = args.batch_size[0]
    groups = [utts[start : start + size] for start in range(0, len(utts), size)]
    batches = [Clips([clips[u] for u in group], [languages[u] for u in group]) for group in groups]
    audio = [sum(len(clip) for clip in batch.audio) / SAMPLE_RATE for batch in batches]
    return loaded.recogniser, configs, batches, audio


def measure_time(args: argparse.Namespace) -> dict:
    """Seconds of every batch under every configuration, after a batch that warms up."""
    recogniser, configs, batches, audio = prepare(args)
    names = list(configs)
    for config in configs.values():
        recogniser.recognise(batches[-1], [config])
    seconds = {name: [] for name in names}
    for turn, batch in enumerate(batches * args.repeats):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            started = time.perf_counter()
            recogniser.recognise(batch, [configs[name]])
            seconds[name].append(time.perf_counter() - started)
    counts = [len(batch) for batch in batches * args.repeats]
    return {
        name: {"utterances": counts, "audio": audio * args.repeats, "seconds": seconds[name]}
        for name in names
    }


def measure_memory(args: argparse.Namespace) -> dict:
    """Most bytes in use while the longest batch is decoded under the one configuration given."""
    recogniser, configs, batches, _ = prepare(args)
    recogniser.recognise(batches[-1], list(configs.values()))
    if args.ngpu > 0:
        import torch

        return {"peak_bytes": torch.cuda.max_memory_allocated()}
    return {"peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}


def alone(args: argparse.Namespace, what: str, size: int, configs: list[Path]) -> dict:
    """Measure in a process of its own."""
    command = [sys.executable, __file__, "--one", what, "--batch_size", str(size)]
    command += ["--inference_config", *map(str, configs)]
    for name in ("backbone_dir", "asr_train_config", "asr_model_file", "data_dir", "utterances",
                 "repeats", "ngpu", "out"):  # fmt: skip
        if (value := getattr(args, name)) is not None:
            command += [f"--{name}", str(value)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    args = get_parser().parse_args()
    if args.one is not None:
        print(json.dumps(measure_time(args) if args.one == "time" else measure_memory(args)))
        return
    rows = []
    for size in args.batch_size:
        times = alone(args, "time", size, args.inference_config)
        for config in args.inference_config:
            row = {"batch_size": size, "configuration": config.stem} | times[config.stem]
            rows.append(row | alone(args, "memory", size, [config]))
    device = platform.processor() or platform.machine()
    if args.ngpu > 0:
        import torch

        device = torch.cuda.get_device_name()
    atomic_write_text(args.out, json.dumps({"device": device, "rows": rows}) + "\n")
    _, measured = read_measured(args.out)
    for row in measured:
        base = next(m for m in measured if m.batch_size == row.batch_size)
        found = throughput(row, None if row is base else base)
        ratio = "" if found.ratio is None else f", {found.ratio:.3f} times {base.configuration}"
        print(
            f"batch {row.batch_size}, {row.configuration}: {found.utterances:.2f} utterances/s, RTF "
            f"{found.rtf:.4f}{ratio}, peak {row.peak_bytes / 2**30:.2f} GiB"
        )


if __name__ == "__main__":
    main()
