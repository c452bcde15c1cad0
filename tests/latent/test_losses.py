"""Eqs. 5 and 6 against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import tensor

from espnet_latentasr.latent.losses import cycle_loss, cycle_weight, token_scores, value_loss


def test_token_scores():
    ln3 = math.log(3.0)
    logits = tensor([[0.0, ln3], [ln3, 0.0], [0.0, ln3], [0.0, 0.0]])
    # Probabilities of the targets: 3/4, 1/4 | 3/4 | of row 2: 1/2, first of equals is taken.
    targets, rows = tensor([1, 1, 1, 0]), tensor([0, 0, 1, 2])
    cross_entropy, accuracy = token_scores(logits, targets, rows, 3)
    expected = [(0.2876821 + 1.3862944) / 2, 0.2876821, 0.6931472]
    torch.testing.assert_close(cross_entropy, tensor(expected), atol=1e-6, rtol=0)
    assert accuracy.tolist() == [0.5, 1.0, 1.0]


def test_token_scores_do_not_depend_on_the_order_of_the_targets():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(12, 5, generator=generator)
    targets = torch.randint(5, (12,), generator=generator)
    rows = tensor([0] * 3 + [1] * 7 + [2] * 2)
    order = torch.randperm(12, generator=generator)
    one = token_scores(logits, targets, rows, 3)
    two = token_scores(logits[order], targets[order], rows[order], 3)
    for a, b in zip(one, two, strict=True):
        torch.testing.assert_close(a, b)


STATES = tensor([[1.0, 0.0], [1.0, 1.0], [3.0, 1.0], [3.0, 2.0]])
# |h_k - h_0|^2 = 1, 5, 8; |h_{k+1} - h_k|^2 = 4, 1
BY_STEPS = {
    1: 0.3 * 1,
    2: 0.3 * (1 + 5) / 2 + 0.7 * 4,
    3: 0.3 * (1 + 5 + 8) / 3 + 0.7 * (4 + 1) / 2,
}


def made(*steps: int) -> torch.Tensor:
    return tensor([[True] + [k <= count for k in (1, 2, 3)] for count in steps])


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_cycle_loss_of_one_row(steps):
    loss = cycle_loss(STATES[None], made(steps), 0.3)
    assert loss.item() == pytest.approx(BY_STEPS[steps], abs=1e-6)


def test_cycle_loss_with_a_budget_of_one_step_is_its_first_term():
    loss = cycle_loss(STATES[None, :2], made(1)[:, :2], 0.3)
    assert loss.item() == pytest.approx(0.3, abs=1e-6)


def test_cycle_loss_is_averaged_over_the_rows_that_thought():
    # Entries that were not made must not count, whatever stands there.
    states = STATES.repeat(4, 1, 1)
    states[~made(3, 2, 0, 1)] = 99.0
    loss = cycle_loss(states, made(3, 2, 0, 1), 0.3)
    assert loss.item() == pytest.approx((3.15 + 3.7 + 0.3) / 3, abs=1e-5)


def test_cycle_loss_without_any_step_is_zero():
    assert cycle_loss(STATES[None], made(0), 0.3).item() == 0.0


@pytest.mark.parametrize("beta, expected", [(1.0, 14 / 3), (0.0, 2.5)])
def test_beta_weighs_the_distance_to_the_start(beta, expected):
    assert cycle_loss(STATES[None], made(3), beta).item() == pytest.approx(expected, abs=1e-6)


@given(st.floats(-10, 10, width=32), st.integers(1, 3))
def test_states_that_do_not_move_cost_nothing_wherever_they_are(offset, steps):
    states = torch.full((1, 4, 5), offset)
    assert cycle_loss(states, made(steps), 0.3).item() == 0.0


def test_cycle_loss_has_no_gradient_in_unmade_states():
    states = STATES[None].clone().requires_grad_()
    cycle_loss(states, made(2), 0.3).backward()
    assert (states.grad[0, 3] == 0).all()
    assert (states.grad[0, :3].abs().sum(-1) > 0).all()


def test_value_loss():
    values, targets = tensor([[0.5, 0.0], [-0.5, 9.0]]), tensor([[0.0, 0.3], [0.5, 0.0]])
    used = tensor([[True, True], [True, False]])
    # (0.25 + 0.09 + 1) / 3
    assert value_loss(values, targets, used).item() == pytest.approx(0.4466667, abs=1e-6)
    assert value_loss(values, targets, torch.zeros_like(used)).item() == 0.0


@pytest.mark.parametrize("progress, expected", [(0.0, 0.1), (0.25, 0.075), (0.5, 0.05), (1.0, 0.0)])
def test_cycle_weight(progress, expected):
    assert cycle_weight(0.1, "linear", progress) == pytest.approx(expected)
    assert cycle_weight(0.1, "constant", progress) == 0.1
