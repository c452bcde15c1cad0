"""Stage 2: noisy copies of at most 500 utterances of each of several test sets, drawn once and listed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import job_map, run_main, setup_logging
from espnet_latentasr.bin.add_noise import snr_list
from espnet_latentasr.data.stress import MANIFEST, NUM, SEED, named_dirs, stress_suite


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_dirs", nargs="+", required=True, metavar="[NAME=]DIR")
    parser.add_argument(
        "--output_dir", type=Path, default=Path("data"), help="of the <name>_snr<dB> directories"
    )
    parser.add_argument("--snrs", type=snr_list, default=[0.0], metavar="LIST", help='as in "clean 0 5"')
    parser.add_argument("--num", type=int, default=NUM, help="utterances at most of each set")
    parser.add_argument("--selection_seed", type=int, default=SEED, help="of the draw of utterances")
    parser.add_argument("--manifest", type=Path, help=f"a {MANIFEST} to repeat, instead of a draw")
    parser.add_argument(
        "--noise_dir", type=Path, help="folder or noise.scp of recorded noise; default: white noise"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the noise")
    parser.add_argument("--nj", type=int, default=1, help="parallel processes")
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    with job_map(args.nj) as map_fn:
        written = stress_suite(
            named_dirs(args.data_dirs), args.output_dir, args.snrs, num=args.num,
            selection_seed=args.selection_seed, seed=args.seed, noise_from=args.noise_dir,
            manifest=args.manifest, map_fn=map_fn,
        )  # fmt: skip
    for name, count in written.items():
        print(f"{args.output_dir / name}: {count} utterances")
    print(f"{args.output_dir / MANIFEST}: the utterances")


if __name__ == "__main__":
    run_main(main)
