"""Repair a Kaldi directory: ``python -m espnet_latentasr.bin.fix_data_dir SRC DST``."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging
from espnet_latentasr.data.kaldi_dir import fix_data_dir


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("src", type=Path, metavar="SRC", help="directory to repair, left as it is")
    parser.add_argument("dst", type=Path, metavar="DST", help="directory to write")
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    report = fix_data_dir(args.src, args.dst)
    for utt, reason in report.dropped:
        logging.getLogger(__name__).warning("dropped '%s': %s", utt, reason)
    entries = ", ".join(f"{name} {count}" for name, count in report.entries.items())
    print(
        f"{args.dst}: {report.kept} utterances kept, {len(report.dropped)} entries dropped; "
        f"{args.src} had {entries}"
    )


if __name__ == "__main__":
    run_main(main)
