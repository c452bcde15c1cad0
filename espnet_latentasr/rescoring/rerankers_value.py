"""The acoustic value head: a small network over encoder states at a hypothesis' frames.

Trained with a pairwise hinge within utterances: a candidate with fewer errors shall score higher by the
margin.  The epoch whose choices make the fewest errors on held-out utterances is kept.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from espnet_latentasr.errors import DataError
from espnet_latentasr.rescoring.nbest_list import NBest
from espnet_latentasr.rescoring.rerankers_acoustics import Acoustics
from espnet_latentasr.rescoring.rerankers_config import ValueHeadConfig
from espnet_latentasr.rescoring.rerankers_data import Judged, chosen_rate


class ValueNetwork(nn.Module):
    """Standardise (by the training set's mean and sd), two hidden ReLU layers, one score."""

    def __init__(self, inputs: int, config: ValueHeadConfig) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("scale", torch.ones(inputs))
        self.layers = nn.Sequential(
            nn.Linear(inputs, config.width),
            nn.ReLU(),
            nn.Dropout(config.dropout),
            nn.Linear(config.width, config.width_2),
            nn.ReLU(),
            nn.Dropout(config.dropout),
            nn.Linear(config.width_2, 1),
        )

    def forward(self, rows: Tensor) -> Tensor:
        """Rows (M, F) -> scores (M,): the higher, the fewer errors are expected."""
        return self.layers((rows - self.mean) / self.scale)[:, 0]


def pairwise_hinge(scores: Tensor, rates: Tensor, margin: float) -> Tensor:
    """Mean over pairs with different error rates of max(0, margin - (s_better - s_worse)).

    Args:
        scores: (G,), rates: (G,) of one utterance; 0 where no pair differs.
    """
    better = rates[:, None] < rates[None]
    gaps = (margin - (scores[:, None] - scores[None])).clamp(min=0)
    return (gaps * better).sum() / better.sum().clamp(min=1)


@torch.no_grad()
def _scores(network: ValueNetwork, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
    network.eval()
    return [network(torch.from_numpy(r)).double().numpy() for r in rows]


def train_value(
    training: Sequence[Judged],
    held_out: Sequence[Judged],
    acoustics: Acoustics,
    config: ValueHeadConfig,
    seed: int,
) -> tuple[dict[str, Tensor], list[dict]]:
    """Train on lists; the same lists and seed give the same weights on one machine.

    Returns:
        The network's tensors, and per epoch loss and held-out error rate of its choices.
    """
    rows = [acoustics.hear(judged.nbest).rows() for judged in training]
    other = [acoustics.hear(judged.nbest).rows() for judged in held_out]
    rates = [torch.from_numpy(judged.rates) for judged in training]
    stacked = np.concatenate(rows).astype(np.float64)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = ValueNetwork(stacked.shape[1], config)
        network.mean.copy_(torch.from_numpy(stacked.mean(0)))
        spread = stacked.std(0)
        network.scale.copy_(torch.from_numpy(np.where(spread > 0, spread, 1.0)))
        optimizer = torch.optim.Adam(network.parameters(), lr=config.lr)
        per_epoch = math.ceil(len(rows) / config.batch)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.epochs * per_epoch)
        best, log = None, []
        for epoch in range(1, config.epochs + 1):
            network.train()
            total = 0.0
            order = torch.randperm(len(rows)).tolist()
            for start in range(0, len(order), config.batch):
                picked = order[start : start + config.batch]
                found = network(torch.from_numpy(np.concatenate([rows[i] for i in picked])))
                parts = found.split([len(rows[i]) for i in picked])
                losses = [pairwise_hinge(s, rates[i], config.margin) for s, i in zip(parts, picked)]
                loss = torch.stack(losses).mean()
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                schedule.step()
                total += float(loss.detach()) * len(picked)
            rate = chosen_rate(list(held_out), _scores(network, other))
            log.append({"epoch": epoch, "loss": total / len(rows), "held_out_error_rate": rate})
            logging.info("epoch %d: %s", epoch, log[-1])
            if best is None or rate < best[0]:
                best = rate, copy.deepcopy(network.state_dict())
    return best[1], log


class ValueReranker:
    """Scores lists by a trained network and the set's encoder states."""

    def __init__(
        self, tensors: Mapping[str, Tensor], config: ValueHeadConfig, acoustics: Acoustics
    ) -> None:
        self.network = ValueNetwork(len(tensors["mean"]), config)
        self.network.load_state_dict(tensors)
        self.acoustics = acoustics

    def score(self, nbest: NBest) -> list[float]:
        """Score of each candidate; only differences within a list mean something."""
        rows = self.acoustics.hear(nbest).rows()
        if rows.shape[1] != len(self.network.mean):
            raise DataError(
                f"{self.acoustics.embeddings}: utterance '{nbest.utt_id}' gives {rows.shape[1]} "
                f"features, the value head was trained on {len(self.network.mean)}; are these states of "
                "another encoder?"
            )
        return _scores(self.network, [rows])[0].tolist()
