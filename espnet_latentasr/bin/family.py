"""Families of experiments (``conf/families.yaml``): ``plan`` lists trainings, ``table`` reads them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.analysis.family_plan import plan, read_family
from espnet_latentasr.bin._common import run_main, setup_logging


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["plan", "table"])
    parser.add_argument("--families", type=Path, required=True)
    parser.add_argument("--family", nargs="+", required=True)
    parser.add_argument("--seeds", required=True, help="numbers, in one word")
    parser.add_argument("--num_activation", type=int, required=True)
    parser.add_argument("--asr_args", default="")
    parser.add_argument("--expdir", type=Path)
    parser.add_argument("--data_root", type=Path)
    parser.add_argument("--dev_set", help="the set that thresholds and depths are chosen on")
    parser.add_argument("--test_set", nargs="+", default=[])
    parser.add_argument("--normalizer", default="none")
    parser.add_argument("--unit", default="wer")
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    seeds = [int(seed) for seed in args.seeds.split()]
    families = [read_family(args.families, name, args.num_activation) for name in args.family]
    if args.action == "plan":
        for row in plan(families, seeds, args.asr_args):
            print("\t".join(row))
        return
    from espnet_latentasr.analysis.family import Place, write_family

    place = Place(args.expdir, args.data_root, args.dev_set, tuple(args.test_set))
    for family in families:
        path = write_family(family, seeds, args.asr_args, place, args.normalizer, args.unit)
        print(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    run_main(main)
