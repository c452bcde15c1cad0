"""ESPnet's model interface around a stock ASR model with a CTC head: sequence losses instead of CTC.

Parameters and checkpoints keep the stock model's names, so that stock commands load what is trained here
and ``--init_param`` takes what they have trained.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from espnet_latentasr.errors import DataError
from espnet_latentasr.rescoring.ctc_nbest import JOIN
from espnet_latentasr.rescoring.ctc_paths import keyed_rng
from espnet_latentasr.sequence.candidates import Drawn, Tokens, draw, greedy_tokens, word_errors
from espnet_latentasr.sequence.config import SequenceConfig
from espnet_latentasr.sequence.objective import reference_nll, sequence_loss
from espnet_latentasr.text.normalize import get_normalizer
from espnet_latentasr.toolkit.compat import AbsESPnetModel, force_gatherable

UNKNOWN = "<unk>"


@dataclass(frozen=True)
class TextOptions:
    """How token sequences become words: ESPnet's token type, its list, transcripts by utterance."""

    token_type: str
    tokens: tuple[str, ...]
    references: Mapping[str, str]


def text_of(options: TextOptions, normalizer: str) -> Callable[[Tokens], str]:
    """Return the function from token ids to normalised text."""
    join, normalize = JOIN[options.token_type], get_normalizer(normalizer)
    return lambda ids: normalize(join([options.tokens[k] for k in ids]))


def rows_of(padded: Tensor, lengths: Tensor) -> list[Tokens]:
    """Padded ids (B, L) -> tuples of each row's own."""
    return [tuple(row[:n]) for row, n in zip(padded.tolist(), lengths.tolist())]


