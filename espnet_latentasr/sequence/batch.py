"""Exact CTC log-probabilities of the candidates of a whole batch in one call; torch only, float64."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

Tokens = Sequence[int]


def frames_needed(tokens: Tokens) -> int:
    """Fewest frames that can hold a token sequence: repeated tokens need a blank between them."""
    return len(tokens) + sum(a == b for a, b in zip(tokens, tokens[1:]))


def log_probabilities(
    lp: Tensor, frames: Tensor, owners: Sequence[int], hyps: Sequence[Tokens], *, blank: int = 0
) -> Tensor:
    """Return log P(y_n|x) of hypotheses that belong to utterances of a padded batch.

    The value of `rescoring.ctc.log_probability` row by row; the gradient is right once it has gone
    through the log-softmax that made ``lp`` (torch's backward of CTC is written for that).

    Args:
        lp: (B, T, V) log-posteriors after a log-softmax.
        frames: (B,) frames of each utterance; what is beyond is never read.
        owners: the utterance (0..B-1) of each hypothesis (N,).
        hyps: token sequences (N,), each possible in its frames (`frames_needed`).

    Returns:
        (N,) float64.
    """
    if not len(hyps):
        return lp.new_zeros(0, dtype=torch.float64)
    rows = torch.tensor(list(owners), device=lp.device)
    lengths = torch.tensor([len(hyp) for hyp in hyps], device=lp.device)
    targets = torch.full((len(hyps), max(1, int(lengths.max()))), 1 - min(blank, 1))
    for row, hyp in zip(targets, hyps):
        row[: len(hyp)] = torch.tensor(list(hyp), dtype=torch.long)
    each = lp.double()[rows].transpose(0, 1)
    loss = functional.ctc_loss(
        each,
        targets.to(lp.device),
        frames.to(lp.device)[rows],
        lengths,
        blank,
        "none",
        zero_infinity=False,
    )
    return -loss
