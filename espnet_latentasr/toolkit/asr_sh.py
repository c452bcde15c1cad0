"""ESPnet's ``asr.sh`` with this plugin: its commands' arguments in the words of ours; imports no toolkit.

``asr.sh`` trains on audio; here the frozen recogniser has read it before (stage 6 of run.sh), so every
``DIR/wav.scp,speech,...`` becomes the cache of that set.  Shape files go back under the names that asr.sh
looks for.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.errors import ConfigError
from espnet_latentasr.fileio import atomic_write_text

# The recogniser has a tokenizer of its own; asr.sh hands the rest of these to every training.
UNUSED = ("bpemodel", "token_type", "token_list", "fold_length")
# What our reading does, whatever is asked for; anything else would be ignored in silence.
FIXED = {
    "cleaner": "none",
    "g2p": "none",
    "non_linguistic_symbols": "none",
    "frontend_conf": "fs=16k",
    "normalize": None,
    "normalize_conf": None,
    "input_size": None,
    "multiple_iterator": "false",
}
HINTS = {
    "normalize": "--feats_normalize none",
    "normalize_conf": "--feats_normalize none",
    "input_size": "--feats_type raw",
    "frontend_conf": "--fs 16k",
    "multiple_iterator": "--num_splits_asr 1",
    "non_linguistic_symbols": "--nlsyms_txt none",
}
SHAPES = {"speech_states": "speech", "targets": "text"}
PARTS = ("train", "valid")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    for name in (*UNUSED, *FIXED):
        parser.add_argument(f"--{name}", action="append", default=[])
    for part in PARTS:
        parser.add_argument(f"--{part}_data_path_and_name_and_type", action="append", default=[])
        parser.add_argument(f"--{part}_shape_file", action="append", default=[])
    return parser


def _data(triple: str, backbone_dir: Path) -> list[str]:
    """One of asr.sh's data triples -> ours; the transcript comes with the audio."""
    path, name, _ = triple.rsplit(",", 2)
    folder = Path(path).parent
    if name == "text":
        return []
    if name != "speech":
        raise ConfigError(f"{triple}: 'speech' and 'text' expected; one transcript per utterance only")
    cache = backbone_dir / "cache" / folder.name
    if not (cache / "audio_embeds.scp").is_file():
        raise ConfigError(
            f"{cache}: no frozen pass over {folder}; run.sh --stage 5 --stop_stage 6 makes that of its "
            f"own sets, python -m espnet_latentasr.bin.baseline_pass --data_dir {folder} any other"
        )
    return [
        f"{cache}/audio_embeds.scp,speech_states,kaldi_ark",
        f"{folder}/text,text,text",
        f"{cache}/baseline,baseline,text_float",
        f"{folder}/utt2lang,lang,text",
    ]


def train_arguments(cmd: Sequence[str], backbone_dir: Path) -> list[str]:
    """Arguments of ``espnet2.bin.asr_train`` as asr.sh gives them -> those of ``bin.latentasr_train``.

    Raises:
        ConfigError: an option that this recogniser has no place for, or a set without its frozen pass.
    """
    args, rest = _parser().parse_known_args(list(cmd))
    for name, wanted in FIXED.items():
        for found in getattr(args, name):
            if found != wanted:
                raise ConfigError(
                    f"--{name} {found}: the frozen recogniser reads 16 kHz audio and plain text its own "
                    f"way; give asr.sh {HINTS.get(name, f'--{name} none')}"
                )
    made = [*rest, "--backbone_dir", str(backbone_dir)]
    for part in PARTS:
        option = f"--{part}_data_path_and_name_and_type"
        for triple in getattr(args, option[2:]):
            for own in _data(triple, backbone_dir):
                made += [option, own]
        for path in getattr(args, f"{part}_shape_file"):
            # Batches are made by the length of the audio, as run.sh makes them.
            if not Path(path).name.startswith("text_shape"):
                made += [f"--{part}_shape_file", path]
    return made


def rename_shapes(output: Path) -> None:
    """Give the files that collecting statistics wrote the names that asr.sh goes on with."""
    for part in PARTS:
        keys = (output / part / "batch_keys").read_text(encoding="utf-8").split()
        for key in SHAPES.keys() & set(keys):
            (output / part / f"{key}_shape").rename(output / part / f"{SHAPES[key]}_shape")
        renamed = (SHAPES.get(key, key) for key in keys)
        atomic_write_text(output / part / "batch_keys", "".join(f"{key}\n" for key in renamed))


def output_dir(cmd: Sequence[str]) -> Path | None:
    """The output folder of a call that collects statistics; None for a training."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--collect_stats", default="false")
    parser.add_argument("--output_dir", type=Path)
    args, _ = parser.parse_known_args(list(cmd))
    return args.output_dir if args.collect_stats == "true" else None
