"""Prepare a corpus as Kaldi directories: ``python -m espnet_latentasr.bin.prepare mini --out data``.

``prepare fleurs --src COPY --out data --parts core12 --splits test`` makes sets of a published corpus,
``prepare paper`` all that the paper trains and tests on.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from espnet_latentasr.bin._common import job_map, run_main, setup_logging, str2bool
from espnet_latentasr.data.activation import LANGUAGES, make_pool, repeat_pool
from espnet_latentasr.data.corpora import PREPARE, THREADS
from espnet_latentasr.data.kaldi_dir import read_kaldi_table
from espnet_latentasr.data.kaldi_source import import_kaldi_dir
from espnet_latentasr.data.mini.corpus import prepare_mini
from espnet_latentasr.data.mixture import load_mixture
from espnet_latentasr.data.paper import HUB_LIMIT, POOLS, prepare_paper, test_set_names
from espnet_latentasr.data.published import SPLITS, get_published
from espnet_latentasr.data.speechocean762 import CASES, prepare_speechocean762
from espnet_latentasr.errors import ConfigError


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options, one sub-command a corpus."""
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
    for name in PREPARE:
        one = corpora.add_parser(name, parents=[common], help=get_published(name).page)
        one.add_argument("--src", type=Path, help="a local copy; default: read the hub")
        one.add_argument("--parts", nargs="*", default=[], help="configurations, locales, tiers, or all")
        one.add_argument("--splits", nargs="*", default=[], choices=SPLITS)
        one.add_argument("--case", choices=CASES, help="of the transcripts; default: as the corpus needs")
        one.add_argument("--revision", help="commit of the data set on the hub")
        one.add_argument("--streaming", type=str2bool, default=True, help="false: download it first")
        one.add_argument("--limit", type=int, help="only the first so many utterances of each set")
        one.add_argument("--unknown", choices=["auto", "error"], default="auto", help="languages")
        one.add_argument("--threads", type=int, default=THREADS)
        one.add_argument("--names", type=str2bool, default=False, help="only print the test sets' names")
    mixing = argparse.ArgumentParser(add_help=False)
    mixing.add_argument("--mixtures", type=Path, help="another file of the form of data/mixtures.yaml")
    mixing.add_argument("--cap", nargs="*", default=[], metavar="CORPUS=N", help="most of one locale")
    mixing.add_argument("--languages", choices=LANGUAGES, default="named",
                        help="; ".join(f"{key}: {text}" for key, text in LANGUAGES.items()))  # fmt: skip
    pool = corpora.add_parser("mixture", parents=[common, mixing], help="a pool from prepared sets")
    pool.add_argument("--sets", nargs="+", type=Path, required=True, metavar="DIR")
    pool.add_argument("--name", default="paper", help="which mixture of the file")
    pool.add_argument("--exclude", type=Path, help="as bin.check_overlap writes it")
    pool.add_argument("--manifest", type=Path, help="take exactly its utterances instead of drawing")
    paper = corpora.add_parser("paper", parents=[common, mixing], help="all data of the paper")
    paper.add_argument("--src", type=Path, help="folder with a copy of each corpus, by our names")
    paper.add_argument("--sets", nargs="+", required=True, help="test sets (the pools may be among them)")
    paper.add_argument("--revision", nargs="*", default=[], metavar="CORPUS=COMMIT")
    paper.add_argument("--hub_limit", type=int, default=HUB_LIMIT, help="of each part read from the hub")
    return parser


def main(cmd: list[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    if args.corpus == "mini":
        own = dict(on_request=args.sets, nj=args.nj, scale=args.scale, seed=args.seed)
        prepare_mini(args.out, args.downloads, **own)
    elif args.corpus in PREPARE and args.names:
        print(*test_set_names(args.corpus, args.parts or ["all"]))
    elif args.corpus in PREPARE:
        names = "parts splits case revision streaming limit unknown downloads threads".split()
        sets = PREPARE[args.corpus](args.out, args.src, **{name: getattr(args, name) for name in names})
        for name, about in sets.items():
            counts = f"{about['utterances']} utterances, {about['speakers']} speakers"
            lost = f"{len(about['missing'])} missing, {len(about['without_words'])} without words"
            print(f"{args.out / name}: {counts}, {lost}")
    elif args.corpus == "mixture" and args.manifest:
        split = load_mixture(args.name, args.mixtures).split
        print(f"{args.out}: {len(repeat_pool(args.manifest, args.sets, args.out, split))} utterances")
    elif args.corpus == "mixture":
        spec = load_mixture(args.name, args.mixtures).with_caps(pairs(args.cap, int))
        exclude = read_kaldi_table(args.exclude) if args.exclude else {}
        own = dict(exclude=exclude, languages=args.languages)
        print(f"{args.out}: {len(make_pool(args.sets, args.out, spec, **own))} utterances")
    else:
        with job_map(args.nj) as map_fn:
            _read_audio(args, map_fn)


def _read_audio(args: argparse.Namespace, map_fn) -> None:
    if args.corpus == "kaldi":
        data = import_kaldi_dir(args.src, args.out, args.lang, map_fn)
        print(f"{data.path}: {len(data.utts)} utterances, {len(data.spk2utt)} speakers")
        return
    if args.corpus == "paper":
        counts = prepare_paper(
            args.out, args.src, [name for name in args.sets if name not in POOLS],
            mixtures=args.mixtures, caps=pairs(args.cap, int), revisions=pairs(args.revision, str),
            languages=args.languages, hub_limit=args.hub_limit, downloads=args.downloads,
            map_fn=map_fn,
        )  # fmt: skip
        for name, count in counts.items():
            print(f"{args.out / name}: {count} utterances")
        return
    report = prepare_speechocean762(
        args.out, args.src, downloads=args.downloads, dev_speakers=args.dev_speakers,
        seed=args.seed, case=args.case, map_fn=map_fn,
    )  # fmt: skip
    for name, counts in report["sets"].items():
        print(f"{args.out / name}:", ", ".join(f"{n} {what}" for what, n in counts.items()))
    for why, ids in report["removed"].items():
        print(f"removed: {len(ids)} of {why}")


def pairs(words: list[str], kind: type) -> dict:
    """Read ``CORPUS=VALUE`` words."""
    try:
        return {name: kind(value) for name, value in (word.split("=") for word in words)}
    except ValueError as error:
        raise ConfigError(f"'{' '.join(words)}': CORPUS=VALUE expected ({error})") from error


if __name__ == "__main__":
    run_main(main)
