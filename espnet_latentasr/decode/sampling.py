"""Samples from the recogniser over ``step``: a state in, token ids out; knows neither text nor audio.

Every sample has a seed of its own and draws one uniform number per token, which picks the token by the
inverse of the distribution function (tokens in id order).  So a sample does not depend on the other rows
of its batch, on their number, nor on when they end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from espnet_latentasr.backbone.base import Backbone, State
from espnet_latentasr.decode.search import Hypothesis, reachable
from espnet_latentasr.errors import ConfigError


@dataclass(frozen=True)
class SamplingRule:
    """What is drawn from: softmax(logits / temperature), cut and renormalised.

    ``top_p``: the smallest set of most probable tokens with at least this mass (1: all).
    ``epsilon``: only tokens of at least this probability (0: all); the best one always stays.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    epsilon: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.temperature < float("inf"):
            raise ConfigError(f"temperature: {self.temperature!r}, a number above 0 expected")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p: {self.top_p!r} is outside (0, 1]")
        if not 0 <= self.epsilon < 1:
            raise ConfigError(f"epsilon: {self.epsilon!r} is outside [0, 1)")


def draw_seed(seed: int, utt_id: str, index: int) -> int:
    """Seed of an utterance's sample; neighbouring utterances and samples share nothing."""
    digest = hashlib.sha256(f"{seed}\0{utt_id}\0{index}".encode()).digest()
    return int.from_bytes(digest[:8], "big")


def distribution(logits: Tensor, rule: SamplingRule) -> Tensor:
    """Logits (M, V) -> probabilities (M, V) float64 that a sample is drawn from.

    The cuts follow one another as in the model library: ``top_p`` first, ``epsilon`` on what is left.
    """
    probabilities = (logits.double() / rule.temperature).softmax(-1)
    if rule.top_p < 1:
        ordered, order = probabilities.sort(dim=-1, descending=True, stable=True)
        kept = ordered.cumsum(-1) - ordered < rule.top_p
        kept[:, 0] = True
        keep = torch.zeros_like(kept).scatter(-1, order, kept)
        probabilities = probabilities.where(keep, 0.0)
        probabilities = probabilities / probabilities.sum(-1, keepdim=True)
    if rule.epsilon > 0:
        keep = probabilities >= rule.epsilon
        keep |= probabilities == probabilities.amax(-1, keepdim=True)
        probabilities = probabilities.where(keep, 0.0)
        probabilities = probabilities / probabilities.sum(-1, keepdim=True)
    return probabilities


def pick(probabilities: Tensor, uniforms: Tensor) -> Tensor:
    """Invert the distribution function: (M, V) probabilities, (M,) in [0, 1) -> (M,) token ids."""
    cumulative = probabilities.cumsum(-1)
    cumulative = cumulative / cumulative[:, -1:]
    return torch.searchsorted(cumulative, uniforms[:, None], right=True)[:, 0]


@torch.no_grad()
def sample(
    backbone: Backbone,
    state: State,
    max_new_tokens: Sequence[int],
    seeds: Sequence[Sequence[int]],
    rule: SamplingRule,
    max_rows: int = 64,
) -> list[list[Hypothesis]]:
    """Draw hypotheses from copies of ``state``, which stays valid.

    Args:
        max_new_tokens: one cap per row of ``state``.
        seeds: per row of ``state``, one seed for each sample wanted.
        max_rows: most rows decoded at a time; bounds the memory, changes no result.

    Returns:
        Per row of ``state`` its samples, in the order of the seeds.  ``log_probability`` is the
        recogniser's own (temperature 1, nothing cut but what it never writes), the end token included.
    """
    if max_rows < 1:
        raise ConfigError(f"max_rows: {max_rows}, at least 1 expected")
    max_new_tokens = reachable(backbone, state, max_new_tokens)
    jobs = [(row, seed) for row, group in enumerate(seeds) for seed in group]
    found: list[Hypothesis] = []
    for start in range(0, len(jobs), max_rows):
        rows, picked = zip(*jobs[start : start + max_rows])
        caps = [max_new_tokens[row] for row in rows]
        forked = backbone.fork(state, torch.tensor(rows, device=state.mask.device))
        found += _sample_rows(backbone, forked, caps, picked, rule)
    samples = iter(found)
    return [[next(samples) for _ in group] for group in seeds]


def _sample_rows(
    backbone: Backbone, state: State, caps: Sequence[int], seeds: Sequence[int], rule: SamplingRule
) -> list[Hypothesis]:
    """One sample per row of ``state``, which is consumed."""
    device = state.mask.device
    longest = max(caps)
    uniforms = np.zeros((len(caps), longest))
    for row, (cap, seed) in enumerate(zip(caps, seeds)):
        uniforms[row, :cap] = np.random.default_rng(seed).random(cap)
    draws, limits = torch.from_numpy(uniforms).to(device), torch.tensor(caps, device=device)
    ends = torch.tensor(backbone.end_ids, device=device)
    chosen = torch.full((len(caps), longest), -1, device=device)
    total = torch.zeros(len(caps), dtype=torch.float64, device=device)
    ended = torch.zeros(len(caps), dtype=torch.bool, device=device)
    rows = torch.arange(len(caps), device=device)  # which sample each row of the state is
    running = limits > 0
    for count in range(1, longest + 1):
        if not bool(running.any()):
            break
        if 2 * int(running.sum()) <= len(rows):
            # Half of the rows are done: go on with the others alone.
            state = backbone.fork(state, running.nonzero()[:, 0])
            rows, running = rows[running], running[running]
        logits = backbone.suppress(backbone.logits(state.hidden), count == 1)
        token = pick(distribution(logits, rule), draws[rows, count - 1])
        score = logits.log_softmax(-1).gather(1, token[:, None])[:, 0]
        total[rows] += torch.where(running, score.double(), 0.0)
        chosen[rows, count - 1] = torch.where(running, token, -1)
        ended[rows] |= running & torch.isin(token, ends)
        running = running & ~ended[rows] & (limits[rows] > count)
        if bool(running.any()):
            state = backbone.step(state, backbone.embed(token)[:, None], running[:, None])
    end_ids = set(backbone.end_ids)
    return [
        Hypothesis(tuple(t for t in row if t >= 0 and t not in end_ids), score, not done)
        for row, score, done in zip(chosen.tolist(), total.tolist(), ended.tolist())
    ]
