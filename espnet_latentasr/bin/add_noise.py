"""Stage 2: copy a data set with white or recorded noise at one SNR, or at one drawn per utterance."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import job_map, run_main, setup_logging, str2bool
from espnet_latentasr.data.noise import mixed_snr_copy


def snr_list(value: str) -> list[float | None]:
    """Parse ``"clean 0 5 10 20"``; ``clean`` is None."""
    return [None if word == "clean" else float(word) for word in value.split()]


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_dir", type=Path, required=True)
    parser.add_argument("--output_dir", type=Path, required=True)
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--snr", type=float, help="dB, the same for all utterances")
    choice.add_argument("--mixed_snr", type=snr_list, metavar="LIST", help='as in "clean 0 5 10 20"')
    parser.add_argument(
        "--noise_dir", type=Path, help="folder or noise.scp of recorded noise; default: white noise"
    )
    parser.add_argument(
        "--skip_unusable", type=str2bool, default=False, help="leave bad clips out, by name and count"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nj", type=int, default=1, help="parallel processes")
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    snrs = args.mixed_snr if args.snr is None else [args.snr]
    with job_map(args.nj) as map_fn:
        utt2noise = mixed_snr_copy(
            args.data_dir, args.output_dir, snrs, args.seed, map_fn,
            noise_from=args.noise_dir, skip_unusable=args.skip_unusable,
        )  # fmt: skip
    drawn = Counter(value.split()[1] for value in utt2noise.values())
    names = dict.fromkeys("clean" if snr is None else f"{snr:g}" for snr in snrs)
    counts = " ".join(f"{name}={drawn[name]}" for name in names)
    print(f"{args.output_dir}: {len(utt2noise)} utterances, per SNR in dB: {counts}")


if __name__ == "__main__":
    run_main(main)
