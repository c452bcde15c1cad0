"""Stage 12: decode one job's share of the test sets under one or more decoding configurations."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging
from espnet_latentasr.config import DecodeConfig, build, load_yaml
from espnet_latentasr.decode.job import Rule, run_job
from espnet_latentasr.decode.loading import load_recogniser
from espnet_latentasr.errors import DataError
from espnet_latentasr.fileio import WriteError


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backbone_dir", type=Path, required=True)
    parser.add_argument("--asr_train_config", type=Path)
    parser.add_argument("--asr_model_file", type=Path)
    parser.add_argument("--inference_config", type=Path, action="append", required=True)
    parser.add_argument("--data_root", type=Path, required=True, help="parent of the test sets")
    parser.add_argument("--test_set", action="append", required=True)
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--num_jobs", type=int, default=1)
    parser.add_argument("--job", type=int, default=1)
    parser.add_argument("--ngpu", type=int, default=0)
    parser.add_argument("--cache_root", type=Path, help="stage 6's caches: saves encoding again")
    parser.add_argument("--batch_size", type=int, help="overrides the configurations' own")
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    rules = []
    for path in args.inference_config:
        keys = load_yaml(path)
        keys |= {} if args.batch_size is None else {"batch_size": args.batch_size}
        rules.append(Rule(path.stem, build(DecodeConfig, keys, str(path))))
    device = "cuda" if args.ngpu > 0 else "cpu"
    loaded = load_recogniser(args.backbone_dir, args.asr_train_config, args.asr_model_file, device)
    share, problems = (args.job, args.num_jobs, args.cache_root), []
    for name in args.test_set:
        try:
            done = run_job(loaded, rules, args.data_root / name, args.output_dir, *share)
        except WriteError:
            raise
        except DataError as error:  # of this set: the others are decoded all the same
            logging.error("%s: %s", name, error)
            problems.append(error)
            continue
        logging.info("%s: %d utterances decoded in job %d", name, done, args.job)
    if problems:
        more = f" (and {len(problems) - 1} more sets, see above)" if len(problems) > 1 else ""
        raise DataError(f"{problems[0]}{more}")


if __name__ == "__main__":
    run_main(main)
