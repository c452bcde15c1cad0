"""Check a Kaldi directory: ``python -m espnet_latentasr.bin.validate_data_dir data/test``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging, str2bool
from espnet_latentasr.data.kaldi_dir import KaldiDir


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data_dir", type=Path, metavar="DIR")
    parser.add_argument(
        "--allow_empty_text",
        type=str2bool,
        default=False,
        help="accept utterances without transcript, which the length filter drops later",
    )
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    data = KaldiDir.load(args.data_dir, allow_empty_text=args.allow_empty_text)
    languages = "no utt2lang" if data.utt2lang is None else len(set(data.utt2lang.values()))
    print(
        f"{args.data_dir}: valid, {len(data.utts)} utterances, {len(data.wav)} audio files, "
        f"{len(data.spk2utt)} speakers, languages: {languages}"
    )


if __name__ == "__main__":
    run_main(main)
