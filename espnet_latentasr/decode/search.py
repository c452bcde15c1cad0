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
    whole, rows = None, torch.arange(len(caps), device=device)  # which row each row of ``state`` is
    for count in range(1, most + 1):
        logits = backbone.suppress(backbone.logits(state.hidden), count == 1)
        best, token = logits.log_softmax(-1).max(-1)
        total[rows] += torch.where(running, best.double(), 0.0)
        column = torch.full_like(caps, -1)
        column[rows] = torch.where(running, token, -1)
        chosen.append(column)
        ended[rows] |= running & torch.isin(token, ends)
        running = running & ~ended[rows] & (caps[rows] > count)
        if count == most:
            break
        if count % look_every == 0:
            left = int(running.sum())
            if left == 0:
                break
            if 2 * left <= len(rows):
                # Half of the rows are done: go on with the others alone, in a copy.
                whole = state if whole is None else whole
                going = running.nonzero()[:, 0]
                state = backbone.fork(state, going)
                rows, token, running = rows[going], token[going], running[going]
        state = backbone.step(state, backbone.embed(token)[:, None], running[:, None])
    backbone.rollback(state if whole is None else whole, start)
    found = torch.stack(chosen, 1).tolist() if chosen else [[] for _ in max_new_tokens]
    end_ids = set(backbone.end_ids)
    return [
        Hypothesis(tuple(t for t in row if t >= 0 and t not in end_ids), score, not done)
        for row, score, done in zip(found, total.tolist(), ended.tolist())
    ]
