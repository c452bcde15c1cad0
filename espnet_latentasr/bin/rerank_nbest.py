"""Add a trained reranker's score to every candidate; the higher, the fewer errors are expected."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging, str2bool


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nbest", type=Path, required=True)
    parser.add_argument("--reranker", type=Path, required=True, help="folder of bin.train_reranker")
    parser.add_argument("--name", default="value", help="key of the score; rules read it as names.value")
    parser.add_argument("--embeddings", type=Path, help="value head: scp of encoder states")
    parser.add_argument("--posteriors", type=Path, help="value head: scp of the CTC log-posteriors")
    parser.add_argument("--blank", default="<blank>", help="value head: its symbol in the token list")
    parser.add_argument(
        "--other_lists", type=str2bool, default=False, help="accept lists unlike the training lists"
    )
    parser.add_argument("--out", type=Path, required=True, help="the nbest.jsonl to write")
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    from espnet_latentasr.rescoring.rerankers import load_reranker, rerank_file
    from espnet_latentasr.rescoring.rerankers_acoustics import acoustics_of

    acoustics = acoustics_of(args.embeddings, args.posteriors, args.blank)
    loaded = load_reranker(args.reranker, acoustics)
    lists, candidates = rerank_file(args.nbest, args.out, args.name, loaded, args.other_lists)
    print(f"{args.out}: {lists} lists, {candidates} candidates")


if __name__ == "__main__":
    run_main(main)