def log_posteriors(asr: torch.nn.Module, speech: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Inputs of a stock ASR model (B, S, ...) -> log-posteriors (B, T, V) and frames (B,)."""
    # A copy: ESPnet's normalisation works in place, and a batch may be read by two policies.
    encoded, frames = asr.encode(speech.clone(), lengths)
    encoded = encoded[0] if isinstance(encoded, tuple) else encoded  # with intermediate outputs
    return asr.ctc.log_softmax(encoded), frames


class SequenceModel(AbsESPnetModel):
    """In training a sequence loss over freshly drawn candidates, in validation greedy word errors.

    ``epoch`` and ``steps`` (optimiser steps within it) are set, and ``renew_reference`` is called, by the
    trainer.  Draws are keyed by seed, epoch and utterance: they depend on neither the batches nor an
    interruption.  ``decoded`` collects the texts of a validation pass, ``totals`` sums of the training
    figures since they were last taken.
    """

    def __init__(self, asr: AbsESPnetModel, config: SequenceConfig, text: TextOptions, seed: int) -> None:
        super().__init__()
        self.asr = asr
        self.config, self.seed, self.epoch, self.steps = config, seed, 1, 0
        self.blank = asr.blank_id
        self.unk = text.tokens.index(UNKNOWN) if UNKNOWN in text.tokens else None
        self.references = text.references
        self.to_text = text_of(text, config.normalizer)
        self.normalize = get_normalizer(config.normalizer)
        self.decoded: dict[str, str] = {}
        self.totals: Counter[str] = Counter()
        # In a list, so that it is no part of this model's parameters; copied now, because after a forward
        # pass ESPnet's attention layers hold tensors of the graph, which cannot be copied.
        self._reference: list[torch.nn.Module] = []
        if config.objective == "mwer" and config.mwer.kind == "grpo":
            self._reference.append(copy.deepcopy(asr).eval().requires_grad_(False))

    # The stock model's names, everywhere parameters are named.
    def named_parameters(self, *args, **kwargs):
        return self.asr.named_parameters(*args, **kwargs)

    def state_dict(self, *args, **kwargs):
        return self.asr.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict, strict: bool = True, assign: bool = False):
        return self.asr.load_state_dict(state_dict, strict, assign)

    def train(self, mode: bool = True):
        """Training mode; dropout and masks of the stock model stay off unless ``dropout`` is set."""
        super().train(mode)
        self.asr.train(mode and self.config.dropout)
        return self

    def renew_reference(self) -> None:
        """Make the current parameters the policy that candidates are drawn from (kind grpo)."""
        for reference in self._reference:
            reference.to(next(self.asr.parameters()).device)
            reference.load_state_dict(self.asr.state_dict())

    def reference_text(self, utt_id: str) -> str:
        """Normalised transcript of an utterance.

        Raises:
            DataError: there is none.
        """
        if utt_id not in self.references:
            raise DataError(f"utterance '{utt_id}': no transcript among {len(self.references)}")
        return self.normalize(self.references[utt_id])

    def draw(self, lp: Tensor, frames: Tensor, utt_ids: Sequence[str]) -> list[Drawn]:
        """Draw a list for every utterance from log-posteriors (B, T, V)."""
        rows = lp.detach().double().cpu().numpy()
        options = self.config.list, self.to_text
        return [
            draw(np.ascontiguousarray(row[:count]), utt_id, self.reference_text(utt_id), *options,
                 keyed_rng(self.seed, f"{self.epoch} {utt_id}"), blank=self.blank)
            for row, count, utt_id in zip(rows, frames.tolist(), utt_ids, strict=True)
        ]  # fmt: skip

    def forward(
        self,
        speech: Tensor,
        speech_lengths: Tensor,
        text: Tensor,
        text_lengths: Tensor,
        utt_id: Sequence[str] = (),
        **kwargs,
    ) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        """One minibatch: speech (B, S, ...), text (B, L) token ids -> (loss, stats, batch size)."""
        lp, frames = log_posteriors(self.asr, speech, speech_lengths)
        if not self.training:
            loss, stats = self._validate(lp, frames, utt_id)
        else:
            old_lp = None
            if self._reference:
                with torch.no_grad():
                    old_lp, _ = log_posteriors(self._reference[0], speech, speech_lengths)
            drawn = self.draw(lp if old_lp is None else old_lp, frames, utt_id)
            targets = rows_of(text, text_lengths)
            losses, stats = sequence_loss(
                lp, frames, targets, drawn, self.config, old_lp=old_lp, blank=self.blank
            )
            loss = losses.mean().to(lp.dtype)
            self.totals.update({key: float(value) * len(drawn) for key, value in stats.items()})
            self.totals["utterances"] += len(drawn)
        stats = {key: value.detach().float() for key, value in stats.items()} | {"loss": loss.detach()}
        return force_gatherable((loss, stats, len(speech)), loss.device)

    def _validate(
        self, lp: Tensor, frames: Tensor, utt_ids: Sequence[str]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Errors of greedy search, means over the utterances (a ratio of two is a corpus rate)."""
        errors, words, rates = 0, 0, 0.0
        rows = lp.double().cpu().numpy()
        for row, count, utt_id in zip(rows, frames.tolist(), utt_ids, strict=True):
            found = self.to_text(greedy_tokens(row[:count], self.blank))
            self.decoded[utt_id] = found
            reference = self.reference_text(utt_id).split()
            wrong = word_errors(reference, found.split())
            errors, words, rates = (
                errors + wrong,
                words + len(reference),
                rates + wrong / max(len(reference), 1),
            )
        means = {"word_errors": errors, "words": words, "wer_macro": rates}
        stats = {key: lp.new_tensor(value / len(rows)) for key, value in means.items()}
        return stats["word_errors"], stats

    def take_totals(self) -> dict[str, float]:
        """Means of the training figures since the last call, and forget them."""
        count = self.totals.pop("utterances", 0)
        found = {key: value / count for key, value in self.totals.items()} if count else {}
        self.totals = Counter()
        return found

    @torch.no_grad()
    def measure(
        self, batch: dict, utt_ids: Sequence[str]
    ) -> tuple[list[Tokens], list[float], list[Drawn]]:
        """Reference tokens, their -log P in nats and a drawn list, for each utterance of a batch."""
        lp, frames = log_posteriors(self.asr, batch["speech"], batch["speech_lengths"])
        targets = rows_of(batch["text"], batch["text_lengths"])
        nll = reference_nll(lp, frames, targets, self.blank)
        return targets, nll.tolist(), self.draw(lp, frames, utt_ids)

    def collect_feats(self, **batch) -> dict[str, Tensor]:
        """As the stock model's."""
        return self.asr.collect_feats(**batch)
