"""Score a decoded set in sclite's layout: ``python -m espnet_latentasr.bin.score --ref .. --hyp ..``.

Knows file names only; each unit gets its folder ``score_{wer,cer,mer}`` below ``--output_dir``.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging
from espnet_latentasr.data.kaldi_dir import read_kaldi_table
from espnet_latentasr.errors import DataError
from espnet_latentasr.text.error_rate import score
from espnet_latentasr.text.languages import get_language
from espnet_latentasr.text.normalize import get_normalizer
from espnet_latentasr.text.score_dir import score_dir_name, write_score_dir

LOG = logging.getLogger(__name__)


def get_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ref", type=Path, required=True, help="Kaldi text of the references")
    parser.add_argument("--hyp", type=Path, required=True, help="Kaldi text of the hypotheses")
    parser.add_argument("--utt2spk", type=Path, required=True)
    parser.add_argument("--lang", required=True, help="code or English name: en, yue, Cantonese")
    parser.add_argument("--normalizer", default="from_language", help="from_language or its name")
    parser.add_argument(
        "--unit", nargs="+", choices=["wer", "cer", "mer"], help="default: those of the language"
    )
    parser.add_argument("--output_dir", type=Path, required=True)
    return parser


def main(cmd: list[str] | None = None) -> None:
    args = get_parser().parse_args(cmd)
    setup_logging()
    language = get_language(args.lang)
    own = args.normalizer == "from_language"
    normalizer = get_normalizer(language.normalizer if own else args.normalizer)
    refs = read_kaldi_table(args.ref, allow_empty=True)
    hyps = read_kaldi_table(args.hyp, allow_empty=True)
    utt2spk = read_kaldi_table(args.utt2spk)
    for unit in args.unit or language.units:
        try:
            result = score(refs, hyps, language.unit(unit), normalizer)
            directory = args.output_dir / score_dir_name(unit)
            write_score_dir(directory, result, utt2spk, language=language.code)
        except DataError as error:
            raise DataError(f"{args.ref}, {args.hyp}: {error}") from error
        LOG.info("%s: %s", directory, result.headline())


if __name__ == "__main__":
    run_main(main)
