"""Oracle gap of the lists that sequence training would draw, on saved CTC log-posteriors."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging
from espnet_latentasr.errors import ConfigError


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--posteriors",
        nargs="+",
        required=True,
        metavar="NAME=DIR",
        help="of bin.ctc_posteriors, by checkpoint",
    )
    parser.add_argument("--ref", type=Path, required=True, help="Kaldi text")
    parser.add_argument("--token_type", choices=["bpe", "char", "word"], default="bpe")
    parser.add_argument("--normalizer", default="none")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[4, 16], help="candidates G; nested lists"
    )
    parser.add_argument("--num_paths", type=int, default=64)
    parser.add_argument("--nbest_scale", type=float, default=1.0)
    parser.add_argument("--output_beam", type=float, help="nats; default: none")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="the CSV to write")
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    from espnet_latentasr.analysis.sequence_gap import draw_lists, gap_rows
    from espnet_latentasr.data.kaldi_dir import read_kaldi_table
    from espnet_latentasr.fileio import atomic_write_text
    from espnet_latentasr.report.sequence_report import gap_table
    from espnet_latentasr.sequence.config import ListConfig
    from espnet_latentasr.text.normalize import get_normalizer

    places = dict(entry.partition("=")[::2] for entry in args.posteriors)
    if not all(places.values()):
        raise ConfigError(f"--posteriors {' '.join(args.posteriors)}: NAME=DIR expected")
    config = ListConfig(max(args.sizes), args.num_paths, args.nbest_scale, args.output_beam)
    refs = read_kaldi_table(args.ref, require_sorted=False)
    normalizer = get_normalizer(args.normalizer)
    lists = {
        name: draw_lists(
            Path(place), refs, config, normalizer, seed=args.seed, token_type=args.token_type
        )
        for name, place in places.items()
    }
    table = gap_table(gap_rows(lists, args.sizes))
    atomic_write_text(args.out, table.csv())
    print(f"{table.markdown()}\n{table.note}")


if __name__ == "__main__":
    run_main(main)
