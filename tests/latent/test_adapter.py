"""LatentAdapter: sizes, the start of training, one step by hand, and every ablation."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import tensor

from espnet_latentasr.latent.adapter import LatentAdapter, ReleasedAdapter
from espnet_latentasr.latent.value_head import ValueHead


def count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def example(**options) -> LatentAdapter:
    """Width 2, two steps; small numbers that a reader can follow."""
    adapter = LatentAdapter(tensor([1.0, -1.0]), 2, **options)
    with torch.no_grad():
        adapter.step_embedding.copy_(tensor([[1.0, 0.0], [0.0, 2.0]]))
        adapter.step_projection.weight.copy_(tensor([[1.0, 1.0], [0.0, 1.0]]))
        adapter.step_projection.bias.copy_(tensor([0.0, 0.5]))
        adapter.delta_projection.weight.copy_(tensor([[0.0, 2.0], [1.0, 0.0]]))
        if options.get("delta", "bounded") == "bounded":
            adapter.step_scale_rho.copy_(tensor([0.0, 1.0]))  # s = ln 2 and ln(1 + e)
        if options.get("gate", "sigmoid") == "sigmoid":
            adapter.gate.weight.copy_(tensor([[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]))
            adapter.gate.bias.copy_(tensor([1.0, 0.0]))
    return adapter


# h = (2, 1.5), s = (ln 2, ln(1 + e)), delta = s u / |u|.
# Step 1: StepProj(e) = (1, 0.5), sum (3, 2), u = (4, 3), delta = 0.6931472 (4, 3) / 5.
# Step 2: StepProj(e) = (2, 2.5), sum (4, 4), u = (8, 4), delta = 1.3132617 (8, 4) / sqrt 80.
HIDDEN = tensor([[2.0, 1.5]])
DELTA = {1: [0.5545177, 0.4158883], 2: [1.1746170, 0.5873085]}
FREE = {1: [4.0, 3.0], 2: [8.0, 4.0]}


def logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def near(found: torch.Tensor, expected: list) -> None:
    torch.testing.assert_close(found, tensor(expected), atol=1e-6, rtol=0)


def test_trainable_parameters_of_the_paper():
    adapter, head = LatentAdapter(torch.zeros(1024), 4), ValueHead(1024)
    assert count(adapter) + count(head) == 4_201_477
    assert count(ReleasedAdapter(torch.zeros(1024), 4)) + count(head) == 5_251_077


@pytest.mark.parametrize(
    "options, expected",
    [
        # N D + (D D + D) + D D, then N scales, then 2 D D + D of the gate; D = 8, N = 3
        ({}, 24 + 72 + 64 + 3 + 136),
        ({"delta": "free"}, 24 + 72 + 64 + 136),
        ({"gate": "open"}, 24 + 72 + 64 + 3),
        ({"delta": "free", "gate": "open", "anchoring": "none"}, 24 + 72 + 64),
    ],
)
def test_ablations_have_no_dead_parameters(options, expected):
    assert count(LatentAdapter(torch.zeros(8), 3, **options)) == expected


def test_the_start_of_training():
    adapter = LatentAdapter(torch.linspace(-1, 1, 16), 4)
    torch.testing.assert_close(adapter.scales(), torch.full((4,), 0.2), atol=2e-8, rtol=0)
    hidden = torch.randn(5, 16, generator=torch.Generator().manual_seed(0))
    for step in (1, 2, 3, 4):
        update, gate = adapter.update(hidden, step)
        assert torch.equal(gate, torch.full((5, 16), 0.5))
        torch.testing.assert_close(update.norm(dim=-1), torch.full((5,), 0.1), atol=1e-6, rtol=0)
    assert 0 < adapter.step_embedding.std() < 0.1


@pytest.mark.parametrize("step", [1, 2])
def test_one_step_by_hand(step):
    adapter = example()
    update, gate = adapter.update(HIDDEN, step)
    # W_g [e; delta] + b = (e_2 + 1, delta_2) = (0, delta_2)
    expected = [0.5, logistic(DELTA[step][1])]
    near(gate, [expected])
    product = [expected[0] * DELTA[step][0], expected[1] * DELTA[step][1]]
    near(update, [product])
    near(adapter.embedding(update), [[1 + product[0], -1 + product[1]]])


@pytest.mark.parametrize("step", [1, 2])
def test_free_delta(step):
    update, gate = example(delta="free").update(HIDDEN, step)
    expected = [0.5, logistic(FREE[step][1])]
    near(gate, [expected])
    near(update, [[expected[0] * FREE[step][0], expected[1] * FREE[step][1]]])


def test_open_gate():
    update, gate = example(gate="open").update(HIDDEN, 1)
    near(update, [DELTA[1]])
    near(gate, [[1.0, 1.0]])


def test_no_anchoring():
    update = tensor([[0.25, -3.0]])
    near(example(anchoring="none").embedding(update), [[0.25, -3.0]])
    near(example().embedding(update), [[1.25, -4.0]])


def test_relative_scale():
    adapter = LatentAdapter(
        tensor([3.0, -4.0]), 2, scale_init=1.5, scale_relative=True, gate="open"
    )
    near(adapter.scales(), [7.5, 7.5])  # 1.5 times |(3, -4)| = 5
    with torch.no_grad():
        adapter.delta_projection.weight.copy_(torch.eye(2))
    update, _ = adapter.update(tensor([[100.0, -20.0]]), 1)
    assert update.norm().item() == pytest.approx(7.5, abs=1e-5)


def test_the_cap_is_applied_before_the_anchors_norm():
    adapter = LatentAdapter(
        tensor([3.0, -4.0]), 1, scale_init=9.0, scale_cap=2.0, scale_relative=True
    )
    near(adapter.scales(), [10.0])


@pytest.mark.parametrize("delta", ["bounded", "free"])
def test_zero_initialised_delta_projection_starts_at_the_anchor(delta):
    anchor = torch.linspace(-1, 1, 8)
    adapter = LatentAdapter(anchor, 2, delta=delta)
    adapter.start_at_zero()
    update, _ = adapter.update(torch.ones(3, 8), 2)
    assert torch.equal(adapter.embedding(update), anchor.expand(3, 8))


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=8, max_size=8))
def test_an_update_is_bounded_and_a_closed_gate_gives_the_anchor(hidden):
    torch.manual_seed(1)
    anchor = torch.linspace(-1, 1, 8)
    adapter = LatentAdapter(anchor, 2, scale_init=2.5)
    update, gate = adapter.update(tensor([hidden]), 1)
    assert update.norm() <= 2.5 * (1 + 1e-6)
    assert ((gate >= 0) & (gate <= 1)).all()
    torch.nn.init.constant_(adapter.gate.bias, -1000.0)
    update, _ = adapter.update(tensor([hidden]), 1)
    assert torch.equal(adapter.embedding(update), anchor[None])


def test_every_parameter_is_trained():
    torch.manual_seed(1)
    adapter = LatentAdapter(torch.linspace(-1, 1, 8), 2)
    for step in (1, 2):
        update, _ = adapter.update(torch.randn(3, 8), step)
        (adapter.embedding(update) * torch.arange(1.0, 9.0)).sum().backward()
    for name, parameter in adapter.named_parameters():
        rows = parameter.grad.abs().reshape(len(parameter), -1).sum(1)
        assert (rows > 0).all(), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_anchor_is_a_copy_that_is_saved_but_not_trained(dtype):
    source = torch.ones(8, dtype=dtype)
    adapter = LatentAdapter(source, 2)
    source.zero_()
    assert torch.equal(adapter.anchor, torch.ones(8)) and adapter.anchor.dtype == torch.float32
    assert "anchor" in adapter.state_dict()
    assert "anchor" not in dict(adapter.named_parameters())
    assert torch.equal(adapter.probes(2), torch.ones(2, 8))


def test_a_bfloat16_state_is_computed_in_float32():
    torch.manual_seed(1)
    adapter = LatentAdapter(torch.linspace(-1, 1, 8), 2)
    hidden = torch.randn(3, 8).bfloat16()
    update, gate = adapter.update(hidden, 1)
    assert update.dtype == gate.dtype == torch.float32
    assert torch.equal(update, adapter.update(hidden.float(), 1)[0])
