"""Loops beside the paper's, with the same call: ``one_shot`` and the authors' ``released`` one.

    one_shot   all N latents from one hidden state, committed in one forward: the control that tells
               whether iterating matters, at half the cost
    released   what the authors' published adapter was trained for: a chain of free states after the
               prompt, thrown away afterwards; only its deltas are injected.
                   c_0 = InitProj(h_0 / |h_0|), h_0 at the last prompt position;  v_0 = value(c_0)
                   h_k = decoder(LayerNorm(c_{k-1}) + StepProj(e_k));  c_k = h_k (gradient cut)
                   x_k = e_LT + g_k delta_k, delta_k from DeltaProj(h_k);  v_k = value(h_k)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from espnet_latentasr.latent.adapter import Adapter, ReleasedAdapter
from espnet_latentasr.latent.halting import Policy
from espnet_latentasr.latent.loop import Steppable, think
from espnet_latentasr.latent.record import Recorder, Thoughts, initial_state
from espnet_latentasr.latent.value_head import ValueHead


def inject(
    backbone: Steppable, state: Any, latents: Tensor, depth: Tensor, advance: bool
) -> list[Any]:
    """Commit the first ``depth`` (B,) of given latents (B, N, D) in one forward.

    Returns:
        The states after 0, 1, .. max(depth) of them.
    """
    most = int(depth.max())
    if most == 0:
        return [state]
    active = torch.arange(most, device=depth.device)[None] < depth[:, None]
    return backbone.stages(backbone.step(state, latents[:, :most], active, advance))


def think_one_shot(
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
    """All latents from the hidden state at one probe; see ``latent.loop.think``."""
    hidden = probed.hidden.float()
    state = backbone.drop(probed, 1)
    anchor_state = initial_state(hidden, noise)
    value = value_head(anchor_state.detach() if detach_value else anchor_state)
    active = policy(value, 0)
    record = Recorder(anchor_state, value, active)
    if normalize == "all":
        hidden = functional.normalize(hidden, dim=-1)
    value = value_head(hidden.detach() if detach_value else hidden)
    latents = []
    for step in range(1, adapter.steps + 1):
        update, gate = adapter.update(hidden, step)
        onward = active & policy(value, step)
        record.add(active, active if on_halt == "keep" else onward, hidden, value, update, gate)
        latents.append(adapter.embedding(update))
        active = onward
    stages = inject(backbone, state, torch.stack(latents, 1), record.kept, advance)
    return stages, record.thoughts(adapter.steps)


def think_released(
    backbone: Steppable,
    prompted: Any,
    adapter: ReleasedAdapter,
    value_head: ValueHead,
    policy: Policy,
    *,
    advance: bool,
    on_halt: str = "discard",
    normalize: str = "initial",
    noise: Tensor | None = None,
    detach_value: bool = False,
) -> tuple[list[Any], Thoughts]:
    """The authors' loop; ``prompted`` was read without probes; see ``latent.loop.think``."""

    def judge(hidden: Tensor) -> Tensor:
        return value_head(hidden.detach() if detach_value else hidden)

    anchor_state = initial_state(prompted.hidden, noise)
    thought = adapter.initial(anchor_state)
    value = judge(thought)
    active = policy(value, 0)
    record = Recorder(anchor_state, value, active)
    state, latents = prompted, []
    for step in range(1, adapter.steps + 1):
        if not bool(active.any()):
            break
        embeds = adapter.loop_input(thought, step)
        state = backbone.step(state, embeds[:, None], active[:, None], advance)
        hidden = state.hidden.float()
        update, gate = adapter.update(hidden, step)
        value = judge(hidden)
        onward = active & policy(value, step)
        record.add(active, active if on_halt == "keep" else onward, hidden, value, update, gate)
        latents.append(adapter.embedding(update))
        thought, active = hidden.detach(), onward
    if latents:
        prompted = backbone.rollback(state, prompted)
        stages = inject(backbone, prompted, torch.stack(latents, 1), record.kept, advance)
    else:
        stages = [prompted]
    return stages, record.thoughts(adapter.steps)


LOOPS = {"paper": think, "one_shot": think_one_shot, "released": think_released}
