"""Prepare a corpus as Kaldi directories: ``python -m espnet_latentasr.bin.prepare mini --out data``."""

from __future__ import annotations

import argparse
from pathlib import Path

from espnet_latentasr.bin._common import job_map, run_main, setup_logging
from espnet_latentasr.data.kaldi_source import import_kaldi_dir
from espnet_latentasr.data.mini.corpus import prepare_mini
from espnet_latentasr.data.speechocean762 import CASES, prepare_speechocean762


def get_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--out", type=Path, required=True, help="parent of the Kaldi directories")
    common.add_argument("--downloads", type=Path, default=Path("downloads"))
    common.add_argument("--seed", type=int, default=1)
    common.add_argument("--nj", type=int, default=2)
    corpora = parser.add_subparsers(dest="corpus", required=True)
    mini = corpora.add_parser("mini", parents=[common], help="the mini task's sets")
    mini.add_argument("--sets", nargs="*", default=[], help="also make these sets if on request")
    mini.add_argument("--scale", type=float, default=1.0, help="multiplies every set's size")
    ocean = corpora.add_parser("speechocean762", parents=[common], help="read by Mandarin speakers")
    ocean.add_argument("--src", type=Path, help="a local copy or its archive; default: download it")
    ocean.add_argument("--dev_speakers", type=int, default=25, help="of the training set, become dev")
    ocean.add_argument("--case", choices=CASES, default=CASES[0], help="of the transcripts")
    kaldi = corpora.add_parser("kaldi", parents=[common], help="one Kaldi directory from elsewhere")
    kaldi.add_argument("--src", type=Path, required=True, help="its folder, which names the set")
    kaldi.add_argument("--lang", required=True, help="of its utterances, unless it has utt2lang")
    return parser


def main(cmd: list[str] | None = None) -> None:
    args = get_parser().parse_args(cmd)
    setup_logging()
    if args.corpus == "mini":
        own = dict(on_request=args.sets, nj=args.nj, scale=args.scale, seed=args.seed)
        prepare_mini(args.out, args.downloads, **own)
        return
    with job_map(args.nj) as map_fn:
        if args.corpus == "kaldi":
            data = import_kaldi_dir(args.src, args.out, args.lang, map_fn)
            print(f"{data.path}: {len(data.utts)} utterances, {len(data.spk2utt)} speakers")
            return
        report = prepare_speechocean762(
            args.out, args.src, downloads=args.downloads, dev_speakers=args.dev_speakers,
            seed=args.seed, case=args.case, map_fn=map_fn,
        )  # fmt: skip
        for name, counts in report["sets"].items():
            print(f"{args.out / name}:", ", ".join(f"{n} {what}" for what, n in counts.items()))
        for why, ids in report["removed"].items():
            print(f"removed: {len(ids)} of {why}")


if __name__ == "__main__":
    run_main(main)
