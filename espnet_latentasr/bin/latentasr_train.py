"""Stages 10 and 11: ESPnet's training command for LatentASR; YAMLs may have a ``base:``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from espnet_latentasr.bin._common import run_main
from espnet_latentasr.config import load_yaml
from espnet_latentasr.fileio import atomic_write_text


def resolve_config(cmd: list[str]) -> list[str]:
    """Replace ``--config x.yaml`` by its resolved copy in the output folder (ESPnet knows no base)."""
    if "--config" not in cmd or "--output_dir" not in cmd:
        return cmd
    place = cmd.index("--config") + 1
    path, output = Path(cmd[place]), Path(cmd[cmd.index("--output_dir") + 1])
    resolved = output / f"resolved_{path.name}"
    text = yaml.safe_dump(load_yaml(path), sort_keys=False, allow_unicode=True)
    atomic_write_text(resolved, f"# {path} with its bases; written by latentasr_train\n{text}")
    return [*cmd[:place], str(resolved), *cmd[place + 1 :]]


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    from espnet_latentasr.toolkit.task import LatentASRTask

    LatentASRTask.main(cmd=resolve_config(list(sys.argv[1:] if cmd is None else cmd)))


if __name__ == "__main__":
    run_main(main)
