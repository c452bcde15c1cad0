"""Scores of given transcripts: one ``step`` over the target tokens; gradients flow if asked for."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from espnet_latentasr.backbone.base import Backbone, State


def teacher_force(
    backbone: Backbone, state: State, targets: Sequence[Sequence[int]]
) -> tuple[Tensor, Tensor, Tensor]:
    """Predict every target token from the tokens before it.  Consumes ``state``.

    Args:
        targets: one non-empty list of token ids per row, end token included.

    Returns:
        logits (M, V), targets (M,), row index (M,), with M the number of target tokens of all rows.
        The first token of a row is predicted by ``state.hidden``.
    """
    device = state.mask.device
    lengths = torch.tensor([len(ids) for ids in targets], device=device)
    longest = int(lengths.max())
    ids = torch.zeros(len(targets), longest, dtype=torch.long)
    for row, tokens in enumerate(targets):
        ids[row, : len(tokens)] = torch.tensor(tokens)
    ids = ids.to(device)
    column = torch.arange(longest, device=device)
    wanted = column[None] < lengths[:, None]
    if longest > 1:
        # The last target of a row is predicted, never read.
        read = column[None, : longest - 1] < (lengths - 1)[:, None]
        trail = backbone.step(state, backbone.embed(ids[:, :-1]), read).trail
    else:
        trail = state.trail[:, -1:]
    rows = torch.arange(len(targets), device=device)[:, None].expand_as(wanted)
    return backbone.logits(trail[wanted]), ids[wanted], rows[wanted]
