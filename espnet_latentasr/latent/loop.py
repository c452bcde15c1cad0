"""The latent loop: think N continuous steps between prompt and transcript. Start reading here.

The prompt has been read with N anchor embeddings e_LT ("probes") appended, one forward.  Their hidden
states give everything the first decision needs: the last one is h_0 (the acoustic anchor, entry gate
v_0), the first one is h_1, since it saw the prompt and one probe only.  Then the probes are forgotten,
and each further step is one forward of at most two positions: commit x_k, probe k+1.

    h_k = hidden at the probe of position k, with x_1..x_{k-1} committed
    x_k = adapter(h_k, k);  v_k = value(h_k);  v_k < theta stops the row

Used as it is in training (autograd on, policy = a drawn depth) and in decoding (policy = threshold).
The other loops (``latent.other_loops``) have the same call.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from espnet_latentasr.latent.adapter import Adapter
from espnet_latentasr.latent.halting import Policy
from espnet_latentasr.latent.record import Recorder, Thoughts, initial_state
from espnet_latentasr.latent.value_head import ValueHead


class Steppable(Protocol):
    """The operations of a recogniser the loops need (see ``backbone.base``)."""

    def step(self, state: Any, embeds: Tensor, active: Tensor, advance: bool) -> Any: ...

    def drop(self, state: Any, count: int) -> Any: ...

    def rollback(self, state: Any, to: Any) -> Any: ...

    def stages(self, state: Any) -> list[Any]: ...


def think(
    backbone: Steppable,
    probed: Any,
    adapter: Adapter,
    value_head: ValueHead,
    policy: Policy,
    *,
    advance: bool,
    on_halt: str = "keep",
    normalize: str = "initial",
    noise: Tensor | None = None,
    detach_value: bool = False,
) -> tuple[list[Any], Thoughts]:
    """Run the loop for a batch; every row stops on its own.

    Args:
        probed: the state after reading the prompt with ``adapter.probes()`` appended.
        advance: latents take new position numbers (True) or all hold the last prompt's (False).
        on_halt: when v_k stops a row after step k, ``keep`` x_k or ``discard`` it.
        normalize: L2-normalise h_0 only (``initial``) or every h_k (``all``).
        noise: (B, D) added to the raw h_0 in training.
        detach_value: keep the value loss from shaping the states.

    Returns:
        The states after the prompt and after each commit, and the record.  The transcript is read
        from the last state; the k-th has at most k latents per row.  A row that the entry gate
        refuses has exactly the state it would have without any latent.
    """
    steps = adapter.steps
    probe_states = probed.trail[:, 1:].float()
    state = backbone.drop(probed, steps)
    stages = [state]

    def judge(hidden: Tensor) -> Tensor:
        return value_head(hidden.detach() if detach_value else hidden)

    def seen(hidden: Tensor) -> Tensor:
        return functional.normalize(hidden, dim=-1) if normalize == "all" else hidden

    anchor_state = initial_state(probe_states[:, -1], noise)
    value = judge(anchor_state)
    active = policy(value, 0)
    record = Recorder(anchor_state, value, active)
    hidden = seen(probe_states[:, 0])
    probe = adapter.anchor.expand_as(hidden)
    for step in range(1, steps + 1):
        if not bool(active.any()):
            break
        update, gate = adapter.update(hidden, step)
        value = judge(hidden)
        onward = active & policy(value, step)
        commit = active if on_halt == "keep" else onward
        record.add(active, commit, hidden, value, update, gate)
        latent = adapter.embedding(update)
        if step < steps and bool(onward.any()):
            embeds = torch.stack([latent, probe], 1)
            state = backbone.step(state, embeds, torch.stack([commit, onward], 1), advance)
            hidden = seen(state.hidden.float())
            state = backbone.drop(state, 1)
            stages.append(state)
        elif bool(commit.any()):
            state = backbone.step(state, latent[:, None], commit[:, None], advance)
            stages.append(state)
        active = onward
    return stages, record.thoughts(steps)
