"""Stage 4, last part: draw the activation set, the small training set, from a formatted pool."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging
from espnet_latentasr.data.kaldi_dir import (
    KaldiDir,
    check_other_dir,
    read_kaldi_table,
    write_kaldi_table,
)
from espnet_latentasr.data.manifest import first_of
from espnet_latentasr.data.mixture import nested_sample
from espnet_latentasr.errors import DataError
from espnet_latentasr.fileio import atomic_write_text


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data_dir", type=Path, required=True, help="formatted and filtered pool")
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--num", type=int, required=True, help="utterances to draw")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--manifest", type=Path, help="take its first --num utterances instead")
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    check_other_dir(args.data_dir, args.output_dir)
    pool = KaldiDir.load(args.data_dir)
    lengths = read_kaldi_table(args.data_dir / "utt2num_samples")
    how = f"first of {args.manifest}" if args.manifest else f"seed {args.seed}"
    try:
        if args.manifest:
            chosen = first_of(args.manifest, args.num, pool.utts)
        else:
            chosen = nested_sample(pool.utts, args.num, args.seed)
        kept = {utt: lengths[utt] for utt in chosen}
    except DataError as error:
        raise DataError(f"{args.data_dir}: {error}") from error
    except KeyError as error:
        raise DataError(f"{args.data_dir}/utt2num_samples: no utterance {error}") from error
    (args.output_dir / "wav.scp").unlink(missing_ok=True)
    write_kaldi_table(args.output_dir / "utt2num_samples", kept)
    atomic_write_text(args.output_dir / "feats_type", "raw\n")
    pool.subset(chosen).save(args.output_dir)
    print(f"{args.output_dir}: {len(chosen)} of {len(pool.utts)} utterances, {how}")


if __name__ == "__main__":
    run_main(main)
