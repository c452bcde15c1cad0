"""A masked language model as reranker: its first token's state gives a score, trained by MWER.

The list-normalised scores shall expect few errors: sum_i softmax((s_i + c log P(y_i|x)) / tau) W_i, the
loss of ``sequence.expected_errors`` for one list.  An empty text is a text like any other here.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from espnet_latentasr.errors import DataError
from espnet_latentasr.rescoring.lm_loading import load_masked_lm
from espnet_latentasr.rescoring.nbest_list import NBest
from espnet_latentasr.rescoring.rerankers_config import MaskedConfig
from espnet_latentasr.rescoring.rerankers_data import Judged, chosen_rate

HEAD_SD = 0.02


def list_loss(scores: Tensor, acoustic: Tensor, rates: Tensor, config: MaskedConfig) -> Tensor:
    """Expected error rate of one list: (G,) each -> scalar."""
    weights = ((scores + config.acoustic * acoustic) / config.temperature).softmax(-1)
    return (weights * rates).sum()


class MaskedReranker(nn.Module):
    """A masked language model's body and a linear map of its first position.

    Args:
        folder: the language model (at scoring: the fine-tuned one), a local folder or hub id.
    """

    def __init__(self, folder: str, config: MaskedConfig, revision: str | None = None) -> None:
        super().__init__()
        loaded = load_masked_lm(folder, revision)
        self.config, self.tokenizer, self.fingerprint = config, loaded.tokenizer, loaded.identity["model"]
        self.limit = min(config.max_length, loaded.limit)
        self.language_model = loaded.model.requires_grad_(True)
        self.head = nn.Linear(loaded.model.config.hidden_size, 1)
        nn.init.normal_(self.head.weight, std=HEAD_SD)
        nn.init.zeros_(self.head.bias)

    def forward(self, texts: Sequence[str], utt_id: str) -> Tensor:
        """Scores (G,) of texts; ``utt_id`` for messages.

        Raises:
            DataError: a text longer than ``max_length`` or the model's positions.
        """
        rows = [self.tokenizer(text, verbose=False).input_ids for text in texts]
        longest = max(map(len, rows))
        if longest > self.limit:
            text = texts[max(range(len(rows)), key=lambda i: len(rows[i]))]
            raise DataError(
                f"utterance '{utt_id}': {longest} tokens (with special ones), at most {self.limit} are "
                f"read: {text[:60]!r}...; raise masked.max_length, or leave the utterance out"
            )
        pad = self.tokenizer.pad_token_id or 0
        ids = torch.tensor([[*row, *[pad] * (longest - len(row))] for row in rows])
        mask = torch.arange(longest)[None] < torch.tensor([[len(row)] for row in rows])
        device = self.head.weight.device
        body = self.language_model.base_model
        states = body(input_ids=ids.to(device), attention_mask=mask.long().to(device)).last_hidden_state
        return self.head(states[:, 0])[:, 0]

    @torch.no_grad()
    def score(self, nbest: NBest) -> list[float]:
        """Score of each candidate; only differences within a list mean something."""
        self.eval()
        return self([c.surface for c in nbest.hyps], nbest.utt_id).double().tolist()

    def save(self, folder: Path) -> None:
        """Write the fine-tuned language model in the library's format."""
        self.language_model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def load_head(self, tensors: Mapping[str, Tensor]) -> MaskedReranker:
        """Take over the trained head, strictly."""
        self.head.load_state_dict(tensors)
        return self


def _parameter_groups(reranker: MaskedReranker, decay: float) -> list[dict[str, Any]]:
    """Biases and norms get no weight decay; the output layer is not part of the score, and not moved."""
    body = [*reranker.language_model.base_model.parameters(), *reranker.head.parameters()]
    return [
        {"params": [p for p in body if p.dim() > 1], "weight_decay": decay},
        {"params": [p for p in body if p.dim() <= 1], "weight_decay": 0.0},
    ]


def _choices(reranker: MaskedReranker, lists: Sequence[Judged]) -> float:
    """Error rate of the highest list probabilities, the acoustic term included."""
    scores = [
        np.array(reranker.score(j.nbest))
        + reranker.config.acoustic * np.array([c.am_logp for c in j.nbest.hyps])
        for j in lists
    ]
    return chosen_rate(list(lists), scores)


def train_masked(
    training: Sequence[Judged],
    held_out: Sequence[Judged],
    folder: str,
    config: MaskedConfig,
    seed: int,
    revision: str | None = None,
) -> tuple[MaskedReranker, list[dict]]:
    """Fine-tune; the same lists and seed give the same weights on one machine.

    Returns:
        The reranker at its best epoch, and per epoch loss and held-out error rate of its choices.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        reranker = MaskedReranker(folder, config, revision)
        optimizer = torch.optim.AdamW(_parameter_groups(reranker, config.weight_decay), lr=config.lr)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min(1.0, (step + 1) / max(config.warmup, 1))
        )
        best = _choices(reranker, held_out), copy.deepcopy(reranker.state_dict())
        log = [{"epoch": 0, "loss": None, "held_out_error_rate": best[0]}]
        for epoch in range(1, config.epochs + 1):
            reranker.train()
            total = 0.0
            order = torch.randperm(len(training)).tolist()
            for start in range(0, len(order), config.batch):
                picked = [training[i] for i in order[start : start + config.batch]]
                losses = []
                for judged in picked:
                    hyps = judged.nbest.hyps
                    scores = reranker([c.surface for c in hyps], judged.nbest.utt_id)
                    acoustic = torch.tensor([c.am_logp for c in hyps])
                    rates = torch.from_numpy(judged.rates).float()
                    losses.append(list_loss(scores, acoustic, rates, config))
                loss = torch.stack(losses).mean()
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(reranker.parameters(), config.clip)
                optimizer.step()
                schedule.step()
                total += float(loss.detach()) * len(picked)
            rate, mean = _choices(reranker, held_out), total / len(order)
            log.append({"epoch": epoch, "loss": mean, "held_out_error_rate": rate})
            logging.info("epoch %d: %s", epoch, log[-1])
            if rate < best[0]:
                best = rate, copy.deepcopy(reranker.state_dict())
    reranker.load_state_dict(best[1])
    return reranker.eval(), log
