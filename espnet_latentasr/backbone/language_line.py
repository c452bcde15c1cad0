"""A language line that the recogniser writes itself, before the transcript; knows no kind."""

from __future__ import annotations

import torch

from espnet_latentasr.backbone.base import Backbone, State


@torch.no_grad()
def read_line(
    backbone: Backbone, state: State, end_id: int, max_new_tokens: int
) -> tuple[State, list[list[int]]]:
    """Let the recogniser write, greedily, up to and including ``end_id`` (such as ``<asr_text>``).

    Returns:
        The state after it, and per row the ids before it; an empty list where it did not come within
        the cap or the text ended first: such a row is left where it was.
    """
    start = state
    running = torch.ones(state.batch_size, dtype=torch.bool, device=state.mask.device)
    done = torch.zeros_like(running)
    ends = torch.tensor(backbone.end_ids, device=running.device)
    rows: list[list[int]] = [[] for _ in range(state.batch_size)]
    for _ in range(max_new_tokens):
        token = backbone.logits(state.hidden).argmax(-1)
        running = running & ~torch.isin(token, ends)
        if not bool(running.any()):
            break
        state = backbone.step(state, backbone.embed(token)[:, None], running[:, None])
        for row, (value, alive) in enumerate(zip(token.tolist(), running.tolist())):
            if alive and value != end_id:
                rows[row].append(value)
        done |= running & (token == end_id)
        running = running & (token != end_id)
    if not bool(done.all()):
        state = backbone.rollback(state, start, ~done)
    return state, [row if there else [] for row, there in zip(rows, done.tolist())]
