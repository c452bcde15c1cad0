"""The latent loop: think N continuous steps between prompt and transcript. Start reading here.

The prompt has been read with N anchor embeddings e_LT ("probes") appended, one forward.  Their hidden
states give everything the first decision needs: the last one is h_0 (the acoustic anchor, entry gate
v_0), the first one is h_1, since it saw the prompt and one probe only.  Then the probes are forgotten,
and each further step is one forward of at most two positions: commit x_k, probe k+1.

    h_k = hidden at the probe of position k, with x_1..x_{k-1} committed
    x_k = adapter(h_k, k);  v_k = value(h_k);  v_k < theta stops the row

Used as it is in training (autograd on, policy = a drawn depth) and in decoding (policy = threshold).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from espnet_latentasr.latent.adapter import LatentAdapter
from espnet_latentasr.latent.halting import Policy
from espnet_latentasr.latent.value_head import ValueHead


class Steppable(Protocol):
    """The two operations of a recogniser the loop needs (see ``backbone.base``)."""

    def step(self, state: Any, embeds: Tensor, active: Tensor, advance: bool) -> Any: ...

    def drop(self, state: Any, count: int) -> Any: ...


@dataclass(frozen=True)
class Thoughts:
    """What the loop did, row by row; entries where ``made`` is False are zeros.

    ``made[:, k]``: state h_k exists (k = 0..N).  ``kept``: K, the latents the transcript sees.
    ``entered``: the entry gate let the row in.
    """

    states: Tensor  # (B, N + 1, D) h_k as used by adapter and value head, float32
    values: Tensor  # (B, N + 1) v_k
    made: Tensor  # (B, N + 1) bool
    updates: Tensor  # (B, N, D) g_k delta_k
    gates: Tensor  # (B, N) mean of g_k over channels
    kept: Tensor  # (B,) int64
    entered: Tensor  # (B,) bool


def initial_state(hidden: Tensor, noise: Tensor | None = None) -> Tensor:
    """h_0 (B, D), L2-normalised; ``noise`` (B, D) is added before, in units of the raw state."""
    hidden = hidden.float()
    return functional.normalize(hidden if noise is None else hidden + noise, dim=-1)


def think(
    backbone: Steppable,
    probed: Any,
    adapter: LatentAdapter,
    value_head: ValueHead,
    policy: Policy,
    *,
    advance: bool,
    on_halt: str = "keep",
    normalize: str = "initial",
    noise: Tensor | None = None,
    detach_value: bool = False,
) -> tuple[Any, Thoughts]:
    """Run the loop for a batch; every row stops on its own.

    Args:
        probed: the state after reading the prompt with ``adapter.probes()`` appended.
        advance: latents take new position numbers (True) or all hold the last prompt's (False).
        on_halt: when v_k stops a row after step k, ``keep`` x_k or ``discard`` it.
        normalize: L2-normalise h_0 only (``initial``) or every h_k (``all``).
        noise: (B, D) added to the raw h_0 in training.
        detach_value: keep the value loss from shaping the states.

    Returns:
        The state to read the transcript from, and the record.  A row that the entry gate refuses has
        exactly the state it would have without any latent.
    """
    steps = adapter.steps
    probe_states = probed.trail[:, 1:].float()
    state = backbone.drop(probed, steps)

    def judge(hidden: Tensor) -> Tensor:
        return value_head(hidden.detach() if detach_value else hidden)

    def seen(hidden: Tensor) -> Tensor:
        return functional.normalize(hidden, dim=-1) if normalize == "all" else hidden

    anchor_state = initial_state(probe_states[:, -1], noise)
    states, values = [anchor_state], [judge(anchor_state)]
    active = entered = policy(values[0], 0)
    made, updates, gates = [torch.ones_like(active)], [], []
    kept = torch.zeros_like(active, dtype=torch.long)
    hidden = seen(probe_states[:, 0])
    probe = adapter.anchor.expand_as(hidden)
    for step in range(1, steps + 1):
        if not bool(active.any()):
            break
        update, gate = adapter.update(hidden, step)
        value = judge(hidden)
        onward = active & policy(value, step)
        commit = active if on_halt == "keep" else onward
        states.append(torch.where(active[:, None], hidden, 0.0))
        values.append(torch.where(active, value, 0.0))
        updates.append(torch.where(active[:, None], update, 0.0))
        gates.append(torch.where(active, gate.mean(-1), 0.0))
        made.append(active)
        kept = kept + commit.long()
        latent = adapter.embedding(update)
        if step < steps and bool(onward.any()):
            embeds = torch.stack([latent, probe], 1)
            state = backbone.step(state, embeds, torch.stack([commit, onward], 1), advance)
            hidden = seen(state.hidden.float())
            state = backbone.drop(state, 1)
        elif bool(commit.any()):
            state = backbone.step(state, latent[:, None], commit[:, None], advance)
        active = onward
    return state, _thoughts(states, values, made, updates, gates, kept, entered, steps)


def _thoughts(states, values, made, updates, gates, kept, entered, steps: int) -> Thoughts:
    def padded(parts: list[Tensor], length: int, like: Tensor) -> Tensor:
        missing = [torch.zeros_like(like)] * (length - len(parts))
        return torch.stack([*parts, *missing], 1)

    return Thoughts(
        states=padded(states, steps + 1, states[0]),
        values=padded(values, steps + 1, values[0]),
        made=padded(made, steps + 1, made[0]),
        updates=padded(updates, steps, states[0]),
        gates=padded(gates, steps, values[0]),
        kept=kept,
        entered=entered,
    )
