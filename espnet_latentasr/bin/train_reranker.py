"""Train a reranker on lists of training utterances: features, acoustic value head, masked LM."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging
from espnet_latentasr.errors import ConfigError


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nbest", type=Path, required=True, help="lists of the training utterances")
    parser.add_argument("--ref", type=Path, help="Kaldi text; default: the references in the file")
    parser.add_argument("--config", type=Path, required=True, help="conf/tuning/reranker_*.yaml")
    parser.add_argument("--model", help="masked: the language model to start from, folder or hub id")
    parser.add_argument("--revision", help="masked: commit hash of a hub id")
    parser.add_argument("--embeddings", type=Path, help="value: scp of encoder states (frames, width)")
    parser.add_argument("--posteriors", type=Path, help="value: scp of the lists' CTC log-posteriors")
    parser.add_argument("--blank", default="<blank>", help="value: its symbol in the token list")
    parser.add_argument("--seed", type=int, help="default: the configuration's")
    parser.add_argument("--num_threads", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    from espnet_latentasr.data.kaldi_dir import read_kaldi_table
    from espnet_latentasr.rescoring.rerankers import train_reranker
    from espnet_latentasr.rescoring.rerankers_acoustics import acoustics_of
    from espnet_latentasr.rescoring.rerankers_config import load_reranker_config

    config = load_reranker_config(args.config)
    if args.seed is not None:
        config = replace(config, seed=args.seed)
    if args.revision is not None and args.model is None:
        raise ConfigError("--revision is without effect without --model")
    if config.kind != "features":
        import torch

        torch.set_num_threads(args.num_threads)
    record = train_reranker(
        args.nbest,
        None if args.ref is None else read_kaldi_table(args.ref, allow_empty=True),
        config,
        args.out,
        model=args.model,
        revision=args.revision,
        acoustics=acoustics_of(args.embeddings, args.posteriors, args.blank),
    )
    rates = ", ".join(f"{name} {rate:.2%}" for name, rate in record["held_out"].items())
    print(f"{args.out}: {record['training_lists']} lists; held-out {config.unit.upper()}: {rates}")


if __name__ == "__main__":
    run_main(main)
