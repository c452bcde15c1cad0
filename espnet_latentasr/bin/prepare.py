"""Prepare a corpus as Kaldi directories: ``python -m espnet_latentasr.bin.prepare mini --out data``."""

from __future__ import annotations

import argparse
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging
from espnet_latentasr.data.mini.corpus import prepare_mini


def get_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", choices=["mini"])
    parser.add_argument("--out", type=Path, required=True, help="parent of the Kaldi directories")
    parser.add_argument("--downloads", type=Path, default=Path("downloads"))
    parser.add_argument("--sets", nargs="*", default=[], help="also make these sets if on request")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies every set's size")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nj", type=int, default=2)
    return parser


def main(cmd: list[str] | None = None) -> None:
    args = get_parser().parse_args(cmd)
    setup_logging()
    prepare_mini(
        args.out,
        args.downloads,
        on_request=args.sets,
        nj=args.nj,
        scale=args.scale,
        seed=args.seed,
    )


if __name__ == "__main__":
    run_main(main)
