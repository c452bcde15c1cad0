"""CTC log-posteriors of any ESPnet ASR model with a CTC head as a Kaldi archive; chooses nothing."""

from __future__ import annotations

import copy
import hashlib
import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import kaldiio
import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from espnet_latentasr.config import config_hash
from espnet_latentasr.data.ark import load_mat, refuse_command
from espnet_latentasr.data.audio import SAMPLE_RATE, read_audio
from espnet_latentasr.data.kaldi_dir import c_sorted, read_kaldi_table
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.fileio import atomic_path, atomic_write_text
from espnet_latentasr.rescoring.ctc_scorers import contrastive, mc_dropout

from .asr import ASRTask, TooShortUttError

RECORD = "posteriors.json"


@dataclass(frozen=True)
class PosteriorKind:
    """Which posterior is written.

    ``plain``: the model's own.  ``contrastive``: against the same input with random spans masked, by
    ``amount``.  ``mc_dropout``: mean of the probabilities over ``passes`` with dropout.
    """

    kind: Literal["plain", "contrastive", "mc_dropout"] = "plain"
    amount: float = 0.5
    passes: int = 4
    seed: int = 42


class CtcModel:
    """An ESPnet ASR model as two functions: waveform -> features, features -> log-posteriors."""

    def __init__(self, config: Path, model_file: Path, device: str = "cpu") -> None:
        for path in (config, model_file):
            if not path.is_file():
                raise ConfigError(f"{path}: no such file; a trained ESPnet ASR model expected")
        try:
            # ESPnet unpickles the file; what this refuses is never given to it.
            torch.load(model_file, map_location="cpu", weights_only=True)
        except Exception as error:  # the unpickler's refusals have no common type
            raise ConfigError(f"{model_file}: not a file of tensors only, not loaded ({error})") from None
        model, args = ASRTask.build_model_from_file(config, model_file, device)
        if getattr(model, "ctc", None) is None:
            raise ConfigError(f"{config}: the model has no CTC head (ctc_weight: {args.ctc_weight})")
        self.model, self.device = model.eval(), device
        self.tokens: list[str] = list(args.token_list)
        self.reads_audio = model.frontend is not None
        rate = str((args.frontend_conf or {}).get("fs", SAMPLE_RATE)).lower().replace("k", "000")
        if self.reads_audio and int(float(rate)) != SAMPLE_RATE:
            raise ConfigError(f"{config}: frontend_conf.fs: {rate} Hz, {SAMPLE_RATE} Hz expected")
        # What follows the features, without frontend and normalisation; shares every weight.
        self.body = copy.copy(model)
        self.body._modules = dict(model._modules) | {"frontend": None, "normalize": None}
        self.identity = f"sha256:{hashlib.sha256(model_file.read_bytes()).hexdigest()[:16]}"

    @torch.no_grad()
    def features(self, speech: np.ndarray) -> Tensor:
        """Waveform (S,), or features (F, D) where the model has no frontend -> normalised (F, D)."""
        # A copy: ESPnet's normalisation works in place.
        batch = torch.tensor(speech, device=self.device)[None]
        lengths = torch.tensor([batch.shape[1]], device=self.device)
        features, lengths = self.model._extract_feats(batch, lengths)
        if self.model.normalize is not None:
            features, _ = self.model.normalize(features, lengths)
        return features[0]

    @torch.no_grad()
    def log_posteriors(self, features: Tensor) -> Tensor:
        """Normalised features (F, D) -> log-posteriors (T, V)."""
        lengths = torch.tensor([len(features)], device=self.device)
        encoded, frames = self.body.encode(features[None], lengths)
        encoded = encoded[0] if isinstance(encoded, tuple) else encoded  # with intermediate outputs
        return self.model.ctc.log_softmax(encoded)[0, : int(frames[0])]

    def posteriors(self, speech: np.ndarray, utt_id: str, kind: PosteriorKind) -> np.ndarray:
        """Log-posteriors (T, V) of one utterance under ``kind``; the same whatever came before it."""
        features = self.features(speech)
        if kind.kind == "contrastive":
            options: dict[str, Any] = {"amount": kind.amount, "seed": kind.seed}
            found = contrastive(self.log_posteriors, features, utt_id, **options)
        elif kind.kind == "mc_dropout":
            options = {"seed": kind.seed, "passes": kind.passes}
            found = mc_dropout(self.log_posteriors, features, utt_id, self.body, **options)
        else:
            found = self.log_posteriors(features)
        return found.cpu().numpy()


def inputs(model: CtcModel, table: Path) -> Iterator[tuple[str, np.ndarray | Exception]]:
    """Yield what the model reads of every utterance, in C order; an error where it cannot be read."""
    entries = read_kaldi_table(table, require_sorted=False)
    for utt_id in c_sorted(entries):
        place = entries[utt_id]
        refuse_command(place, f"{table}: utterance '{utt_id}': ")
        try:
            speech = read_audio(place, utt_id) if model.reads_audio else load_mat(place)
            yield utt_id, np.asarray(speech, np.float32)
        except (DataError, OSError, ValueError) as error:
            yield utt_id, error


def write_posteriors(
    model: CtcModel, table: Path, output: Path, kind: PosteriorKind = PosteriorKind()
) -> int:
    """Write ``ctc_logp.ark`` and ``.scp``, ``tokens.txt`` and a record below ``output``.

    Args:
        table: ``wav.scp``, or a scp of feature matrices for a model without frontend.

    Returns:
        Number of utterances.

    Raises:
        DataError: at the end, if some utterances could not be computed; the others are written.
    """
    output.mkdir(parents=True, exist_ok=True)
    (output / RECORD).unlink(missing_ok=True)
    failures: dict[str, str] = {}
    lines: list[str] = []

    def computed(pairs: Iterable[tuple[str, np.ndarray | Exception]]) -> Iterator[tuple[str, np.ndarray]]:
        for utt_id, speech in pairs:
            try:
                if isinstance(speech, Exception):
                    raise speech
                if speech.ndim != (1 if model.reads_audio else 2) or not len(speech):
                    wanted = "a waveform" if model.reads_audio else "features (F, D)"
                    raise DataError(f"shape {speech.shape}: {wanted} expected")
                yield utt_id, model.posteriors(speech, utt_id, kind).astype(np.float32)
            except (DataError, OSError, ValueError, RuntimeError, TooShortUttError) as error:
                logging.error("%s: utterance '%s': %s", table, utt_id, error)
                failures[utt_id] = str(error)

    archive = output / "ctc_logp.ark"
    with atomic_path(archive) as temporary, open(temporary, "wb") as file:
        for utt_id, matrix in computed(tqdm(inputs(model, table), desc=table.parent.name, disable=None)):
            lines.append(f"{utt_id} {archive}:{file.tell() + len(utt_id.encode()) + 1}\n")
            kaldiio.save_ark(file, {utt_id: matrix})
    atomic_write_text(output / "ctc_logp.scp", "".join(lines))
    atomic_write_text(output / "tokens.txt", "".join(f"{token}\n" for token in model.tokens))
    if not failures:
        name = model.identity if kind.kind == "plain" else f"{model.identity}/{config_hash(kind)}"
        record = {"model": name, "utterances": len(lines)} | asdict(kind)
        atomic_write_text(output / RECORD, json.dumps(record, indent=2) + "\n")
        return len(lines)
    first = next(iter(failures))
    raise DataError(
        f"{table}: {len(failures)} of {len(failures) + len(lines)} utterances have no posteriors, first "
        f"'{first}': {failures[first]}; mend or remove them, the others are in {archive}"
    )
