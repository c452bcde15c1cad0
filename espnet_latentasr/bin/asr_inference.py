"""Decode one job of ESPnet's asr.sh, under its argument names: the utterances of a key file."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging
from espnet_latentasr.config import DecodeConfig, build, load_yaml
from espnet_latentasr.errors import ConfigError


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--backbone_dir", type=Path, required=True)
    parser.add_argument("--asr_train_config", type=Path, required=True)
    parser.add_argument("--asr_model_file", type=Path, required=True)
    parser.add_argument("--config", type=Path, required=True, help="decoding YAML")
    parser.add_argument("--data_path_and_name_and_type", required=True, help="DIR/wav.scp,speech,sound")
    parser.add_argument("--key_file", type=Path, required=True, help="lines that begin with an id")
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--ngpu", type=int, default=0)
    parser.add_argument("--batch_size", type=int, default=1)
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    table, _, name_and_type = args.data_path_and_name_and_type.partition(",")
    if not name_and_type.startswith("speech,") or Path(table).name != "wav.scp":
        raise ConfigError(
            f"--data_path_and_name_and_type {args.data_path_and_name_and_type}: DIR/wav.scp,speech,sound "
            "expected (asr.sh --feats_type raw)"
        )
    from espnet_latentasr.decode.key_file import decode_keys
    from espnet_latentasr.decode.loading import load_recogniser

    keys = load_yaml(args.config) | {"batch_size": args.batch_size}
    config = build(DecodeConfig, keys, str(args.config))
    device = "cuda" if args.ngpu > 0 else "cpu"
    loaded = load_recogniser(args.backbone_dir, args.asr_train_config, args.asr_model_file, device)
    done = decode_keys(loaded, config, Path(table).parent, args.key_file, args.output_dir)
    logging.info("%s: %d utterances decoded", args.output_dir, done)


if __name__ == "__main__":
    run_main(main)
