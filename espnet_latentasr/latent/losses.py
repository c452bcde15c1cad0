"""The training losses (Eqs. 5, 6) as pure functions of tensors.

Shapes: B batch, N latent steps, L targets, D width, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def token_scores(logits: Tensor, targets: Tensor, rows: Tensor, batch: int) -> tuple[Tensor, Tensor]:
    """Per-utterance mean cross-entropy and top-1 accuracy of teacher-forced targets.

    Args:
        logits: (M, V), one row per target token of the whole batch.
        targets: (M,) token ids.
        rows: (M,) utterance index of each target.
        batch: B; every utterance needs at least one target.

    Returns:
        (B,) cross-entropy in nats per token, (B,) accuracy in [0, 1].
    """
    nll = functional.cross_entropy(logits, targets, reduction="none")
    hit = (logits.argmax(-1) == targets).float()
    zeros = torch.zeros(batch, device=logits.device)
    count = zeros.index_add(0, rows, torch.ones_like(nll))
    return zeros.index_add(0, rows, nll) / count, zeros.index_add(0, rows, hit) / count


def cycle_loss(states: Tensor, made: Tensor, beta: float) -> Tensor:
    """Trajectory regulariser (Eq. 6), averaged over rows that took at least one step.

    L = beta/K sum_k |h_k - h_0|^2 + (1 - beta)/(K - 1) sum_k |h_{k+1} - h_k|^2 with K the steps of the
    row; K = 1 has the first term only.  Squares are summed over D, so the weight depends on the width.

    Args:
        states: (B, N + 1, D), made: (B, N + 1) bool (index 0 is h_0).
    """
    used = made[:, 1:].float()
    steps = used.sum(1)
    anchor = ((states[:, 1:] - states[:, :1]) ** 2).sum(-1) * used
    jump = ((states[:, 2:] - states[:, 1:-1]) ** 2).sum(-1) * used[:, 1:]
    per_row = beta * anchor.sum(1) / steps.clamp(min=1)
    per_row = per_row + (1 - beta) * jump.sum(1) / (steps - 1).clamp(min=1)
    return per_row.sum() / (steps > 0).sum().clamp(min=1)


def value_loss(values: Tensor, targets: Tensor, used: Tensor) -> Tensor:
    """Mean squared error of v (B, N + 1) against targets of the same shape, over ``used`` entries."""
    weight = used.float()
    return (((values - targets) ** 2) * weight).sum() / weight.sum().clamp(min=1)


def cycle_weight(weight: float, decay: str, progress: float) -> float:
    """w_cyc(t): ``linear`` falls to zero at the end of training; ``progress`` is in [0, 1]."""
    return weight * (1.0 - progress) if decay == "linear" else weight
