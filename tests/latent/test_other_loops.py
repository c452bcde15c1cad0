"""one_shot and released: equal to a literal computation without any cache; depths read off one pass."""

import pytest
import torch
from torch import Tensor

from espnet_latentasr.decode.search import greedy
from espnet_latentasr.latent import halting
from espnet_latentasr.latent.adapter import ConstantAdapter, LatentAdapter, ReleasedAdapter
from espnet_latentasr.latent.loop import think
from espnet_latentasr.latent.other_loops import LOOPS, inject, think_one_shot, think_released
from espnet_latentasr.latent.value_head import ValueHead

STEPS, CAP = 3, 8


@pytest.fixture(scope="module")
def head(tiny_backbone):
    with torch.random.fork_rng():
        torch.manual_seed(2)
        made = ValueHead(tiny_backbone.width)
        torch.nn.init.normal_(made.linear.weight, std=0.1)
    return made


def make_adapter(kind, backbone, steps=STEPS):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        adapter = kind(backbone.anchor("unused"), steps, scale_init=2.0)
        torch.nn.init.normal_(adapter.gate.weight, std=0.3)
        if hasattr(adapter, "step_embedding"):
            torch.nn.init.normal_(adapter.step_embedding)
    return adapter


def read(backbone, prompt, clips, probes, advance=True):
    encoded = backbone.encode(clips)
    with torch.no_grad():
        return backbone.prefill(encoded, [prompt] * len(clips), probes, advance)


def prompt_embeds(backbone, prompt, clip) -> Tensor:
    (audio,) = backbone.encode([clip]).audio
    before, after = torch.tensor(prompt.before), torch.tensor(prompt.after)
    return torch.cat([backbone.embed(before), audio, backbone.embed(after)])


def close(found, expected) -> None:
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=0.0)


@pytest.mark.parametrize("on_halt", ["keep", "discard"])
@torch.no_grad()
def test_released_equals_the_authors_steps_one_by_one(
    tiny_backbone, tiny_prompt, clips, full_forward, head, on_halt
):
    """R: free thoughts after the prompt, thrown away; the deltas are injected into a fresh sequence."""
    backbone, adapter = tiny_backbone, make_adapter(ReleasedAdapter, tiny_backbone)
    theta = torch.tensor([[-2.0] * 4, [2.0] + [-2.0] * 3, [-2.0, -2.0, 2.0, -2.0], [-2.0, 2.0, 0, 0]])
    states = read(backbone, tiny_prompt, clips[:4], None)
    (*_, state), thoughts = think_released(
        backbone,
        states,
        adapter,
        head,
        lambda value, step: value >= theta[:, step],
        advance=True,
        on_halt=on_halt,
    )
    for row in range(4):
        prompt = prompt_embeds(backbone, tiny_prompt, clips[row])
        hidden = full_forward(prompt, range(len(prompt)))[-1]
        thought = adapter.initial_projection(hidden / hidden.norm())
        values, updates, chain = [torch.tanh(head.linear(thought))[0]], [], []
        if values[0] >= theta[row, 0]:
            for step in range(STEPS):
                centred = thought - thought.mean()
                plain = centred / (thought.var(unbiased=False) + 1e-5).sqrt()
                chain.append(plain + adapter.step_projection.weight @ adapter.step_embedding[step])
                embeds = torch.cat([prompt, torch.stack(chain)])
                thought = full_forward(embeds, range(len(embeds)))[-1]
                u = adapter.delta_projection.weight @ thought + adapter.delta_projection.bias
                delta = adapter.scales()[step] * u / (u.norm() + 1e-6)
                both = torch.cat([adapter.anchor, delta])
                gate = torch.sigmoid(adapter.gate.weight @ both + adapter.gate.bias)
                values.append(torch.tanh(head.linear(thought))[0])
                updates.append(gate * delta)
                if values[-1] < theta[row, step + 1]:
                    if on_halt == "discard":
                        updates.pop()
                    break
        assert thoughts.kept[row] == len(updates)
        for step, value in enumerate(values):
            close(thoughts.values[row, step], value)
        latents = [adapter.anchor + update for update in updates]
        embeds = torch.cat([prompt, *[latent[None] for latent in latents]])
        close(state.hidden[row], full_forward(embeds, range(len(embeds)))[-1])
        assert state.position[row] == len(embeds)
    if on_halt == "keep":
        assert thoughts.kept.tolist() == [3, 0, 2, 1]


@pytest.mark.parametrize("advance", [True, False])
@torch.no_grad()
def test_one_shot_equals_a_forward_without_cache(
    tiny_backbone, tiny_prompt, clips, full_forward, head, advance
):
    adapter = make_adapter(LatentAdapter, tiny_backbone)
    probed = read(tiny_backbone, tiny_prompt, clips[:2], adapter.probes(1), advance)
    depth = torch.tensor([3, 1])
    (*_, state), thoughts = think_one_shot(
        tiny_backbone, probed, adapter, head, halting.fixed(depth), advance=advance
    )
    for row in range(2):
        prompt = prompt_embeds(tiny_backbone, tiny_prompt, clips[row])
        length = len(prompt)
        at = [*range(length), length if advance else length - 1]
        hidden = full_forward(torch.cat([prompt, adapter.anchor[None]]), at)[-1]
        latents = [
            adapter.embedding(adapter.update(hidden[None], step)[0])
            for step in range(1, int(depth[row]) + 1)
        ]
        new = range(length, length + len(latents)) if advance else [length - 1] * len(latents)
        expected = full_forward(torch.cat([prompt, *latents]), [*range(length), *new])[-1]
        close(state.hidden[row], expected)
    assert thoughts.kept.tolist() == [3, 1]


