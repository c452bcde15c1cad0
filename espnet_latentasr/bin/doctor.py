"""Say what this machine has and lacks for the recipes, and how to get what is missing.

Exit code 1 when the mini task cannot run; what is merely absent has a stated substitute.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import str2bool
from espnet_latentasr.report.environment import MINI_BACKBONE, NAMED, survey


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--mini_backbone",
        default=str(MINI_BACKBONE),
        metavar="DIR",
        help="where the mini task's recogniser is; none: it is not needed",
    )
    parser.add_argument(
        "--brief", type=str2bool, default=False, help="versions on one line, then problems only"
    )
    return parser


def main(cmd: Sequence[str] | None = None) -> int:
    """Run the command; ``cmd`` replaces ``sys.argv``; returns the exit code."""
    args = get_parser().parse_args(cmd)
    findings = survey(None if args.mini_backbone == "none" else Path(args.mini_backbone))
    shown = [found for found in findings if not (args.brief and found.ok)]
    if args.brief:
        named = ("python", *NAMED, "devices")
        print("; ".join(f"{found.name} {found.value}" for found in findings if found.name in named))
    for found in shown:
        print("\n".join(found.lines()))
    lacking = [found.name for found in findings if found.needed and not found.ok]
    if lacking:
        print(f"the mini task cannot run here: {', '.join(lacking)} missing")
    elif not args.brief:
        print("the mini task can run here")
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
