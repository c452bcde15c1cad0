"""Add a language model's score to every candidate: masked, causal, n-gram, or the recogniser's own."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging
from espnet_latentasr.config import load_yaml
from espnet_latentasr.errors import ConfigError
from espnet_latentasr.rescoring.config import ScoreNames
from espnet_latentasr.rescoring.score_lists import load_scorer, refuse_unused, score_file


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nbest", type=Path, required=True)
    parser.add_argument("--scorer", choices=["pll", "ll", "ngram", "ilm"], required=True)
    parser.add_argument("--model", required=True, help="folder, hub id, ARPA file; ilm: backbone_dir")
    parser.add_argument("--revision", help="commit hash of a hub id")
    parser.add_argument("--config", type=Path, help="YAML of the scorer's options (ilm: prompt_conf)")
    parser.add_argument("--name", help="key of the score; default: the one rescoring looks for")
    parser.add_argument("--text", choices=["surface", "text"], help="what is scored; default: surface")
    parser.add_argument("--data_dir", type=Path, help="ilm: for the utterances' languages")
    parser.add_argument("--cache_dir", type=Path, help="scores of earlier runs, and of this one")
    parser.add_argument("--max_unknown", type=float, default=0.5, help="share of unknown tokens accepted")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], help="default: float32")
    parser.add_argument("--token_budget", type=int, help="padded tokens per batch")
    parser.add_argument("--ngpu", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="the nbest.jsonl to write")
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    device = "cuda" if args.ngpu else "cpu"
    options = {} if args.config is None else load_yaml(args.config)
    refuse_unused(args.scorer, vars(args))
    if args.scorer == "ilm":
        if args.data_dir is None:
            raise ConfigError("--scorer ilm needs --data_dir: the prompt names each utterance's language")
        from espnet_latentasr.decode.internal_lm import internal_lm_readers

        scorer_of, read = internal_lm_readers(
            args.model, args.data_dir, options.get("prompt_conf", {}), device
        )
    else:
        dtype, text = args.dtype or "float32", args.text or "surface"
        scorer = load_scorer(
            args.scorer, args.model, args.revision, options, dtype, device, args.token_budget
        )
        scorer_of, read = lambda nbest: scorer, lambda nbest, candidate: getattr(candidate, text)
    name = args.name or getattr(ScoreNames(), args.scorer)
    print(
        f"{args.out}:",
        score_file(args.nbest, args.out, name, scorer_of, read, args.cache_dir, args.max_unknown),
    )


if __name__ == "__main__":
    run_main(main)
