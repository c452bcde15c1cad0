"""Transcribe audio files and folders with a shared adapter, or with an experiment of the recipe.

Exit code: 0, 3 if some files were unusable (the others are written), 1 for a wrong option or model.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging, str2bool
from espnet_latentasr.bin.format_wav import channel_choice
from espnet_latentasr.decode.transcript_formats import FORMATS, format_of, transcript_line, transcripts

SOME_UNUSABLE = 3


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("audio", nargs="+", help="files, and folders with files")
    add("--model", help="shared adapter: folder, zip, or hub id (with --revision)")
    add("--revision", help="commit of a hub id")
    add("--backbone", help="the frozen recogniser, if not on the hub: folder or ID@COMMIT")
    add("--allow_other_backbone", type=str2bool, default=False)
    add("--backbone_dir", help="of an experiment, instead of --model; with the next two")
    add("--asr_train_config")
    add("--asr_model_file")
    add("--inference_config", help="decoding YAML; default: the packed one")
    add("--output", type=Path, help="file to write; default: standard output")
    add("--format", choices=FORMATS, help="default: what --output ends in, else text")
    add("--trace", type=str2bool, default=False, help="also depth, values and update norms")
    add("--lang", help="language of the audio; default: the adapter's")
    add("--theta", type=float, help="value threshold")
    add("--steps", type=int, help="so many latent steps for every file; 0: the frozen recogniser")
    add("--nbest", type=int, default=1, help="beam width; 1: greedy")
    add("--channel", type=channel_choice, help="of files with several: a number from 0, or 'mix'")
    long = "files longer than the recogniser hears at once: cut at pauses and joined, or unusable"
    add("--long_audio", choices=("split", "refuse"), default="split", help=long)
    add("--batch_size", type=int, help="overrides the decoding configuration's")
    add("--ngpu", type=int, default=0)
    return parser


def main(cmd: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    form = format_of(args.format, args.output)
    from espnet_latentasr.decode import transcribe as job

    files = job.find_audio(args.audio)
    if args.output is not None:
        job.check_output(args.output, files)
    files_of = ("backbone_dir", "asr_train_config", "asr_model_file")
    experiment = {key: getattr(args, key) for key in files_of}
    options = {"language": args.lang, "device": "cuda" if args.ngpu > 0 else "cpu"}
    same = ("backbone", "allow_other_backbone", "inference_config")
    options |= {key: getattr(args, key) for key in same}
    asr = job.load_asr(args.model, args.revision, experiment, **options)
    wanted = ("theta", "steps", "batch_size", "nbest", "channel", "long_audio")
    request = job.request_of(asr, **{key: getattr(args, key) for key in wanted})
    # To a terminal at once; a CSV has a head and a file is written whole, so these wait for the end.
    live = args.output is None and form != "csv"
    show = _printer(form, args.trace) if live else None
    summary = job.transcribe(asr, files, request, args.output, show)
    text = transcripts(summary.rows.values(), summary.problems, form, args.trace)
    if args.output is not None:
        job.write_output(args.output, text, summary)
    elif not live:
        print(text, end="")
    print(summary, file=sys.stderr)
    return SOME_UNUSABLE if summary.problems else 0


def _printer(form: str, trace: bool) -> Callable[[dict], None]:
    return lambda row: print(transcript_line(row, form, trace), end="", flush=True)


if __name__ == "__main__":
    run_main(lambda: sys.exit(main()))
