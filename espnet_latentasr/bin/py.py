"""Stands for ``python3`` in ESPnet's asr.sh: its ASR training and decoding become ours.

    asr.sh --python "python3 -m espnet_latentasr.bin.py --backbone_dir exp/backbone" ...

Every other module runs as it is.  See asr_shim.sh in the recipe.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--backbone_dir", type=Path, required=True, help="folder written by stage 5")
    parser.add_argument("-m", dest="module", required=True, help="module to run; its arguments follow")
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    cmd = list(sys.argv[1:] if cmd is None else cmd)
    own = cmd.index("-m") + 2 if "-m" in cmd else len(cmd)
    args, rest = get_parser().parse_args(cmd[:own]), cmd[own:]
    if args.module == "espnet2.bin.asr_train":
        from espnet_latentasr.bin import latentasr_train
        from espnet_latentasr.toolkit import asr_sh

        latentasr_train.main(asr_sh.train_arguments(rest, args.backbone_dir))
        stats = asr_sh.output_dir(rest)
        if stats is not None:
            asr_sh.rename_shapes(stats)
    elif args.module == "espnet2.bin.asr_inference":
        from espnet_latentasr.bin import asr_inference

        asr_inference.main([*rest, "--backbone_dir", str(args.backbone_dir)])
    else:
        sys.argv = [args.module, *rest]
        runpy.run_module(args.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    run_main(main)
