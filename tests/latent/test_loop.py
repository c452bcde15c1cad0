"""The loop against a literal recomputation: row by row, whole sequences, no cache, no batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from espnet_latentasr.decode.search import greedy
from espnet_latentasr.latent import halting
from espnet_latentasr.latent.adapter import LatentAdapter
from espnet_latentasr.latent.loop import think
from espnet_latentasr.latent.record import initial_state
from espnet_latentasr.latent.value_head import ValueHead

STEPS, CAP = 4, 10
MODES = [(True, "keep"), (True, "discard"), (False, "keep"), (False, "discard")]


@dataclass(frozen=True)
class Rig:
    """A recogniser with an adapter and a value head that have something to say."""

    backbone: object
    prompt: object
    clips: list
    full_forward: object
    adapter: LatentAdapter
    head: ValueHead

    def read(self, rows, advance: bool, probes: bool = True):
        encoded = self.backbone.encode([self.clips[row] for row in rows])
        given = self.adapter.probes(self.adapter.steps) if probes else None
        with torch.no_grad():
            return self.backbone.prefill(encoded, [self.prompt] * len(rows), given, advance)

    def think(self, rows, policy, advance=True, **options):
        """The state the transcript is read from, and the record."""
        probed = self.read(rows, advance)
        stages, thoughts = think(
            self.backbone, probed, self.adapter, self.head, policy, advance=advance, **options
        )
        return stages[-1], thoughts

    def texts(self, state):
        return [h.tokens for h in greedy(self.backbone, state, [CAP] * state.batch_size)]

    def prompt_embeds(self, row: int) -> Tensor:
        (audio,) = self.backbone.encode([self.clips[row]]).audio
        embed = self.backbone.embed
        before, after = torch.tensor(self.prompt.before), torch.tensor(self.prompt.after)
        return torch.cat([embed(before), audio, embed(after)])

    def parameters(self) -> dict[str, torch.nn.Parameter]:
        named = dict(self.adapter.named_parameters())
        return named | {f"head.{k}": v for k, v in self.head.named_parameters()}


@pytest.fixture(scope="module")
def rig(tiny_backbone, tiny_prompt, clips, full_forward) -> Rig:
    with torch.random.fork_rng():
        torch.manual_seed(4)
        adapter = LatentAdapter(tiny_backbone.anchor("unused"), STEPS, scale_init=2.0)
        torch.nn.init.normal_(adapter.gate.weight, std=0.3)
        torch.nn.init.normal_(adapter.step_embedding)
        head = ValueHead(tiny_backbone.width)
        torch.nn.init.normal_(head.linear.weight, std=0.1)
    return Rig(tiny_backbone, tiny_prompt, clips, full_forward, adapter, head)


@dataclass
class Record:
    """What ``recompute`` found for one row."""

    states: list[Tensor]
    values: list[Tensor]
    updates: list[Tensor]
    latents: list[Tensor]
    hidden: Tensor
    embeds: Tensor
    positions: list[int]


def recompute(rig, row, theta, advance, on_halt, normalize="initial", noise=None) -> Record:
    """The paper's loop as written: every state comes from a forward over the whole sequence.

    ``theta``: this row's threshold of step k = 0..N.
    """
    prompt = rig.prompt_embeds(row)
    length, anchor = len(prompt), rig.adapter.anchor

    def forward(extra: list[Tensor]) -> tuple[Tensor, Tensor, list[int]]:
        new = range(length, length + len(extra)) if advance else [length - 1] * len(extra)
        embeds = torch.cat([prompt, *[e[None] for e in extra]])
        positions = [*range(length), *new]
        return rig.full_forward(embeds, positions)[-1], embeds, positions

    def value(hidden: Tensor) -> Tensor:
        return torch.tanh((rig.head.linear.weight[0] * hidden).sum() + rig.head.linear.bias[0])

    start, _, _ = forward([anchor] * STEPS)
    start = start if noise is None else start + noise
    start = start / start.pow(2).sum().sqrt()
    states, values, updates, latents = [start], [value(start)], [], []
    if values[0] >= theta[0]:
        for step in range(1, STEPS + 1):
            hidden, _, _ = forward([*latents, anchor])
            if normalize == "all":
                hidden = hidden / hidden.pow(2).sum().sqrt()
            update, _ = rig.adapter.update(hidden[None], step)
            states.append(hidden)
            values.append(value(hidden))
            updates.append(update[0])
            latents.append(anchor + update[0])
            if values[-1] < theta[step]:
                if on_halt == "discard":
                    latents.pop()
                break
    return Record(states, values, updates, latents, *forward(latents))


def recomputed_text(rig, record: Record, advance: bool) -> tuple[int, ...]:
    """Greedy search without cache."""
    hidden, embeds, positions = record.hidden, record.embeds, list(record.positions)
    first = len(positions) if advance else len(positions) - len(record.latents)
    tokens: list[int] = []
    for count in range(CAP):
        token = int((rig.backbone.embedding_table @ hidden).argmax())
        if token in rig.backbone.end_ids:
            break
        tokens.append(token)
        embeds = torch.cat([embeds, rig.backbone.embedding_table[token][None]])
        positions.append(first + count)
        hidden = rig.full_forward(embeds, positions)[-1]
    return tuple(tokens)


def close(found, expected) -> None:
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=0.0)


def check(rig, row, state, text, thoughts, record: Record) -> None:
    """One row of a batch equals its recomputation."""
    index, row = row
    count = len(record.states)
    assert thoughts.made[index].tolist() == [True] * count + [False] * (STEPS + 1 - count)
    assert thoughts.kept[index] == len(record.latents)
    assert thoughts.entered[index] == (count > 1)
    for found, parts in (
        (thoughts.states[index], record.states),
        (thoughts.values[index], record.values),
        (thoughts.updates[index], record.updates),
    ):
        for step, part in enumerate(parts):
            close(found[step], part)
        assert (found[len(parts) :] == 0).all()
    close(state.hidden[index], record.hidden)


def random_thresholds(seed: int, batch: int) -> Tensor:
    """(B, N + 1) thresholds: rows stop at entry and in between; the last row never stops."""
    generator = torch.Generator().manual_seed(seed)
    theta = torch.randn(batch, STEPS + 1, generator=generator) * 0.7 - 0.5
    theta[-1] = -2.0
    return theta


def by_step(theta: Tensor) -> halting.Policy:
    """Policy with a threshold (B, N + 1) per row and step."""
    return lambda value, step: value >= theta[:, step]


@pytest.mark.parametrize("advance, on_halt", MODES)
@torch.no_grad()
def test_equals_the_recomputation_whatever_step_each_row_stops_at(rig, advance, on_halt):
    stopped: list[tuple[int, int]] = []
    for seed in (0, 1):
        rows = list(range(len(rig.clips)))
        theta = random_thresholds(seed, len(rows))
        state, thoughts = rig.think(rows, by_step(theta), advance, on_halt=on_halt)
        texts = rig.texts(state)
        for row in rows:
            record = recompute(rig, row, theta[row], advance, on_halt)
            check(rig, (row, row), state, texts[row], thoughts, record)
            assert texts[row] == recomputed_text(rig, record, advance)
            stopped.append((len(record.states) - 1, len(record.latents)))
    expected = {(0, 0), (4, 4)}
    if on_halt == "keep":
        expected |= {(1, 1), (2, 2), (3, 3)}
    else:
        expected |= {(1, 0), (2, 1), (3, 2)}
    assert expected <= set(stopped), f"not every way to stop occurred: {sorted(set(stopped))}"


@torch.no_grad()
def test_equals_the_recomputation_for_one_threshold_per_row(rig):
    rows = list(range(len(rig.clips)))
    _, thoughts = rig.think(rows, halting.always)
    # Between the values that occur: each row has its own, and rows stop at different steps.
    theta = thoughts.values.sort(1).values[:, [0, 1, 2, 3, 4, 1, 2, 3]].diagonal() + 1e-3
    state, thoughts = rig.think(rows, by_step(theta[:, None].expand(-1, STEPS + 1)))
    texts = rig.texts(state)
    for row in rows:
        record = recompute(rig, row, [theta[row]] * (STEPS + 1), True, "keep")
        check(rig, (row, row), state, texts[row], thoughts, record)
        assert texts[row] == recomputed_text(rig, record, True)
    assert len(set(thoughts.kept.tolist())) > 2


@pytest.mark.parametrize("advance", [True, False])
@torch.no_grad()
def test_normalizing_every_state(rig, advance):
    rows = [0, 3, 6]
    state, thoughts = rig.think(rows, halting.fixed(3), advance, normalize="all")
    texts = rig.texts(state)
    norms = thoughts.states.norm(dim=-1)[thoughts.made]
    torch.testing.assert_close(norms, torch.ones_like(norms))
    assert torch.equal(thoughts.kept, torch.tensor([3, 3, 3]))
    for index, row in enumerate(rows):
        record = recompute(rig, row, [-9.0, -9.0, -9.0, 9.0], advance, "keep", "all")
        check(rig, (index, row), state, texts[index], thoughts, record)


@torch.no_grad()
def test_only_the_initial_state_is_normalized_by_default(rig):
    _, thoughts = rig.think([0, 1], halting.always)
    norms = thoughts.states.norm(dim=-1)
    torch.testing.assert_close(norms[:, 0], torch.ones(2))
    assert (norms[:, 1:] > 2).all()


@pytest.mark.parametrize("advance, on_halt", MODES)
@torch.no_grad()
def test_a_row_in_a_batch_equals_the_row_alone(rig, advance, on_halt):
    rows = list(range(len(rig.clips)))
    theta = random_thresholds(0, len(rows))
    together, thoughts = rig.think(rows, by_step(theta), advance, on_halt=on_halt)
    texts = rig.texts(together)
    for row in rows:
        policy = by_step(theta[row : row + 1])
        alone, own = rig.think([row], policy, advance, on_halt=on_halt)
        assert rig.texts(alone)[0] == texts[row]
        assert together.position[row] == alone.position[0]
        for name in ("kept", "entered", "made"):
            assert torch.equal(getattr(own, name)[0], getattr(thoughts, name)[row]), name
        for name in ("states", "values", "updates", "gates"):
            close(getattr(own, name)[0], getattr(thoughts, name)[row])


@pytest.mark.parametrize("policy", [halting.never, halting.threshold(math.inf), halting.fixed(0)])
@pytest.mark.parametrize("advance", [True, False])
@pytest.mark.parametrize("batch", [1, 8])
@torch.no_grad()
def test_no_thinking_is_the_frozen_recogniser(rig, policy, advance, batch):
    rows = list(range(batch))
    state, thoughts = rig.think(rows, policy, advance)
    plain = rig.read(rows, advance, probes=False)
    assert torch.equal(state.position, plain.position)
    assert torch.equal(state.mask, plain.mask)
    close(state.hidden, plain.hidden)
    assert rig.texts(state) == rig.texts(plain)
    assert thoughts.kept.tolist() == [0] * batch and not thoughts.entered.any()
    assert thoughts.made.tolist() == [[True] + [False] * STEPS] * batch


@torch.no_grad()
def test_thinking_changes_texts(rig):
    """Without this, half of this file would prove nothing."""
    rows = list(range(len(rig.clips)))
    plain = rig.texts(rig.read(rows, True, probes=False))
    by_depth = [rig.texts(rig.think(rows, halting.fixed(k))[0]) for k in range(STEPS + 1)]
    assert by_depth[0] == plain
    for one, two in pairwise(by_depth):
        assert sum(a != b for a, b in zip(one, two, strict=True)) > 3


@torch.no_grad()
def test_fixed_depth_per_row(rig):
    depth = torch.tensor([0, 1, 2, 3, 4, 4, 0, 2])
    state, thoughts = rig.think(range(8), halting.fixed(depth))
    assert torch.equal(thoughts.kept, depth)
    assert torch.equal(state.position, rig.read(range(8), True, probes=False).position + depth)
    held, _ = rig.think(range(8), halting.fixed(depth), advance=False)
    assert torch.equal(held.position, rig.read(range(8), False, probes=False).position)


@torch.no_grad()
def test_a_closed_gate_commits_the_anchor_itself(rig):
    adapter = LatentAdapter(rig.backbone.anchor("unused"), STEPS)
    torch.nn.init.constant_(adapter.gate.bias, -1000.0)
    probed = rig.read([0, 1], True)
    (*_, state), thoughts = think(rig.backbone, probed, adapter, rig.head, halting.always, advance=True)
    assert (thoughts.updates == 0).all() and (thoughts.gates == 0).all()
    pauses = rig.backbone.step(
        rig.read([0, 1], True, probes=False),
        adapter.anchor.expand(2, STEPS, -1),
        torch.ones(2, STEPS, dtype=torch.bool),
    )
    close(state.hidden, pauses.hidden)
    assert rig.texts(state) == rig.texts(pauses)


# Cost


class Counting:
    """Passes operations on and writes down how many positions each step has."""

    def __init__(self, backbone) -> None:
        self.backbone, self.lengths, self.rows = backbone, [], []

    def step(self, state, embeds, active, advance=True):
        self.lengths.append(embeds.shape[1])
        self.rows.append(active.tolist())
        return self.backbone.step(state, embeds, active, advance)

    def drop(self, state, count):
        return self.backbone.drop(state, count)


@pytest.mark.parametrize(
    "depths, on_halt, lengths",
    [
        ([4, 4], "keep", [2, 2, 2, 1]),
        ([0, 4], "keep", [2, 2, 2, 1]),
        ([0, 0], "keep", []),
        ([1, 0], "keep", [1]),
        ([1, 2], "keep", [2, 1]),
        ([3, 1], "keep", [2, 2, 1]),
        # A fixed depth stops a row after its last step, which ``discard`` then takes back.
        ([1, 0], "discard", []),
        ([3, 1], "discard", [2, 2]),
    ],
)
@torch.no_grad()
def test_forwards_and_positions(rig, depths, on_halt, lengths):
    counting = Counting(rig.backbone)
    probed = rig.read([0, 1], True)
    policy = halting.fixed(torch.tensor(depths))
    _, thoughts = think(
        counting, probed, rig.adapter, rig.head, policy, advance=True, on_halt=on_halt
    )
    assert counting.lengths == lengths
    kept = depths if on_halt == "keep" else [max(0, depth - 1) for depth in depths]
    assert thoughts.kept.tolist() == kept
    committed = [sum(rows[b][0] for rows in counting.rows) for b in range(2)]
    assert committed == kept


@pytest.mark.parametrize("advance", [True, False])
@torch.no_grad()
def test_a_budget_of_one_step(rig, advance):
    adapter = LatentAdapter(rig.backbone.anchor("unused"), 1, scale_init=2.0)
    counting = Counting(rig.backbone)
    encoded = rig.backbone.encode(rig.clips[:2])
    probed = rig.backbone.prefill(encoded, [rig.prompt] * 2, adapter.probes(adapter.steps), advance)
    (*_, state), thoughts = think(counting, probed, adapter, rig.head, halting.always, advance=advance)
    assert counting.lengths == [1] and thoughts.kept.tolist() == [1, 1]
    # One probe is both the anchor state, normalised, and the first step's state.
    raw = probed.trail[:, 1]
    close(thoughts.states[:, 1], raw)
    close(thoughts.states[:, 0], raw / raw.norm(dim=-1, keepdim=True))
    update, _ = adapter.update(raw, 1)
    plain = rig.read([0, 1], advance, probes=False)
    everyone = torch.ones(2, 1, dtype=torch.bool)
    latent = (adapter.anchor + update)[:, None]
    expected = rig.backbone.step(plain, latent, everyone, advance)
    close(state.hidden, expected.hidden)
    assert torch.equal(state.position, expected.position)


@torch.no_grad()
def test_a_full_run_with_discard_keeps_what_no_value_refused(rig):
    counting = Counting(rig.backbone)
    probed = rig.read([0, 1], True)
    _, thoughts = think(
        counting, probed, rig.adapter, rig.head, halting.always, advance=True, on_halt="discard"
    )
    assert counting.lengths == [2, 2, 2, 1] and thoughts.kept.tolist() == [STEPS, STEPS]


# Gradients


def batch_loss(states, values, logits, updates) -> Tensor:
    """A scalar in which every output of the loop counts; zeros cost nothing."""
    return (
        logits.log_softmax(-1)[:, 7].sum()
        + (values * (values - 0.6)).sum()
        + 0.1 * states.pow(2).sum()
        + updates.sum()
    )


@pytest.mark.parametrize("advance", [True, False])
def test_gradients_equal_those_of_the_recomputation(rig, advance):
    rows = [0, 1, 3, 5]
    depth = [4, 2, 0, 1]
    noise = torch.randn(4, rig.backbone.width, generator=torch.Generator().manual_seed(2))
    parameters = rig.parameters()

    state, thoughts = rig.think(rows, halting.fixed(torch.tensor(depth)), advance, noise=noise)
    logits = rig.backbone.logits(state.hidden)
    loss = batch_loss(thoughts.states, thoughts.values, logits, thoughts.updates)
    found = torch.autograd.grad(loss, list(parameters.values()))

    recomputed = torch.zeros(())
    for index, row in enumerate(rows):
        theta = [-9.0 if step < depth[index] else 9.0 for step in range(STEPS + 1)]
        record = recompute(rig, row, theta, advance, "keep", noise=noise[index])
        assert len(record.latents) == depth[index]
        recomputed = recomputed + batch_loss(
            torch.stack(record.states),
            torch.stack(record.values),
            rig.backbone.logits(record.hidden[None]),
            torch.stack(record.updates) if record.updates else torch.zeros(()),
        )
    expected = torch.autograd.grad(recomputed, list(parameters.values()))

    torch.testing.assert_close(loss.detach(), recomputed.detach(), atol=1e-3, rtol=1e-5)
    for name, one, two in zip(parameters, found, expected, strict=True):
        assert two.abs().max() > 0, f"{name}: no gradient"
        scale = two.abs().max().item()
        torch.testing.assert_close(one / scale, two / scale, atol=1e-5, rtol=0, msg=name)


def test_a_row_that_skips_the_loop_has_no_gradient(rig):
    state, thoughts = rig.think([0, 1], halting.fixed(torch.tensor([0, 0])))
    assert not state.hidden.requires_grad and not thoughts.updates.requires_grad
    assert thoughts.values.requires_grad, "v_0 is still the value head's"


@pytest.mark.parametrize("detach, trained", [(True, False), (False, True)])
def test_detaching_the_value_loss_from_the_states(rig, detach, trained):
    _, thoughts = rig.think([0, 1], halting.always, detach_value=detach)
    gradient = torch.autograd.grad(
        thoughts.values.sum(), rig.adapter.delta_projection.weight, allow_unused=True
    )[0]
    assert (gradient is not None and gradient.abs().sum() > 0) == trained
    _, thoughts = rig.think([0, 1], halting.always, detach_value=detach)
    (gradient,) = torch.autograd.grad(thoughts.values.sum(), rig.head.linear.weight)
    assert gradient.abs().sum() > 0


# The initial state


def test_initial_state_by_hand():
    hidden = torch.tensor([[3.0, 4.0], [0.0, -2.0]])
    expected = torch.tensor([[0.6, 0.8], [0.0, -1.0]])
    torch.testing.assert_close(initial_state(hidden), expected)
    # Noise is added to the raw state: (3, 4) + (1, -1) = (4, 3); (0, -2) + (0, 1) = (0, -1)
    noise = torch.tensor([[1.0, -1.0], [0.0, 1.0]])
    expected = torch.tensor([[0.8, 0.6], [0.0, -1.0]])
    torch.testing.assert_close(initial_state(hidden, noise), expected)
    assert initial_state(hidden.bfloat16()).dtype == torch.float32


@torch.no_grad()
def test_noise_reaches_the_initial_state_only(rig):
    noise = torch.randn(2, rig.backbone.width, generator=torch.Generator().manual_seed(0)) * 3
    _, clean = rig.think([0, 1], halting.always)
    _, noisy = rig.think([0, 1], halting.always, noise=noise)
    assert (clean.states[:, 0] - noisy.states[:, 0]).norm(dim=-1).min() > 0.1
    assert (clean.values[:, 0] != noisy.values[:, 0]).all()
    assert torch.equal(clean.values[:, 1:], noisy.values[:, 1:])
    assert torch.equal(clean.updates, noisy.updates)
