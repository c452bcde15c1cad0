"""CTC log-posteriors of a trained ESPnet ASR model: the input of bin.ctc_nbest."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--asr_train_config", type=Path, required=True, help="config.yaml of the model")
    parser.add_argument("--asr_model_file", type=Path, required=True)
    parser.add_argument("--input", type=Path, required=True, help="wav.scp; features if it reads these")
    parser.add_argument("--kind", choices=["plain", "contrastive", "mc_dropout"], default="plain")
    parser.add_argument("--amount", type=float, help="contrastive: weight of the masked input")
    parser.add_argument("--passes", type=int, help="mc_dropout")
    parser.add_argument("--seed", type=int, help="contrastive and mc_dropout")
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--ngpu", type=int, default=0)
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    from espnet_latentasr.toolkit.ctc_posteriors import CtcModel, PosteriorKind, write_posteriors

    given = {name: getattr(args, name) for name in ("amount", "passes", "seed")}
    kind = PosteriorKind(args.kind, **{name: value for name, value in given.items() if value is not None})
    model = CtcModel(args.asr_train_config, args.asr_model_file, "cuda" if args.ngpu else "cpu")
    print(f"{args.output_dir}: {write_posteriors(model, args.input, args.output_dir, kind)} utterances")


if __name__ == "__main__":
    run_main(main)
