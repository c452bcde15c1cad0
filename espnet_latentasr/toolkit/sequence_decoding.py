"""Greedy texts and encoder outputs of a CTC model, utterance by utterance; scores nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from espnet_latentasr.data.kaldi_dir import write_kaldi_table
from espnet_latentasr.errors import DataError
from espnet_latentasr.rescoring.ctc_nbest import JOIN
from espnet_latentasr.sequence.candidates import greedy_tokens

from .asr import TooShortUttError
from .ctc_posteriors import CtcModel, inputs


@torch.no_grad()
def encoded(model: CtcModel, speech: np.ndarray) -> tuple[Tensor, Tensor]:
    """Inputs of one utterance -> encoder outputs (T, D) and log-posteriors (T, V), float64."""
    features = model.features(speech)
    output, frames = model.body.encode(features[None], torch.tensor([len(features)], device=model.device))
    output = output[0] if isinstance(output, tuple) else output  # with intermediate outputs
    states = output[0, : int(frames[0])].double()
    head = model.model.ctc.ctc_lo
    return states, (states @ head.weight.double().T + head.bias.double()).log_softmax(-1)


def readable(model: CtcModel, table: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the inputs of every utterance of a table in C order.

    Raises:
        DataError: an utterance cannot be read.
    """
    for utt_id, speech in inputs(model, table):
        if isinstance(speech, Exception):
            raise DataError(f"{table}: utterance '{utt_id}': {speech}")
        yield utt_id, speech


def text_function(model: CtcModel, token_type: str) -> Callable[[tuple[int, ...]], str]:
    """The function from token ids to text."""
    return lambda ids: JOIN[token_type]([model.tokens[k] for k in ids])


def of_model(
    config: Path, model_file: Path, table: Path, *, token_type: str = "bpe", device: str = "cpu"
) -> tuple[Iterator[tuple[str, Tensor, Tensor]], Callable[[tuple[int, ...]], str], int]:
    """Utterances (id, log-posteriors, encoder outputs), the function to text, and the blank's id."""
    model = CtcModel(config, model_file, device)

    def utterances() -> Iterator[tuple[str, Tensor, Tensor]]:
        for utt_id, speech in readable(model, table):
            states, lp = encoded(model, speech)
            yield utt_id, lp.cpu(), states.cpu()

    return utterances(), text_function(model, token_type), model.model.blank_id


def write_greedy(model: CtcModel, table: Path, output: Path, token_type: str = "bpe") -> int:
    """Decode every utterance of a table greedily and write ESPnet's ``text`` below ``output``.

    Returns:
        Number of utterances.

    Raises:
        DataError: an utterance that cannot be read or is too short; nothing is written then.
    """
    to_text, texts = text_function(model, token_type), {}
    for utt_id, speech in readable(model, table):
        try:
            lp = model.log_posteriors(model.features(speech))
        except TooShortUttError as error:
            raise DataError(f"{table}: utterance '{utt_id}': {error}") from None
        texts[utt_id] = to_text(greedy_tokens(lp.cpu().numpy(), model.model.blank_id))
    write_kaldi_table(output / "text", texts)
    return len(texts)
