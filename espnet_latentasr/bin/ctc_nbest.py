"""Candidate lists from saved CTC log-posteriors: a Kaldi scp or ark of (frames, labels) matrices."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging
from espnet_latentasr.config import build
from espnet_latentasr.rescoring.config import CtcListConfig
from espnet_latentasr.rescoring.nbest_list import write_nbest
from espnet_latentasr.text.normalize import get_normalizer


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--posteriors", type=Path, required=True, help="scp or ark, natural logarithms")
    parser.add_argument("--token_list", type=Path, required=True, help="one token a line")
    parser.add_argument("--token_type", choices=["bpe", "char", "word"], default="bpe")
    parser.add_argument("--blank", default="<blank>", help="its symbol in the token list")
    parser.add_argument("--model", help="what made the posteriors; default: what posteriors.json says")
    parser.add_argument("--ref", type=Path, help="Kaldi text of the references")
    parser.add_argument("--normalizer", default="none")
    parser.add_argument("--gen", choices=["sys", "iid", "prefix", "kbest"], default="sys")
    for name, kind in (("size", int), ("num_paths", int), ("seed", int), ("nbest_scale", float)):
        parser.add_argument(f"--{name}", type=kind)
    parser.add_argument("--output_beam", type=float, help="nats; default 8, none for kbest; inf: none")
    parser.add_argument("--order", choices=["path", "am"], default="path")
    parser.add_argument("--max_unk_rate", type=float, default=0.01)
    parser.add_argument("--frames", type=Path, help="CSV of dead and active frames, given greedy")
    parser.add_argument("--out", type=Path, required=True, help="the nbest.jsonl to write")
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    from espnet_latentasr.analysis.ctc_frames import frame_rows
    from espnet_latentasr.data.kaldi_dir import read_kaldi_table
    from espnet_latentasr.fileio import atomic_write_text
    from espnet_latentasr.report.oracle_gap import rows_table
    from espnet_latentasr.rescoring.ctc_nbest import candidate_lists, recorded_model

    names = ("gen", "size", "num_paths", "seed", "nbest_scale", "output_beam", "order")
    keys = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if keys.get("output_beam") == float("inf") or (args.gen == "kbest" and args.output_beam is None):
        keys["output_beam"] = None
    frames: list[dict] = []
    lists = candidate_lists(
        args.posteriors,
        args.token_list,
        build(CtcListConfig, keys, "--"),
        get_normalizer(args.normalizer),
        model=args.model or recorded_model(args.posteriors),
        token_type=args.token_type,
        blank=args.blank,
        refs=None if args.ref is None else read_kaldi_table(args.ref, allow_empty=True),
        max_unk_rate=args.max_unk_rate,
        observe=None
        if args.frames is None
        else lambda n, lp, blank: frames.extend(frame_rows(n.utt_id, lp, n.hyps[0].tokens, blank=blank)),
    )
    logging.info("%s: %d utterances", args.out, write_nbest(args.out, lists))
    if args.frames is not None:
        atomic_write_text(args.frames, rows_table("frames", "Frames", frames).csv())


if __name__ == "__main__":
    run_main(main)
