"""The report of one experiment: ``python -m espnet_latentasr.bin.report --exp EXP_DIR --out DIR``.

Reads decoded and scored sets; writes ``RESULTS.md``, ``report.html`` and ``report/``.  Runs no model.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging, str2bool
from espnet_latentasr.report.build import Output, write_report
from espnet_latentasr.report.experiment import FROZEN_TAG, Options, load_experiment


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--exp", type=Path, required=True, help="folder of the experiment")
    add("--out", type=Path, required=True, help="folder of the report")
    add("--seed_exps", type=Path, nargs="*", default=[], help="the same experiment with other seeds")
    add("--data_root", type=Path, default=Path("dump/raw"), help="parent of the sets' data directories")
    add("--dev", default="valid_noisy", help="set that chooses thresholds; not a test set")
    add("--unit", choices=["wer", "cer", "mer"], help="default: the main one of the language")
    add("--normalizer", help="refuse sets scored with another one")
    add("--lang", help="refuse sets scored as another language")
    add("--frozen_tag", default=FROZEN_TAG, help="decoding of the frozen recogniser")
    add("--tag", help="decoding whose utterances are shown; default: one with all depths")
    add("--theta", type=float, default=0.0, help="value threshold that is analysed")
    add("--on_halt", default="keep", choices=["keep", "discard"])
    add("--train", nargs="*", help="sets to check for overlap; default: those the experiment names")
    add("--figures", type=str2bool, default=True)
    add("--audio", default="link", choices=["link", "embed", "none"])
    add("--max_utterances", type=int, default=1000, help="rows of the page's list")
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = vars(get_parser().parse_args(cmd))
    setup_logging()
    output = Output(args.pop("out"), *(args.pop(k) for k in ("figures", "max_utterances", "audio")))
    paths = [args.pop("exp"), *args.pop("seed_exps")]
    options = Options(**args)
    print(write_report([load_experiment(path, options) for path in paths], output))


if __name__ == "__main__":
    run_main(main)
