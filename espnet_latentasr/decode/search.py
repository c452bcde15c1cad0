"""Search over ``step``: a state in, token ids out; knows neither text nor audio."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from espnet_latentasr.backbone.base import Backbone, State


@dataclass(frozen=True)
class Hypothesis:
    """Token ids without the end token; their summed log-probability, the end token's included.

    ``capped``: the row reached its cap of new tokens before it ended.
    """

    tokens: tuple[int, ...]
    log_probability: float
    capped: bool

    @property
    def mean_log_probability(self) -> float:
        """Per token, the end token counted (also where the cap cut it off)."""
        return self.log_probability / (len(self.tokens) + 1)


def reachable(backbone: Backbone, state: State, max_new_tokens: Sequence[int]) -> list[int]:
    """Caps of new tokens, cut to the position numbers that the recogniser has left."""
    if backbone.max_positions is None:
        return list(max_new_tokens)
    left = (backbone.max_positions - state.position).clamp(min=0).tolist()
    return [min(pair) for pair in zip(max_new_tokens, left, strict=True)]


def looks_every(device: torch.device) -> int:
    """After how many tokens to ask whether a row is still running: the answer of a GPU must be waited
    for, and a few columns that nobody needs cost it less."""
    return 1 if device.type == "cpu" else 8


@torch.no_grad()
def greedy(
    backbone: Backbone, state: State, max_new_tokens: Sequence[int], look_every: int | None = None
) -> list[Hypothesis]:
    """Take the most probable token until every row has ended or reached its cap.

    The columns this adds are cut again, so ``state`` stays valid and can be read any number of times.

    Args:
        max_new_tokens: one cap per row; ``reachable`` may lower it.
        look_every: see ``looks_every``; changes no result.
    """
    max_new_tokens = reachable(backbone, state, max_new_tokens)
    start, device = state, state.mask.device
    look_every = look_every or looks_every(device)
    caps = torch.tensor(list(max_new_tokens), device=device)
    ends = torch.tensor(backbone.end_ids, device=device)
    running = caps > 0
    ended = torch.zeros_like(running)
    total = torch.zeros(len(caps), dtype=torch.float64, device=device)
    chosen: list[torch.Tensor] = []
    most = max(max_new_tokens, default=0)
    for count in range(1, most + 1):
        logits = backbone.suppress(backbone.logits(state.hidden), count == 1)
        best, token = logits.log_softmax(-1).max(-1)
        total += torch.where(running, best.double(), 0.0)
        chosen.append(torch.where(running, token, -1))
        ended |= running & torch.isin(token, ends)
        running = running & ~ended & (caps > count)
        if count == most or (count % look_every == 0 and not bool(running.any())):
            break
        state = backbone.step(state, backbone.embed(token)[:, None], running[:, None])
    backbone.rollback(state, start)
    rows = torch.stack(chosen, 1).tolist() if chosen else [[] for _ in max_new_tokens]
    end_ids = set(backbone.end_ids)
    return [
        Hypothesis(tuple(t for t in row if t >= 0 and t not in end_ids), score, not done)
        for row, score, done in zip(rows, total.tolist(), ended.tolist())
    ]
