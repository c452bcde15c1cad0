"""Train a sentencepiece model on a Kaldi text and write ESPnet's token list."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, required=True, help="Kaldi text")
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--vocab_size", type=int, required=True)
    parser.add_argument("--model_type", choices=["unigram", "bpe"], default="unigram")
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    from espnet_latentasr.data.kaldi_dir import read_kaldi_table
    from espnet_latentasr.text.subwords import train_subwords

    sentences = list(read_kaldi_table(args.text, require_sorted=False).values())
    size = train_subwords(sentences, args.output_dir, args.vocab_size, args.model_type)
    print(f"{args.output_dir}/tokens.txt: {size} tokens")


if __name__ == "__main__":
    run_main(main)
