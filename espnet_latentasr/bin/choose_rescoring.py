"""Choose the settings of rescoring rules on a development set; writes one YAML a rule and all rates."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nbest", type=Path, required=True, help="scored lists of the development set")
    parser.add_argument("--ref", type=Path, help="Kaldi text; default: the references in the file")
    parser.add_argument("--grid", type=Path, required=True, help="as conf/tuning/rescoring_grid.yaml")
    parser.add_argument("--unit", choices=["wer", "cer", "cer_nospace", "mer"], default="wer")
    parser.add_argument("--normalizer", default="list", help="of both sides; list: the one of the lists")
    parser.add_argument("--out", type=Path, required=True, help="folder for <rule>.yaml and tried.csv")
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    import yaml

    from espnet_latentasr.analysis.rescoring_choice import choose
    from espnet_latentasr.data.kaldi_dir import read_kaldi_table
    from espnet_latentasr.fileio import atomic_write_text
    from espnet_latentasr.report.oracle_gap import rows_table
    from espnet_latentasr.rescoring.grid import load_grid

    refs = None if args.ref is None else read_kaldi_table(args.ref, allow_empty=True)
    options = {"normalizer": args.normalizer, "unit": args.unit}
    tried = choose(args.nbest, refs, load_grid(args.grid), **options)
    for one in tried:
        if one.chosen:
            head = f"# Chosen on {args.nbest} from {args.grid.name}: {args.unit.upper()} {one.rate:.2%}\n"
            atomic_write_text(args.out / f"{one.rule}.yaml", head + yaml.safe_dump(one.trial.mapping))
            print(f"{one.rule}: {args.unit.upper()} {one.rate:.2%} {one.trial.values}")
    rows = [
        {"rule": t.rule, "values": str(t.trial.values), "error rate": t.rate, "chosen": t.chosen}
        for t in tried
    ]
    table = rows_table("tried", "Tried", rows, "", {"error rate"})
    atomic_write_text(args.out / "tried.csv", table.csv())


if __name__ == "__main__":
    run_main(main)
