"""Turn the authors' ``latentASR_adapter.pth`` into an experiment that stage 12 decodes."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--adapter", type=Path, required=True, help="the authors' file")
    parser.add_argument("--backbone_dir", type=Path, required=True, help="written by stage 5")
    parser.add_argument("--config", type=Path, required=True, help="conf/train_latent_released.yaml")
    parser.add_argument("--output_dir", type=Path, required=True, help="such as exp/asr_released")
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    from espnet_latentasr.adaptation.released_experiment import write_experiment

    released = write_experiment(args.adapter, args.backbone_dir, args.config, args.output_dir)
    print(f"{args.output_dir}: {released.count} parameters, N = {released.steps}, D = {released.width}")
    for key, value in dataclasses.asdict(released)["settings"].items():
        print(f"  {key}: {value}")


if __name__ == "__main__":
    run_main(main)
