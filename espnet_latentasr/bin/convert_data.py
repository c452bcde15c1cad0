"""Convert a data set: ``python -m espnet_latentasr.bin.convert_data --from lhotse --to kaldi ...``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging, str2bool
from espnet_latentasr.data.formats import READERS, WRITERS, KaldiOptions, ReadOptions, convert

COLUMNS = ("audio", "text", "id", "speaker", "language")


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="source", choices=READERS, required=True)
    parser.add_argument("--to", dest="target", choices=["kaldi", *WRITERS], required=True)
    parser.add_argument(
        "--input", type=Path, nargs="+", required=True, help="folder, or the files of a format of files"
    )
    parser.add_argument("--output", type=Path, required=True, help="folder to write")
    parser.add_argument("--lang", help="of utterances that name no language")
    kaldi = parser.add_argument_group("Kaldi directories that are written")
    for name, text in [
        ("utt_as_speaker", "each utterance is its own speaker"),
        ("allow_empty_text", "keep utterances without transcript, for the length filter"),
        ("overwrite", "replace another set at --output"),
    ]:
        kaldi.add_argument(f"--{name}", type=str2bool, default=False, help=text)
    hf = parser.add_argument_group("data sets of Hugging Face that are read")
    hf.add_argument("--split")
    for name in COLUMNS:
        text = "or 'row' to number the rows; default: the name of the audio" if name == "id" else None
        hf.add_argument(f"--{name}_column", help=text)
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    columns = {f"{name}_column": getattr(args, f"{name}_column") for name in COLUMNS}
    read = ReadOptions(args.lang, args.output, args.split, **columns)
    write = KaldiOptions(args.lang, args.utt_as_speaker, args.allow_empty_text, args.overwrite)
    print(convert(args.source, args.target, args.input, args.output, read, write))


if __name__ == "__main__":
    run_main(main)
