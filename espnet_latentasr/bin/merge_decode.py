"""Stage 12, last part: join the jobs' shares of every test set and configuration."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--inference_config", type=Path, action="append", required=True)
    parser.add_argument("--data_root", type=Path, required=True)
    parser.add_argument("--test_set", action="append", required=True)
    parser.add_argument("--num_jobs", type=int, default=1)
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    from espnet_latentasr.decode.merge import merge_jobs

    args = get_parser().parse_args(cmd)
    setup_logging()
    for config in args.inference_config:
        for name in args.test_set:
            count = merge_jobs(args.output_dir, config.stem, args.data_root / name, args.num_jobs)
            print(f"{args.output_dir / config.stem / name}: {count} utterances")


if __name__ == "__main__":
    run_main(main)
