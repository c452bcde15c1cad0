"""Stage 6: the frozen recogniser's pass over a training set (embeddings, CE, accuracy)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging
from espnet_latentasr.config import PromptConfig, build, load_yaml


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backbone_dir", type=Path, required=True)
    parser.add_argument("--data_dir", type=Path, required=True)
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--config", type=Path, help="YAML whose prompt_conf is used")
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--ngpu", type=int, default=0)
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    from espnet_latentasr.decode.baseline import baseline_pass
    from espnet_latentasr.decode.loading import load_recogniser

    keys = {} if args.config is None else load_yaml(args.config).get("prompt_conf", {})
    device = "cuda" if args.ngpu > 0 else "cpu"
    backbone = load_recogniser(args.backbone_dir, device=device).recogniser.backbone
    done, reused = baseline_pass(
        backbone,
        build(PromptConfig, keys, "prompt_conf"),
        args.data_dir,
        args.output_dir,
        args.batch_size,
    )
    print(f"{args.output_dir}: {done} utterances computed, {reused} reused")


if __name__ == "__main__":
    run_main(main)
