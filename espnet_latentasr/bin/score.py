"""Score decoded sets in sclite's layout: ``python -m espnet_latentasr.bin.score --ref .. --hyp ..``.

Knows file names only; any Kaldi text files do.  Each unit gets its folder ``score_{wer,cer,mer}``
below ``--out``; several systems get one below ``--out`` each, and a comparison with the first.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from espnet_latentasr.bin._common import job_map, run_main, setup_logging
from espnet_latentasr.data.kaldi_dir import read_kaldi_table
from espnet_latentasr.text.languages import get_language
from espnet_latentasr.text.normalize import get_normalizer
from espnet_latentasr.text.scoring import System, score_systems, system_names


def get_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--ref", type=Path, required=True, help="Kaldi text of the references")
    add("--hyp", type=Path, required=True, help="Kaldi text of the hypotheses")
    add("--hyp2", type=Path, nargs="+", action="extend", default=[], help="further systems")
    add("--utt2spk", type=Path, help="without it every utterance is its own speaker")
    add("--lang", required=True, help="code or English name: en, yue, Cantonese")
    add("--normalizer", default="from_language", help="from_language or its name")
    add("--unit", nargs="+", choices=["wer", "cer", "mer"], help="default: those of the language")
    add("--out", "--output_dir", dest="out", type=Path, required=True)
    add("--resample", choices=["utterances", "speakers"], default="utterances")
    add("--replicates", type=int, default=10_000, help="of the bootstrap")
    add("--seed", type=int, default=0, help="of the bootstrap")
    add("--nj", type=int, default=2, help="processes that normalise, for large sets")
    return parser


def main(cmd: list[str] | None = None) -> None:
    args = get_parser().parse_args(cmd)
    setup_logging()
    language = get_language(args.lang)
    own = args.normalizer == "from_language"
    normalizer = get_normalizer(language.normalizer if own else args.normalizer)
    refs, *hyps = (
        read_kaldi_table(path, allow_empty=True, require_sorted=False)
        for path in (args.ref, args.hyp, *args.hyp2)
    )
    utt2spk = args.utt2spk and read_kaldi_table(args.utt2spk, require_sorted=False)
    paths = [args.hyp, *args.hyp2]
    systems = [System(*row) for row in zip(system_names(paths), paths, hyps)]
    with job_map(args.nj) as run:
        score_systems(
            (args.ref, refs), systems, language, normalizer, args.out, units=args.unit,
            utt2spk=utt2spk, resample=args.resample, replicates=args.replicates, seed=args.seed,
            run=run,
        )  # fmt: skip


if __name__ == "__main__":
    run_main(main)
