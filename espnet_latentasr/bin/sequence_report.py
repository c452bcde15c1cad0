"""Tables, trajectories and figures of sequence trainings (methods x checkpoints x seeds)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging, str2bool


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="holds <checkpoint>_<method>_seed<n>")
    parser.add_argument("--checkpoints", nargs="+", required=True)
    parser.add_argument("--methods", nargs="+", required=True)
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--test_set", required=True)
    parser.add_argument("--ref", type=Path, required=True, help="Kaldi text of the test set")
    parser.add_argument("--normalizer", default="none")
    parser.add_argument("--gaps", type=Path, help="CSV of bin.sequence_gap")
    parser.add_argument("--control", help="the method that the others are also compared with")
    parser.add_argument("--figures", type=str2bool, default=True)
    parser.add_argument("--out", type=Path, required=True)
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    from espnet_latentasr.analysis.sequence_runs import Grid
    from espnet_latentasr.data.kaldi_dir import read_kaldi_table
    from espnet_latentasr.report.sequence_report import read_gaps, write_report
    from espnet_latentasr.text.normalize import get_normalizer

    grid = Grid(args.root, tuple(args.checkpoints), tuple(args.methods), tuple(args.seeds))
    path = write_report(
        grid,
        args.test_set,
        read_kaldi_table(args.ref, require_sorted=False),
        get_normalizer(args.normalizer),
        [] if args.gaps is None else read_gaps(args.gaps),
        args.out,
        control=args.control,
        figures=args.figures,
    )
    print(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    run_main(main)
