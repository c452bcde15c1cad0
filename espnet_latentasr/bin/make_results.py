"""Stage 13, last part: RESULTS.md of all scored experiments below a folder."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging
from espnet_latentasr.errors import DataError
from espnet_latentasr.fileio import atomic_write_text
from espnet_latentasr.report.comparison import comparison_markdown
from espnet_latentasr.report.oracle_summary import summary_markdown
from espnet_latentasr.report.published import family_markdown
from espnet_latentasr.report.results_md import (
    environment_section,
    experiment_section,
    left_out_section,
)
from espnet_latentasr.report.sequence_summary import sequence_markdown


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--expdir", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--dev", help="set that settings are chosen on: not among the compared rows")
    parser.add_argument("--families", type=Path, help="folder of family_*.md tables, put at the end")
    parser.add_argument("--oracle_gap", type=Path, help="folder of local/run_oracle_gap.sh's studies")
    parser.add_argument("--sequence", type=Path, help="folder of local/run_sequence.sh's studies")
    parser.add_argument("--data_root", type=Path, help="formatted sets: some may lack utterances")
    parser.add_argument("--preface", type=Path, help="Markdown put before the tables")
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    experiments = sorted({path.parents[3] for path in args.expdir.glob("*/*/*/score_*/score.json")})
    if not experiments:
        raise DataError(f"{args.expdir}: nothing scored; stage 13 scores before it reports")
    parts = ["# RESULTS\n", environment_section()]
    if args.preface is not None:
        parts.append(args.preface.read_text(encoding="utf-8"))
    if args.data_root is not None:
        parts.append(left_out_section(args.data_root))
    for experiment in experiments:
        parts += [experiment_section(experiment), comparison_markdown(experiment, args.dev)]
    if args.families is not None:
        parts += [family_markdown(path) for path in sorted(args.families.glob("family_*.md"))]
    if args.oracle_gap is not None:
        studies = sorted(path.parents[1] for path in args.oracle_gap.glob("*/report/conditions.csv"))
        parts += [summary_markdown(study) for study in studies]
    if args.sequence is not None:
        studies = sorted(path.parents[1] for path in args.sequence.glob("*/report/sequence.md"))
        parts += [sequence_markdown(study) for study in studies]
    atomic_write_text(args.output, "\n".join(part for part in parts if part))
    print(f"{args.output}: {len(experiments)} experiments")


if __name__ == "__main__":
    run_main(main)
