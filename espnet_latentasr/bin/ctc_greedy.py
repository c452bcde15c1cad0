"""Greedy texts of trained ESPnet CTC models: the text of an ESPnet decode directory each."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--job",
        nargs=3,
        type=Path,
        action="append",
        required=True,
        metavar=("CONFIG", "MODEL", "OUTPUT"),
        help="config.yaml, parameters, and the folder to write; repeat it for several models",
    )
    parser.add_argument("--input", type=Path, required=True, help="wav.scp; features if it reads these")
    parser.add_argument("--token_type", choices=["bpe", "char", "word"], default="bpe")
    parser.add_argument("--ngpu", type=int, default=0)
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    from espnet_latentasr.toolkit.ctc_posteriors import CtcModel
    from espnet_latentasr.toolkit.sequence_decoding import write_greedy

    for config, weights, output in args.job:
        model = CtcModel(config, weights, "cuda" if args.ngpu else "cpu")
        count = write_greedy(model, args.input, output, args.token_type)
        print(f"{output}/text: {count} utterances")


if __name__ == "__main__":
    run_main(main)
