"""Train a small language model on a Kaldi text file: masked, causal (minutes on a CPU) or n-gram."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging
from espnet_latentasr.config import build
from espnet_latentasr.data.kaldi_dir import read_kaldi_table
from espnet_latentasr.rescoring.ngram import estimate, write_arpa

_PLAN = {"vocab_size": int, "width": int, "layers": int, "heads": int, "steps": int, "batch_size": int}
_PLAN |= {"learning_rate": float, "mask": float, "unknown": float, "held_out": float}
_PLAN |= {"max_length": int, "seed": int, "units": str}


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, action="append", required=True, help="may be repeated")
    parser.add_argument("--kind", choices=["masked", "causal", "ngram"], required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder; ngram: ARPA file")
    parser.add_argument("--order", type=int, default=3, help="of the n-grams")
    for name, kind in _PLAN.items():
        parser.add_argument(f"--{name}", type=kind)
    parser.add_argument("--num_threads", type=int, default=1)
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    sentences = [text for path in args.text for text in read_kaldi_table(path).values()]
    if args.kind == "ngram":
        write_arpa(args.out, estimate(sentences, args.order))
        print(f"{args.out}: {args.order}-grams of {len(sentences)} sentences")
        return
    import torch

    from espnet_latentasr.rescoring.small_lm import SmallLMPlan, save, train

    torch.set_num_threads(args.num_threads)
    keys = {name: getattr(args, name) for name in _PLAN if getattr(args, name) is not None}
    model, tokenizer, record = train(sentences, build(SmallLMPlan, keys | {"kind": args.kind}, "--"))
    partial = args.out.with_name(args.out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    save(partial, model, tokenizer, record)
    shutil.rmtree(args.out, ignore_errors=True)
    partial.rename(args.out)
    print(f"{args.out}: {json.dumps({k: record[k] for k in ('parameters', 'held_out_perplexity')})}")


if __name__ == "__main__":
    run_main(main)
