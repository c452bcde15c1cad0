"""Sequence-level training (MWER, RAFT) of a stock ESPnet CTC model, with ESPnet's training options.

--init_config names the config.yaml of the model training starts from (its parameters: --init_param); the
YAML of --config holds what is new, and may have a base:.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from espnet_latentasr.bin._common import run_main
from espnet_latentasr.config import load_yaml
from espnet_latentasr.errors import ConfigError
from espnet_latentasr.fileio import atomic_write_text
from espnet_latentasr.sequence.config import with_model_of


def resolved(cmd: Sequence[str]) -> list[str]:
    """Return options for ESPnet: --config and --init_config become one file in the output folder."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("--config", "--init_config", "--output_dir"):
        parser.add_argument(name, type=Path)
    args, rest = parser.parse_known_args(cmd)
    output = [] if args.output_dir is None else ["--output_dir", str(args.output_dir)]
    if args.config is None and args.init_config is None:
        return [*rest, *output]
    if None in (args.config, args.init_config, args.output_dir):
        raise ConfigError("--config, --init_config and --output_dir belong together; give all three")
    merged = with_model_of(load_yaml(args.init_config), load_yaml(args.config), str(args.init_config))
    path = args.output_dir / f"resolved_{args.config.name}"
    text = yaml.safe_dump(merged, sort_keys=False, allow_unicode=True)
    atomic_write_text(
        path, f"# {args.config} on the model of {args.init_config}; written by sequence_train\n{text}"
    )
    return ["--config", str(path), *output, *rest]


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    options = resolved(list(sys.argv[1:] if cmd is None else cmd))
    from espnet_latentasr.toolkit.sequence_task import SequenceTask

    SequenceTask.main(cmd=options)


if __name__ == "__main__":
    run_main(main)
