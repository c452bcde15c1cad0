"""Train the mini task's recogniser from scratch (stage 5 with ``--rebuild_backbone true``)."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging
from espnet_latentasr.fileio import atomic_write_text


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_dir", type=Path, required=True)
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=2800)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--vocab_size", type=int, default=768)
    parser.add_argument("--learning_rate", type=float, default=1.5e-3)
    parser.add_argument("--ctc_weight", type=float, default=0.5)
    parser.add_argument("--pause_slots", type=int, default=0, help="prepare for latent positions")
    parser.add_argument("--initial", type=Path, help="go on from this recogniser")
    parser.add_argument("--num_threads", type=int, default=2)
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    import torch

    from espnet_latentasr.backbone.mini_training import TrainPlan, train_from_data_dir

    torch.set_num_threads(args.num_threads)
    plan = TrainPlan(
        steps=args.steps,
        batch_size=args.batch_size,
        learning_rate=args.learning_rate,
        ctc_weight=args.ctc_weight,
        pause_slots=args.pause_slots,
        seed=args.seed,
    )
    partial = args.output_dir.with_name(args.output_dir.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    rows = train_from_data_dir(args.data_dir, partial, plan, args.vocab_size, args.initial)
    digest = hashlib.sha256((partial / "model.safetensors").read_bytes()).hexdigest()
    record = {"plan": dataclasses.asdict(plan), "sha256": digest, "log": rows}
    atomic_write_text(partial / "training.json", json.dumps(record, indent=1) + "\n")
    shutil.rmtree(args.output_dir, ignore_errors=True)
    partial.rename(args.output_dir)
    logging.info("%s: model.safetensors sha256 %s", args.output_dir, digest)


if __name__ == "__main__":
    run_main(main)
