"""Prove that training sets share no utterance, speaker, text or recording with any test set.

Writes overlap.md, overlap.json and exclude (what is shared and why); exits with 1 if anything is.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import job_map, run_main, setup_logging, str2bool
from espnet_latentasr.data.kaldi_dir import KaldiDir
from espnet_latentasr.data.overlap import find_overlap, overlap_markdown, write_overlap
from espnet_latentasr.errors import DataError


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", type=Path, nargs="+", required=True, metavar="DIR")
    parser.add_argument("--test", type=Path, nargs="+", required=True, metavar="DIR")
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--audio", type=str2bool, default=True, help="compare recordings too")
    parser.add_argument("--nj", type=int, default=2)
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    tests: dict[str, KaldiDir] = {}
    for folder in args.test:
        if folder.name in tests:
            raise DataError(f"{folder}: two test sets are named '{folder.name}'; rename one")
        tests[folder.name] = KaldiDir.load(folder)
    with job_map(args.nj) as map_fn:
        train = [KaldiDir.load(folder) for folder in args.train]
        found = find_overlap(train, tests, audio=args.audio, map_fn=map_fn)
    write_overlap(found, args.output_dir)
    print(overlap_markdown(found), end="")
    if excluded := found.excluded():
        raise DataError(
            f"{args.output_dir}/exclude: {len(excluded)} training utterances are shared with a test set; "
            "draw the training set again without them (bin.prepare mixture --exclude)"
        )


if __name__ == "__main__":
    run_main(main)
