#!/usr/bin/env python3
"""A few clips, recognised without thinking, with every latent step, and as the value head decides.

    ./run.sh && . ./path.sh && python3 local/demo.py             # clips of the recipe's test_voice
    python3 local/demo.py --model adapter.zip --backbone local/mini_backbone my.wav other.wav

Plain text on standard output, on a CPU.  Nothing is written.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main
from espnet_latentasr.errors import ConfigError, DataError

EXPERIMENT = Path("exp/asr_train_latent")
BEST = "valid.ce.best.pth"


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("audio", nargs="*", type=Path, help="files; default: clips of --data_dir")
    parser.add_argument("--exp", type=Path, default=EXPERIMENT, help="experiment of the recipe")
    parser.add_argument("--backbone_dir", type=Path, help="default: backbone/ beside the experiment")
    parser.add_argument("--model", help="a shared adapter (bin.pack) instead of --exp")
    parser.add_argument("--backbone", help="the recogniser of --model: a folder, or ID@COMMIT")
    parser.add_argument("--data_dir", type=Path, default=Path("dump/raw/test_voice"))
    parser.add_argument("--num", type=int, default=4, help="clips of --data_dir, evenly over the set")
    parser.add_argument("--lang", help="language of the files; default: the adapter's, else en")
    return parser


def chosen(ids: Sequence[str], number: int) -> list[str]:
    """``number`` of the ids, evenly spaced.

    >>> chosen("abcdefgh", 3)
    ['a', 'c', 'f']
    """
    if number < 1:
        raise ConfigError(f"--num {number}: at least 1 expected")
    number = min(number, len(ids))
    return [ids[place * len(ids) // number] for place in range(number)]


def clips_of(args: argparse.Namespace) -> Iterator[tuple[str, str, str | None, str | None]]:
    """(name, file, language, reference) of every clip; None: not known."""
    from espnet_latentasr.data.kaldi_dir import KaldiDir, c_sorted

    if args.audio:
        for path in args.audio:
            if not path.is_file():
                raise DataError(f"{path}: no such file; audio files, or none for clips of --data_dir")
            yield path.name, str(path), args.lang, None
        return
    data = KaldiDir.load(args.data_dir)
    spoken = data.languages()
    for utt_id in chosen(c_sorted(data.text), args.num):
        yield utt_id, data.wav[utt_id], args.lang or spoken[utt_id], data.text[utt_id]


def load(args: argparse.Namespace):
    """The recogniser with its adapter, and where it comes from, in words."""
    from espnet_latentasr import Speech2Text

    if args.model is not None:
        return Speech2Text.from_pretrained(args.model, backbone=args.backbone), args.model
    if not (args.exp / BEST).is_file():
        raise ConfigError(
            f"{args.exp}/{BEST}: no such model; ./run.sh trains it, --exp names another experiment and "
            "--model a shared adapter"
        )
    backbone_dir = args.backbone_dir or args.exp.parent / "backbone"
    asr = Speech2Text(backbone_dir, args.exp / "config.yaml", args.exp / BEST)
    return asr, str(args.exp / BEST)


def compare(asr, file: str, language: str | None, reference: str | None) -> Iterator[str]:
    """One line per way of recognising a clip: its time, depth, errors and text."""
    from espnet_latentasr.text.edit_distance import align

    steps = asr.recogniser.method.config.latent.steps
    rules = {"frozen": {"steps": 0}, f"{steps} latent": {"steps": steps}, "value head": {"theta": 0.0}}
    for name, rule in rules.items():
        begun = time.perf_counter()
        text, _, _, known = asr(file, language=language, **rule)[0]
        seconds = time.perf_counter() - begun
        errors = ""
        if reference is not None:
            operations = align(reference.split(), text.split()).operations
            errors = f"{len(operations) - operations.count('C')} err  "
        yield f"  {name:<11} {seconds:5.2f} s  depth {known.trace.steps}  {errors}{text or '(no words)'}"
        if name == "value head":
            values = " ".join(f"{value:+.3f}" for value in known.trace.values)
            yield f"              values {values or '-'}  (stopped: {known.trace.stopped})"


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    clips = list(clips_of(args))
    asr, place = load(args)
    if asr.recogniser.method is None or not asr.recogniser.method.thinks:
        raise ConfigError(f"{place}: no latent adapter, nothing to compare; bin.transcribe runs it")
    asr(clips[0][1], language=clips[0][2])  # the first call of a process is slower than the others
    frozen = asr.metadata["backbone"]
    print(f"{place} (model {asr.metadata['model']}) on the frozen recogniser {frozen}\n")
    for name, file, language, reference in clips:
        print(name if reference is None else f'{name}: "{reference}"')
        for line in compare(asr, file, language, reference):
            print(line)
    print(
        "\nEvery line is one call of Speech2Text: the search of run.sh's stage 12, one clip at a time."
        "\nTime: wall clock here, reading the file and encoding it included.  Depth: latent steps taken."
        "\nValues: v_k, the gain that the value head expects; it thinks on while v_k >= 0."
        "\nErr: word errors against the transcript, without any normaliser.  A few clips measure"
        "\nnothing: RESULTS.md has whole test sets with confidence intervals."
    )
    sys.stdout.flush()


if __name__ == "__main__":
    run_main(main)
