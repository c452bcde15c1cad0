"""Exact quantities of CTC given log-posteriors, in float64: knows frames and labels, no text, no file.

P(y|x) sums over all alignments of y; ``gamma_t(k|y)`` is the posterior probability that frame t carries
label k given y; the Viterbi alignment is the best single one.  A hypothesis that needs more frames than
there are has log-probability -inf.  Only torch's own kernels are used, never cuDNN's (float64).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from espnet_latentasr.errors import DataError
from espnet_latentasr.rescoring.ctc_paths import check_tokens

Hypotheses = Sequence[Sequence[int]]


def _padded(hyps: Hypotheses, blank: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return targets (G, L) and their lengths (G,); what is beyond a length is never read."""
    lengths = torch.tensor([len(hyp) for hyp in hyps], device=device)
    targets = torch.full((len(hyps), max(1, int(lengths.max()))), 1 - min(blank, 1), device=device)
    for row, hyp in zip(targets, hyps):
        row[: len(hyp)] = torch.tensor(list(hyp), dtype=torch.long, device=device)
    return targets, lengths


def log_probability(lp: torch.Tensor, hyps: Hypotheses, *, blank: int = 0) -> torch.Tensor:
    """Return log P(y|x) of all hypotheses at once: log-posteriors (T, V) -> (G,) float64.

    Differentiable, but the gradient with respect to ``lp`` is torch's, gamma - p: right once it has
    gone through the log-softmax that made ``lp``, and not gamma itself (see `alignment_posteriors`).

    Raises:
        DataError: a token is the blank or no label.
    """
    check_tokens(hyps, lp.shape[1], blank)
    if not len(hyps):
        return lp.new_zeros(0, dtype=torch.float64)
    return -_negative(lp.double().unsqueeze(1).expand(-1, len(hyps), -1), hyps, blank)


def _negative(lp: torch.Tensor, hyps: Hypotheses, blank: int) -> torch.Tensor:
    """Return -log P(y|x), inf where impossible: (T, G, V), possibly expanded -> (G,)."""
    targets, lengths = _padded(hyps, blank, lp.device)
    frames = torch.full_like(lengths, lp.shape[0])
    # zero_infinity would turn an impossible hypothesis into the best one.
    return functional.ctc_loss(lp, targets, frames, lengths, blank, "none", zero_infinity=False)


def alignment_posteriors(
    lp: torch.Tensor, hyps: Hypotheses, *, blank: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return gamma (G, T, U) over the labels (U,) that occur: the blank and the hypotheses' tokens.

    gamma = d log P(y|x) / d lp, but the backward pass of `ctc_loss` is written for log-softmax inputs
    and returns exp(lp) - gamma as the gradient of -log P; hence gamma = exp(lp) - that gradient, which
    also holds when labels are left out.  Rows sum to one.

    Raises:
        DataError: a hypothesis is impossible in so few frames.
    """
    check_tokens(hyps, lp.shape[1], blank)
    labels = torch.tensor(sorted({blank}.union(*map(set, hyps))), device=lp.device)
    place = {label: index for index, label in enumerate(labels.tolist())}
    small = [[place[token] for token in hyp] for hyp in hyps]
    # A label of probability 0 stays impossible, but exp and gradient of -inf would be NaN.
    used = lp.detach().double()[:, labels].clamp(min=-1e30)
    with torch.enable_grad():
        each = used.unsqueeze(1).repeat(1, len(hyps), 1).requires_grad_()
        negative = _negative(each, small, place[blank])
        possible = negative.detach() < 1e29
        if not bool(possible.all()):
            worst = int((~possible).nonzero()[0])
            raise DataError(
                f"hypothesis {worst}: {len(hyps[worst])} tokens are impossible in {lp.shape[0]} frames "
                "(repeated tokens need a blank between them), so it has no alignment"
            )
        (gradient,) = torch.autograd.grad(negative.sum(), each)
    return (each.detach().exp() - gradient).transpose(0, 1), labels


def alignment_posterior(lp: torch.Tensor, hyp: Sequence[int], *, blank: int = 0) -> torch.Tensor:
    """Return gamma (T, V) of one hypothesis; 0 off its tokens and the blank."""
    gamma, labels = alignment_posteriors(lp, [hyp], blank=blank)
    full = torch.zeros(lp.shape, dtype=torch.float64, device=lp.device)
    full[:, labels] = gamma[0]
    return full


def viterbi(lp: torch.Tensor, hyps: Hypotheses, *, blank: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return score (G,) and labels (G, T) of the best single alignment of each hypothesis.

    Raises:
        DataError: a hypothesis is impossible in so few frames.
    """
    check_tokens(hyps, lp.shape[1], blank)
    lp = lp.detach().double()
    targets, lengths = _padded(hyps, blank, lp.device)
    # States blank, y_1, blank, y_2, ..., blank; a token may be entered from the token before it
    # when the two differ.
    states = torch.full((len(hyps), 2 * targets.shape[1] + 1), blank, device=lp.device)
    states[:, 1::2] = targets
    skip = torch.zeros_like(states, dtype=torch.bool)
    skip[:, 3::2] = targets[:, 1:] != targets[:, :-1]
    score = torch.full(states.shape, -torch.inf, dtype=torch.float64, device=lp.device)
    score[:, :2] = lp[0][states[:, :2]]
    steps = []
    for row in lp[1:]:
        one = functional.pad(score, (1, 0), value=-torch.inf)[:, :-1]
        two = functional.pad(score, (2, 0), value=-torch.inf)[:, :-2].masked_fill(~skip, -torch.inf)
        score, step = torch.stack([score, one, two]).max(0)
        score = score + row[states]
        steps.append(step)
    rows = torch.arange(len(hyps), device=lp.device)
    ends = torch.stack([2 * lengths, (2 * lengths - 1).clamp(min=0)])
    best, which = score[rows, ends].max(0)
    if bool(torch.isinf(best).any()):
        worst = int(torch.isinf(best).nonzero()[0])
        raise DataError(
            f"hypothesis {worst}: {len(hyps[worst])} tokens are impossible in {lp.shape[0]} frames"
        )
    state = ends[which, rows]
    path = [states[rows, state]]
    for step in reversed(steps):
        state = state - step[rows, state]
        path.append(states[rows, state])
    return best, torch.stack(path[::-1], 1)
