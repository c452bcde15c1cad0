"""Sequence-level training of a stock ESPnet CTC model: ESPnet's ASR task with another loss.

The model, its tokens and its preprocessing are those of ``ASRTask``; ``sequence_conf`` says which loss
(`sequence.config`).  What is written is loaded by stock commands.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from espnet_latentasr.data.kaldi_dir import read_kaldi_table
from espnet_latentasr.errors import ConfigError
from espnet_latentasr.rescoring.ctc_nbest import JOIN
from espnet_latentasr.sequence.config import sequence_config

from .asr import ASRTask
from .compat import NestedDictAction
from .sequence_model import SequenceModel, TextOptions
from .sequence_trainer import SequenceTrainer


def references_of(args: argparse.Namespace) -> dict[str, str]:
    """Transcripts by utterance, from the text files of the training and valid data.

    Raises:
        ConfigError: a transcript that is no text file.
        DataError: an unreadable file.
    """
    found: dict[str, str] = {}
    for part in ("train", "valid"):
        for path, name, kind in getattr(args, f"{part}_data_path_and_name_and_type"):
            if name != "text":
                continue
            if kind != "text":
                raise ConfigError(
                    f"--{part}_data_path_and_name_and_type {path},{name},{kind}: type text expected"
                )
            for utt_id, words in read_kaldi_table(Path(path), require_sorted=False).items():
                if found.setdefault(utt_id, words) != words:
                    raise ConfigError(
                        f"{path}: utterance '{utt_id}' has another transcript in another file"
                    )
    return found


class SequenceTask(ASRTask):
    """ESPnet task; see the module's docstring."""

    trainer = SequenceTrainer

    @classmethod
    def add_task_arguments(cls, parser: argparse.ArgumentParser) -> None:
        super().add_task_arguments(parser)
        parser.add_argument(
            "--sequence_conf", action=NestedDictAction, default={}, help="see sequence/config.py"
        )

    @classmethod
    def build_model(cls, args: argparse.Namespace) -> SequenceModel:
        config = sequence_config(args.sequence_conf or {})
        if args.token_type not in JOIN:
            raise ConfigError(f"--token_type {args.token_type}: {', '.join(JOIN)} expected")
        if not args.init_param and not args.collect_stats:
            raise ConfigError(
                "--init_param: the parameters of a trained CTC model expected to start from"
            )
        asr = super().build_model(args)
        if getattr(asr, "ctc", None) is None or asr.interctc_weight:
            raise ConfigError("a model with a CTC head, without intermediate CTC losses, expected")
        args.sequence_conf = dataclasses.asdict(config)
        text = TextOptions(args.token_type, tuple(args.token_list), references_of(args))
        return SequenceModel(asr, config, text, args.seed)
