"""Stage 4: drop what is unfit for training from a formatted set; a test set is copied whole."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging
from espnet_latentasr.data.audio import MAX_SECONDS, MIN_SECONDS
from espnet_latentasr.data.format import KINDS
from espnet_latentasr.data.length_filter import filter_data_dir


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_dir", type=Path, required=True)
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--min_wav_duration", type=float, default=MIN_SECONDS, help="seconds")
    parser.add_argument("--max_wav_duration", type=float, default=MAX_SECONDS, help="seconds")
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    limits = (args.min_wav_duration, args.max_wav_duration)
    report = filter_data_dir(args.data_dir, args.output_dir, args.kind, limits)
    print(f"{args.output_dir}: {report}")


if __name__ == "__main__":
    run_main(main)
