"""Choose from candidate lists by a rule (MBR, interpolation, ...); writes an ESPnet decode directory."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nbest", type=Path, required=True, help="nbest.jsonl with the scores in it")
    parser.add_argument("--config", type=Path, required=True, help="as conf/decode_mbr_pll.yaml")
    parser.add_argument("--out", type=Path, required=True, help="the decode directory to write")
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    from espnet_latentasr.rescoring.config import load_rescore_config
    from espnet_latentasr.rescoring.job import rescore_file

    counts = rescore_file(args.nbest, load_rescore_config(args.config), args.out)
    print(f"{args.out}: {counts}")


if __name__ == "__main__":
    run_main(main)
