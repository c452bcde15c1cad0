"""One training step and one decode of a 10 s clip on the exact Qwen3-ASR-0.6B shapes.

Weights are random and the tokenizer is the mini task's (the real ones come from the hub:
``backbone_conf.name: Qwen/Qwen3-ASR-0.6B-hf``), so texts mean nothing; sizes, memory and time are real.

    python benchmarks/qwen3_asr_0.6b.py [--dtype bfloat16] [--device cuda] [--batch_size 1]
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import yaml
from shapes_06b import TEXT, random_backbone

from espnet_latentasr.adaptation.base import TrainBatch
from espnet_latentasr.adaptation.latent import LatentMethod
from espnet_latentasr.backbone.teacher_forcing import teacher_force
from espnet_latentasr.config import DecodeConfig, PromptConfig, build, load_yaml, model_config
from espnet_latentasr.decode.recogniser import Clips, Recogniser
from espnet_latentasr.latent.losses import token_scores

CONF = Path(__file__).parents[1] / "egs2/latentasr/asr1/conf"

def timed(label: str, work: Callable[[], object], device: str) -> object:
    """Run, print seconds and peak memory so far."""
    started = time.perf_counter()
    result = work()
    if device != "cpu":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    gpu = "" if device == "cpu" else f", GPU {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB"
    print(f"{label:42s} {seconds:8.2f} s   peak memory {peak:.2f} GiB{gpu}", flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch_size", type=int, default=1)
    parser.add_argument("--config", type=Path, default=CONF / "train_latent_paper.yaml")
    args = parser.parse_args()
    device = args.device
    build_it = lambda: random_backbone(getattr(torch, args.dtype), device)  # noqa: E731
    backbone = timed("build the recogniser", build_it, device)
    keys = load_yaml(args.config)
    sections = ("prompt", "latent", "value", "loss")
    config = model_config("latent", {s: keys.get(f"{s}_conf") for s in sections})
    method = LatentMethod(config, backbone).place(device)
    trained = sum(p.numel() for p in method.parameters())
    frozen = sum(p.numel() for p in backbone.model.parameters())
    print(yaml.safe_dump({"frozen parameters": frozen, "trained parameters": trained}).strip())

    rng = np.random.default_rng(0)
    clips = [0.1 * rng.standard_normal(160000).astype(np.float32)] * args.batch_size
    prompts = [backbone.text.prompt("en", PromptConfig())] * args.batch_size
    encoded = timed("encode 10 s", lambda: backbone.encode(clips), device)
    ids = [*backbone.text.tokenize(TEXT), backbone.text.end_id]

    def base():
        with torch.no_grad():
            state = backbone.prefill(encoded, prompts, None, True)
            logits, targets, rows = teacher_force(backbone, state, [ids] * args.batch_size)
            return token_scores(logits, targets, rows, args.batch_size)

    base_ce, base_acc = timed(f"baseline CE over {len(ids)} targets", base, device)
    optimizer = torch.optim.AdamW(method.parameters(), lr=1e-4)
    batch = TrainBatch(encoded, prompts, [ids] * args.batch_size, base_ce, base_acc)

    def step():
        optimizer.zero_grad()
        loss, _ = method.loss(batch, 0.0, torch.Generator().manual_seed(1))
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    timed("training step (cached encoder), 1st", step, device)
    timed("training step (cached encoder), 2nd", step, device)
    recogniser = Recogniser(backbone, method, PromptConfig())
    for kind in ("never", "always"):
        halting = {"kind": kind}
        rule = build(DecodeConfig, {"halting": halting, "tokens_per_second": 0.0, "tokens_extra": 30})
        decode = lambda rule=rule: recogniser.recognise(Clips(clips, ["en"] * len(clips)), [rule])  # noqa: E731
        found = timed(f"decode, halting {kind}, at most 30 tokens", decode, device)[0][0]
        seconds = {stage: round(value, 2) for stage, value in found.seconds.items()}
        print(f"    {len(found.hypothesis.tokens)} tokens, {found.trace.steps} steps, seconds {seconds}")


if __name__ == "__main__":
    main()
