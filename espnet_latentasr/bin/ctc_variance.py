"""Variance of three estimators of a CTC policy gradient, and their ratios.

Of saved log-posteriors (--posteriors) towards the logits, or of a trained model (--asr_model_file,
--input) towards the output projection's weight.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging
from espnet_latentasr.errors import ConfigError


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--posteriors", type=Path, help="folder of bin.ctc_posteriors")
    parser.add_argument("--asr_train_config", type=Path)
    parser.add_argument("--asr_model_file", type=Path)
    parser.add_argument("--input", type=Path, help="wav.scp; features if the model reads these")
    parser.add_argument("--ref", type=Path, required=True, help="Kaldi text")
    parser.add_argument("--token_type", choices=["bpe", "char", "word"], default="bpe")
    parser.add_argument("--normalizer", default="none")
    parser.add_argument("--size", type=int, default=8, help="candidates G")
    parser.add_argument("--num_paths", type=int, default=32)
    parser.add_argument("--draws", type=int, default=16, help="alignments per candidate (projection)")
    parser.add_argument("--limit", type=int, help="only the first so many utterances with a usable list")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="folder")
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    model = (args.asr_train_config, args.asr_model_file, args.input)
    if (args.posteriors is None) == (None in model) or (args.posteriors is not None and any(model)):
        raise ConfigError("--posteriors, or --asr_train_config, --asr_model_file and --input expected")
    from espnet_latentasr.analysis.sequence_variance import of_posteriors, variance_rows
    from espnet_latentasr.data.kaldi_dir import read_kaldi_table
    from espnet_latentasr.report.sequence_variance import write_variances
    from espnet_latentasr.sequence.config import ListConfig
    from espnet_latentasr.text.normalize import get_normalizer

    if args.posteriors is None:
        from espnet_latentasr.toolkit.sequence_decoding import of_model

        utterances, to_text, blank = of_model(*model, token_type=args.token_type)
    else:
        utterances, to_text, blank = of_posteriors(args.posteriors, args.token_type)
    normalize = get_normalizer(args.normalizer)
    refs = {u: normalize(t) for u, t in read_kaldi_table(args.ref, require_sorted=False).items()}
    rows = variance_rows(
        utterances, refs, ListConfig(args.size, args.num_paths), lambda ids: normalize(to_text(ids)),
        seed=args.seed, draws=args.draws, limit=args.limit, blank=blank,
    )  # fmt: skip
    print(write_variances(list(rows), args.out, "logits" if args.posteriors else "projection"))


if __name__ == "__main__":
    run_main(main)
