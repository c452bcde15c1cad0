"""Targets of the value head (Eq. 4) and the training-time random choices, as pure functions."""

from __future__ import annotations

import torch
from torch import Tensor


def gain_target(
    accuracy: Tensor,
    base_accuracy: Tensor,
    cross_entropy: Tensor,
    base_cross_entropy: Tensor,
    *,
    alpha: float = 0.9,
    gain: float = 3.0,
    fallback_gain: float = 0.5,
    fallback_clip: float = 2.0,
) -> Tensor:
    """y (B,) from teacher-forced accuracy with latents against the frozen recogniser's (Eq. 4).

    y = alpha tanh(gain (acc - acc_base)); where both accuracies are zero the accuracy says nothing and
    y = alpha tanh(fallback_gain clamp(CE_base - CE, -clip, clip)).
    """
    target = alpha * torch.tanh(gain * (accuracy - base_accuracy))
    difference = (base_cross_entropy - cross_entropy).clamp(-fallback_clip, fallback_clip)
    fallback = alpha * torch.tanh(fallback_gain * difference)
    return torch.where((accuracy == 0) & (base_accuracy == 0), fallback, target)


def flip_negative(
    target: Tensor, prob: float, unit: str, generator: torch.Generator | None = None
) -> Tensor:
    """With probability ``prob`` per minibatch (or per utterance, a row of ``target``): y <- -|y|."""
    shape = (1,) if unit == "minibatch" else (len(target), *[1] * (target.dim() - 1))
    draw = torch.rand(shape, generator=generator).to(target.device)
    return torch.where(draw < prob, -target.abs(), target)


def draw_depth(
    batch: int, steps: int, kind: str, drop: float, generator: torch.Generator | None = None
) -> Tensor:
    """Number of latent steps (B,) each utterance takes in training.

    ``full`` and ``every``: N; ``sampled``: uniform over 1..N.  Either way the whole loop is dropped
    (0 steps) with probability ``drop``.
    """
    if kind == "sampled":
        depth = torch.randint(1, steps + 1, (batch,), generator=generator)
    else:
        depth = torch.full((batch,), steps)
    dropped = torch.rand(batch, generator=generator) < drop
    return torch.where(dropped, 0, depth)


def anchor_noise(
    hidden: Tensor, std: float, relative: bool, generator: torch.Generator | None = None
) -> Tensor:
    """Gaussian noise for the initial state (B, D); ``relative``: std in units of each state's RMS."""
    noise = torch.randn(hidden.shape, generator=generator).to(hidden.device) * std
    if relative:
        noise = noise * hidden.float().pow(2).mean(-1, keepdim=True).sqrt()
    return noise
