"""Peak memory of a decoding job by the size of its set: ``python benchmarks/memory_decode.py --help``.

A small recogniser with random weights decodes sets whose utterances are a few short files of noise under
many ids, each set in a process of its own.  What is measured is what grows with the set: audio, results,
tables.  Weights and activations of a real recogniser come on top and do not depend on it.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from espnet_latentasr.data.audio import SAMPLE_RATE, write_wav
from espnet_latentasr.data.kaldi_dir import KaldiDir


def get_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--utterances", type=int, nargs="+", default=[1000, 5000, 25000])
    add("--files", type=int, default=8, help="different recordings in a set")
    add("--seconds", type=float, default=0.3, help="length of the longest recording")
    add("--samples", type=int, default=0, help="candidate lists of so many samples instead of one text")
    add("--max_tokens", type=int, default=4)
    add("--batch_size", type=int, default=32)
    add("--one", type=Path, help=argparse.SUPPRESS)
    return parser


def write_set(folder: Path, utterances: int, files: int, seconds: float) -> KaldiDir:
    """A set of that many ids that takes its audio from a few files of noise."""
    draw = np.random.default_rng(0)
    paths = [folder / f"noise{n}.wav" for n in range(files)]
    for n, path in enumerate(paths):
        samples = int(seconds * SAMPLE_RATE * (n + files) / (2 * files - 1))
        write_wav(path, (0.1 * draw.standard_normal(samples)).astype(np.float32))
    ids = [f"utt{n:06d}" for n in range(utterances)]
    wav = {utt_id: str(paths[n % files]) for n, utt_id in enumerate(ids)}
    text, lang = dict.fromkeys(ids, "turn on the light"), dict.fromkeys(ids, "en")
    return KaldiDir(folder, wav, text, {u: u for u in ids}, lang).save(folder / "set")


def peak_mib() -> float:
    """The most memory this process has had, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(args: argparse.Namespace) -> dict:
    """Peak memory with the model alone and after the job, and CPU seconds of the job."""
    import torch
    from transformers import Qwen3ASRForConditionalGeneration

    from espnet_latentasr.backbone import mini
    from espnet_latentasr.backbone.mini_training import initialize_by_fan_in
    from espnet_latentasr.backbone.qwen3_asr import Qwen3ASRBackbone
    from espnet_latentasr.config import DecodeConfig, HaltingConfig, PromptConfig
    from espnet_latentasr.decode.job import Rule, run_job
    from espnet_latentasr.decode.loading import Loaded
    from espnet_latentasr.decode.nbest import NbestConfig
    from espnet_latentasr.decode.nbest_job import run_nbest
    from espnet_latentasr.decode.recogniser import Recogniser

    torch.set_num_threads(1)
    torch.manual_seed(0)
    size = mini.MiniSize(width=64, encoder_layers=1, decoder_layers=1, conv_channels=4, mel_bins=32)
    tokenizer = mini.build_tokenizer(["turn on the light"], 300)
    model = Qwen3ASRForConditionalGeneration(mini.build_config(tokenizer, size))
    initialize_by_fan_in(model)
    backbone = Qwen3ASRBackbone(model, mini.build_processor(tokenizer, size.mel_bins), fingerprint="x")
    loaded = Loaded(Recogniser(backbone, None, PromptConfig()), "none", "x")
    config = DecodeConfig(
        halting=HaltingConfig(kind="never"),
        batch_size=args.batch_size,
        tokens_per_second=0.0,
        tokens_extra=args.max_tokens,
    )
    before, started = peak_mib(), time.process_time()
    if args.samples:
        lists = NbestConfig(samples=args.samples, beam=0)
        run_nbest(loaded, config, lists, args.one / "set", args.one / "nbest.jsonl")
    else:
        run_job(loaded, [Rule("decode", config)], args.one / "set", args.one / "out", 1, 1)
    return {"model": before, "job": peak_mib(), "cpu": time.process_time() - started}


def main() -> None:
    args = get_parser().parse_args()
    if args.one is not None:
        print(json.dumps(measure(args)))
        return
    print("| utterances | peak, model alone (MiB) | peak, whole job (MiB) | CPU s |\n|---|---|---|---|")
    for utterances in args.utterances:
        with tempfile.TemporaryDirectory() as folder:
            write_set(Path(folder), utterances, args.files, args.seconds)
            command = [sys.executable, __file__, "--one", folder, "--samples", str(args.samples)]
            command += ["--max_tokens", str(args.max_tokens), "--batch_size", str(args.batch_size)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found = json.loads(done.stdout.splitlines()[-1])
        figures = " | ".join(f"{found[name]:.0f}" for name in ("model", "job", "cpu"))
        print(f"| {utterances} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
