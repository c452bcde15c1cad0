"""Stage 5: record which frozen recogniser an experiment stands on, and its token list."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.backbone.frozen import Frozen, write_frozen
from espnet_latentasr.backbone.registry import KINDS
from espnet_latentasr.bin._common import run_main, setup_logging
from espnet_latentasr.config import BackboneConfig, build, load_yaml
from espnet_latentasr.errors import ConfigError


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, help="YAML whose backbone_conf names the recogniser")
    parser.add_argument("--name", help="local folder or hub id; overrides the YAML")
    parser.add_argument("--kind", choices=KINDS, help="overrides the YAML and what a folder says it is")
    parser.add_argument("--revision", help="commit hash of a hub id; overrides the YAML")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], help="overrides the YAML")
    parser.add_argument("--output_dir", type=Path, required=True)
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    from espnet_latentasr.backbone.registry import kind_of_folder, library_version, load_backbone

    keys = {} if args.config is None else load_yaml(args.config).get("backbone_conf", {})
    given = {key: getattr(args, key) for key in ("name", "kind", "revision", "dtype")}
    keys |= {key: value for key, value in given.items() if value}
    if "kind" not in keys and (found := kind_of_folder(keys.get("name", ""))):
        keys["kind"] = found
    config = build(BackboneConfig, keys, "backbone_conf")
    if not config.name:
        raise ConfigError("no recogniser named: give --name or backbone_conf.name in --config")
    if Path(config.name).is_dir():
        config = dataclasses.replace(config, name=str(Path(config.name).resolve()))
    backbone = load_backbone(config)
    parameters = sum(p.numel() for p in backbone.model.parameters())
    record = Frozen(config, backbone.fingerprint, parameters, library_version())
    write_frozen(args.output_dir, record, backbone.text.vocabulary())
    print(f"{args.output_dir}: {config.name} {backbone.fingerprint}, {parameters} parameters frozen")


if __name__ == "__main__":
    run_main(main)
