"""Stage 3: write a data directory as 16 kHz mono PCM16, ready for every later stage."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import job_map, run_main, setup_logging, str2bool
from espnet_latentasr.data.audio import MAX_SECONDS, MIN_SECONDS
from espnet_latentasr.data.format import KINDS, format_data_dir


def channel_choice(value: str) -> int | str | None:
    """Parse ``none``, ``mix`` or a channel number."""
    if value in ("none", "mix"):
        return None if value == "none" else value
    if not value.isdecimal():
        raise argparse.ArgumentTypeError(f"'{value}' is not none, mix or a channel number from 0")
    return int(value)


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_dir", type=Path, required=True)
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--kind", choices=KINDS, required=True, help="a test set loses nothing")
    parser.add_argument(
        "--channel",
        type=channel_choice,
        default=None,
        help="of multi-channel files: none (refuse them), mix (mean of all), or a number from 0",
    )
    parser.add_argument("--min_wav_duration", type=float, default=MIN_SECONDS, help="seconds")
    parser.add_argument("--max_wav_duration", type=float, default=MAX_SECONDS, help="seconds")
    parser.add_argument(
        "--skip_unusable", type=str2bool, default=False, help="a test set may lose bad clips, by name"
    )
    parser.add_argument("--nj", type=int, default=1, help="parallel processes")
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    with job_map(args.nj) as map_fn:
        report = format_data_dir(
            args.data_dir,
            args.output_dir,
            args.kind,
            channel=args.channel,
            limits=(args.min_wav_duration, args.max_wav_duration),
            map_fn=map_fn,
            skip_unusable=args.skip_unusable,
        )
    print(f"{args.output_dir}: {report}")


if __name__ == "__main__":
    run_main(main)
