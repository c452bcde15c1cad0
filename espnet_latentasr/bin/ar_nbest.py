"""Candidate lists of the recogniser itself: greedy, samples and beams of one job's share of a set."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging
from espnet_latentasr.config import DecodeConfig, build, load_yaml
from espnet_latentasr.errors import ConfigError

_LISTS = {"samples": int, "beam": int, "size": int, "seed": int, "loop_repeats": int, "max_rows": int}
_RULE = {"temperature": float, "top_p": float, "epsilon": float}


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("backbone_dir", "asr_train_config", "asr_model_file", "data_dir"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--inference_config", type=Path, help="where lists start; default: frozen")
    parser.add_argument("--out", type=Path, required=True, help="the nbest.jsonl to write")
    for name, kind in (_LISTS | _RULE).items():
        parser.add_argument(f"--{name}", type=kind)
    parser.add_argument("--normalizer", default="none")
    parser.add_argument("--depth_nbest", type=Path, help="nbest.jsonl of depths: all, taken in")
    parser.add_argument("--cache_root", type=Path, help="stage 6's caches: saves encoding again")
    parser.add_argument("--num_jobs", type=int, default=1)
    parser.add_argument("--job", type=int, default=1)
    parser.add_argument("--ngpu", type=int, default=0)
    parser.add_argument("--merge", type=Path, nargs="+", help="join these shares into --out instead")
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    if not args.merge and not (args.backbone_dir and args.data_dir):
        raise ConfigError("--backbone_dir and --data_dir are needed (or --merge)")
    from espnet_latentasr.decode import nbest, nbest_job
    from espnet_latentasr.decode.loading import load_recogniser

    if args.merge:
        print(f"{args.out}: {nbest_job.merge_nbest(args.merge, args.out)} lists")
        return
    given = {name: value for name, value in vars(args).items() if value is not None}
    keys = {name: given[name] for name in _LISTS if name in given} | {"normalizer": args.normalizer}
    keys["sampling"] = {name: given[name] for name in _RULE if name in given}
    decode = {"halting": {"kind": "never"}}
    if args.inference_config:
        decode = load_yaml(args.inference_config)
    loaded = load_recogniser(
        args.backbone_dir, args.asr_train_config, args.asr_model_file, "cuda" if args.ngpu else "cpu"
    )
    done = nbest_job.run_nbest(
        loaded,
        build(DecodeConfig, decode, str(args.inference_config)),
        build(nbest.NbestConfig, keys, "--"),
        args.data_dir,
        args.out,
        args.job,
        args.num_jobs,
        args.cache_root,
        args.depth_nbest,
    )
    print(f"{args.out}: {done} utterances computed")


if __name__ == "__main__":
    run_main(main)
