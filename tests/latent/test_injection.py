"""Eqs. 1-3 against numbers worked out by hand, and their bounds for any input."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import tensor

from espnet_latentasr.latent.injection import (
    anchored,
    bounded_delta,
    inverse_softplus,
    sigmoid_gate,
    step_scale,
)

FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


def near(found: torch.Tensor, expected: list, tolerance: float = 1e-6) -> None:
    torch.testing.assert_close(found, tensor(expected), atol=tolerance, rtol=0)


def test_step_scale():
    # ln 2; ln(1 + e); softplus(-3); softplus(10) = 10.00005 is capped
    rho = tensor([0.0, 1.0, -3.0, 10.0])
    near(step_scale(rho, 3.0), [0.6931472, 1.3132617, 0.0485874, 3.0])
    near(step_scale(rho, 1.0), [0.6931472, 1.0, 0.0485874, 1.0])


def test_inverse_softplus():
    assert inverse_softplus(0.2) == pytest.approx(-1.5077718, abs=1e-6)  # ln(e^0.2 - 1)
    assert inverse_softplus(math.log(2)) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("scale", [0.2, 0.5, 1.0, 1.5, 2.9, 3.0])
def test_a_scale_starts_at_its_configured_value_to_float32(scale):
    """One unit in the last place: no float32 rho has a softplus closer to 0.2."""
    found = step_scale(tensor(inverse_softplus(scale)), 3.0)
    assert found.dtype == torch.float32
    wanted = np.float32(scale)
    assert abs(np.float32(found.item()) - wanted) <= np.spacing(wanted)


def test_bounded_delta():
    # |(3, 4)| = 5: direction (0.6, 0.8) times s
    near(bounded_delta(tensor([[3.0, 4.0]]), 0.5), [[0.3, 0.4]])
    # |(3e-6, 4e-6)| = 5e-6, and 5e-6 + 1e-6 = 6e-6: u / 6e-6 = (1/2, 2/3)
    near(bounded_delta(tensor([[3e-6, 4e-6]]), 0.6), [[0.3, 0.4]])
    # each row by its own norm
    near(bounded_delta(tensor([[0.0, -2.0], [8.0, 6.0]]), 2.0), [[0.0, -2.0], [1.6, 1.2]], 3e-6)


@given(
    u=st.lists(FLOAT32, min_size=1, max_size=8),
    scale=st.floats(0.0, 3.0, width=32),
)
def test_a_delta_is_never_longer_than_its_scale(u, scale):
    delta = bounded_delta(tensor([u]), tensor(scale))
    assert torch.isfinite(delta).all()
    assert delta.double().norm() <= scale * (1 + 1e-6)


@given(rho=FLOAT32)
def test_a_scale_never_exceeds_its_cap(rho):
    assert 0.0 <= step_scale(tensor(rho), 3.0) <= 3.0


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-6, 1.0, 1e20, 3e38])
def test_a_delta_is_bounded_at_every_size(size):
    u = torch.full((1, 4), size)
    delta = bounded_delta(u, 3.0)
    assert torch.isfinite(delta).all() and delta.norm() <= 3.000003
    if size == 0.0:
        assert torch.equal(delta, u)
    if size == 1.0:
        near(delta, [[1.5, 1.5, 1.5, 1.5]], 2e-6)


def test_the_gradient_at_zero_is_finite():
    u = torch.zeros(1, 4, requires_grad=True)
    bounded_delta(u, 0.2).sum().backward()
    assert torch.isfinite(u.grad).all()


def test_sigmoid_gate():
    anchor, delta = tensor([1.0, -1.0]), tensor([[0.5, 0.25], [0.0, 0.0]])
    weight = tensor([[1.0, 0.0, 2.0, 0.0], [0.0, 1.0, 0.0, -4.0]])
    bias = tensor([0.0, 1.0])
    # row 0: 1 + 2 (0.5) = 2 and -1 - 4 (0.25) + 1 = -1; row 1: 1 and 0
    near(
        sigmoid_gate(anchor, delta, weight, bias),
        [[0.8807971, 0.2689414], [0.7310586, 0.5]],
    )


def test_anchored():
    near(anchored(tensor([1.0, -2.0]), tensor([[0.5, 0.25], [0.0, 0.0]])), [[1.5, -1.75], [1, -2]])


@given(anchor=st.lists(FLOAT32, min_size=3, max_size=3))
def test_no_update_gives_the_anchor_bit_for_bit(anchor):
    anchor = tensor(anchor)
    assert torch.equal(anchored(anchor, torch.zeros(2, 3)), anchor.expand(2, 3))


@given(
    anchor=st.lists(st.floats(-100, 100, width=32), min_size=3, max_size=3),
    u=st.lists(st.floats(-1e6, 1e6, width=32), min_size=3, max_size=3),
)
def test_a_closed_gate_gives_the_anchor_bit_for_bit(anchor, u):
    anchor, delta = tensor(anchor), bounded_delta(tensor([u]), 3.0)
    gate = sigmoid_gate(anchor, delta, torch.zeros(3, 6), torch.full((3,), -200.0))
    assert torch.equal(anchored(anchor, gate * delta), anchor[None])