@torch.no_grad()
def test_one_step_needs_no_loop(tiny_backbone, tiny_prompt, clips, head):
    """With N = 1 the one-shot control is the paper's loop."""
    adapter = make_adapter(LatentAdapter, tiny_backbone, steps=1)
    results = []
    for loop in (think, think_one_shot):
        probed = read(tiny_backbone, tiny_prompt, clips[:3], adapter.probes(1))
        (*_, state), thoughts = loop(
            tiny_backbone, probed, adapter, head, halting.always, advance=True
        )
        results.append((state.hidden, thoughts.values))
    close(results[0], results[1])


@pytest.mark.parametrize(
    "loop, kind",
    [
        ("paper", LatentAdapter),
        ("paper", ConstantAdapter),
        ("one_shot", LatentAdapter),
        ("one_shot", ConstantAdapter),
        ("released", ReleasedAdapter),
    ],
)
@torch.no_grad()
def test_stages_are_the_depths(tiny_backbone, tiny_prompt, clips, head, loop, kind):
    """Branching the stages of one full loop gives what a loop of each fixed depth gives."""
    adapter = make_adapter(kind, tiny_backbone)
    count = {"paper": STEPS, "one_shot": 1, "released": 0}[loop]

    def run(policy):
        probed = read(tiny_backbone, tiny_prompt, clips[:3], adapter.probes(count))
        return LOOPS[loop](
            tiny_backbone, probed, adapter, head, policy, advance=True, on_halt="keep"
        )[0]

    stages = run(halting.always)
    assert len(stages) == STEPS + 1
    together = greedy(tiny_backbone, tiny_backbone.branch(stages), [CAP] * 3 * (STEPS + 1))
    for depth in range(STEPS + 1):
        alone = greedy(tiny_backbone, run(halting.fixed(depth))[-1], [CAP] * 3)
        for one, other in zip(alone, together[3 * depth : 3 * depth + 3]):
            assert one.tokens == other.tokens
            assert one.log_probability == pytest.approx(other.log_probability, abs=1e-4)


@torch.no_grad()
def test_injected_latents_give_the_loops_own_state(tiny_backbone, tiny_prompt, clips, head):
    adapter = make_adapter(LatentAdapter, tiny_backbone)
    probed = read(tiny_backbone, tiny_prompt, clips[:4], adapter.probes(STEPS))
    depth = torch.tensor([3, 0, 2, 1])
    stages, thoughts = think(
        tiny_backbone, probed, adapter, head, halting.fixed(depth), advance=True
    )
    hidden = stages[-1].hidden.clone()
    start = tiny_backbone.rollback(stages[-1], stages[0])
    latents = adapter.embedding(thoughts.updates)
    close(inject(tiny_backbone, start, latents, depth, True)[-1].hidden, hidden)


@pytest.mark.parametrize("on_halt", ["keep", "discard"])
@torch.no_grad()
def test_a_depth_read_off_all_values_is_the_loops_own(
    tiny_backbone, tiny_prompt, clips, head, on_halt
):
    adapter = make_adapter(LatentAdapter, tiny_backbone)
    probed = read(tiny_backbone, tiny_prompt, clips, adapter.probes(STEPS))
    _, whole = think(tiny_backbone, probed, adapter, head, halting.always, advance=True)
    seen = set()
    for theta in whole.values.flatten().unique().tolist():
        probed = read(tiny_backbone, tiny_prompt, clips, adapter.probes(STEPS))
        policy = halting.threshold(theta + 1e-6)
        _, own = think(
            tiny_backbone, probed, adapter, head, policy, advance=True, on_halt=on_halt
        )
        kept, entered = halting.chosen_depth(whole.values, policy, on_halt)
        assert torch.equal(kept, own.kept) and torch.equal(entered, own.entered)
        seen |= set(kept.tolist())
    assert len(seen) > 2


def test_constants_see_no_input():
    adapter = ConstantAdapter(torch.ones(8), 2)
    one, _ = adapter.update(torch.zeros(3, 8), 1)
    two, _ = adapter.update(torch.randn(3, 8, generator=torch.Generator().manual_seed(0)), 1)
    assert torch.equal(one, two) and one.abs().sum() > 0


def test_the_mean_follows_the_updates_that_were_made():
    adapter = LatentAdapter(torch.zeros(2), 2)
    updates = torch.tensor([[[1.0, 2.0], [9.0, 9.0]], [[3.0, 4.0], [0.0, 0.0]]])
    made = torch.tensor([[True, False], [True, False]])
    adapter.observe(updates, made)
    # Decay 0.9 from zero: a tenth of the mean of the first step; the second step was never made.
    torch.testing.assert_close(adapter.mean_update, torch.tensor([[0.2, 0.3], [0.0, 0.0]]))
