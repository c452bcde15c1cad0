"""The oracle gap of a set of candidate lists: tables (CSV, Markdown) and figures (PNG, SVG, CSV)."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging, str2bool

TAUS = (0.5, 1, 2, 5, 10, 20, 50, 100, math.inf)
ALPHAS = tuple(k / 10 for k in range(11))


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nbest", type=Path, required=True)
    parser.add_argument("--ref", type=Path, help="Kaldi text; default: the references in the file")
    parser.add_argument("--config", type=Path, action="append", default=[], help="a rule; repeat it")
    parser.add_argument("--unit", choices=["wer", "cer", "cer_nospace", "mer"], default="wer")
    parser.add_argument("--normalizer", default="list", help="of both sides; list: the one of the lists")
    parser.add_argument("--sizes", type=int, nargs="+", help="default: powers of two")
    parser.add_argument("--taus", type=float, nargs="*", default=TAUS)
    parser.add_argument("--scorer", action="append", default=[], help="interpolate am with this score")
    parser.add_argument("--frames", type=Path, help="CSV of bin.ctc_nbest --frames")
    parser.add_argument("--other", action="append", default=[], metavar="CONDITION=DIR")
    parser.add_argument("--utt2condition", type=Path, help="rules are judged within each condition too")
    parser.add_argument("--figures", type=str2bool, default=True)
    parser.add_argument("--out", type=Path, required=True)
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    from espnet_latentasr.data.kaldi_dir import read_kaldi_table
    from espnet_latentasr.report.oracle_gap import Plan, read_frames, report_file
    from espnet_latentasr.rescoring.config import load_rescore_config

    plan = Plan(
        {path.stem: load_rescore_config(path) for path in args.config},
        args.sizes,
        tuple(args.taus),
        ALPHAS,
        tuple(args.scorer),
    )
    written = report_file(
        args.nbest,
        None if args.ref is None else read_kaldi_table(args.ref, allow_empty=True),
        plan,
        args.out,
        normalizer=args.normalizer,
        unit=args.unit,
        frames=() if args.frames is None else read_frames(args.frames),
        others={k: Path(v) for k, _, v in (other.partition("=") for other in args.other)},
        conditions=None if args.utt2condition is None else read_kaldi_table(args.utt2condition),
        figures_too=args.figures,
    )
    print(written)


if __name__ == "__main__":
    run_main(main)
