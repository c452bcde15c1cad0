"""Share a trained adapter: one folder (and zip) with its tensors, its settings and a model card.

The recogniser's weights are never packed.  ``Speech2Text.from_pretrained`` reads folder, zip and hub id.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.bin._common import run_main, setup_logging
from espnet_latentasr.errors import ConfigError
from espnet_latentasr.text.languages import get_language


def get_parser() -> argparse.ArgumentParser:
    """Return the command line options."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--backbone_dir", type=Path, required=True, help="written by stage 5")
    add("--asr_train_config", type=Path, required=True, help="config.yaml of the experiment")
    add("--asr_model_file", type=Path, required=True, help="such as valid.ce.best.pth")
    add("--inference_config", type=Path, help="the decoding rule to use it with")
    add("--out", type=Path, required=True, help="the folder to write")
    add("--zip", type=Path, help="ESPnet's archive of the same bytes; default: OUT.zip")
    add("--results", type=Path, help="the experiment, decoded and scored: its numbers go into the card")
    add("--dev", default="valid_noisy", help="set that chose settings; no row of the results")
    add("--lang", help="language that is assumed where a caller names none")
    add("--name", help="title of the card")
    add("--license", help="of the adapter, as the hub names it, such as apache-2.0")
    add("--dataset", action="append", default=[], help="training data, as the card names it; repeatable")
    return parser


def main(cmd: Sequence[str] | None = None) -> None:
    """Run the command; ``cmd`` replaces ``sys.argv``."""
    args = get_parser().parse_args(cmd)
    setup_logging()
    if args.results is not None and args.inference_config is None:
        raise ConfigError("--results: needs --inference_config, the decoding whose numbers are shown")
    from espnet_latentasr.decode.pack import pack_files, read_experiment, write_pack
    from espnet_latentasr.decode.pack_card import Facts
    from espnet_latentasr.report.card import card_results

    lang = None if args.lang is None else get_language(args.lang).code
    files = (args.backbone_dir, args.asr_train_config, args.asr_model_file, args.inference_config)
    pack, results = read_experiment(*files, lang), None
    if args.results is not None:
        results = card_results(args.results, pack.decode_tag, pack.model, args.dev)
    made = pack_files(pack, Facts(args.name, args.license, tuple(args.dataset), results))
    archive = args.zip or args.out.with_name(args.out.name + ".zip")
    write_pack(made, args.out, archive)
    size = sum(map(len, made.values()))
    print(f"{args.out}, {archive}: {pack.parameters} trained parameters, {size} bytes, {pack.model}")


if __name__ == "__main__":
    run_main(main)
