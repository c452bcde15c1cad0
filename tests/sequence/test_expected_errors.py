"""Expected errors of candidate lists: value and gradient by hand, invariants, what is refused."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from espnet_latentasr.errors import DataError
from espnet_latentasr.sequence.expected_errors import expected_errors


def test_by_hand():
    """p = (1/4, 3/4) and (1/6, 1/2, 1/3)."""
    log_probs = torch.tensor(
        [[1.0, 3.0, math.nan], [1.0, 3.0, 2.0]], dtype=torch.float64
    ).log()
    errors = torch.tensor([[4, 0, 99], [6, 2, 3]])
    mask = torch.tensor([[True, True, False], [True, True, True]])
    found = expected_errors(log_probs, errors, mask)
    assert found.tolist() == pytest.approx([1.0, 3.0], abs=1e-12)


def test_the_gradient_is_the_probability_times_the_advantage():
    log_probs = torch.tensor([[-1.0, -2.5, -3.0]], dtype=torch.float64, requires_grad=True)
    errors = torch.tensor([[2.0, 0.0, 5.0]], dtype=torch.float64)
    expected_errors(log_probs, errors).sum().backward()
    weights = log_probs.detach().softmax(-1)
    advantage = errors - (weights * errors).sum()
    assert torch.allclose(log_probs.grad, weights * advantage, atol=1e-12)
    assert torch.autograd.gradcheck(lambda x: expected_errors(x, errors), log_probs)


def test_masked_entries_and_impossible_candidates_have_no_gradient():
    log_probs = torch.tensor([[-1.0, math.nan, -math.inf, -2.0]], requires_grad=True)
    mask = torch.tensor([[True, False, True, True]])
    errors = torch.tensor([[1.0, math.nan, 7.0, 3.0]])
    found = expected_errors(log_probs, errors, mask)
    found.sum().backward()
    two = expected_errors(torch.tensor([[-1.0, -2.0]]), torch.tensor([[1.0, 3.0]]))
    assert found.item() == pytest.approx(two.item(), abs=1e-6)
    assert log_probs.grad[0, 1] == log_probs.grad[0, 2] == 0
    assert log_probs.grad.isfinite().all()


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.floats(-50, 0), st.integers(0, 20), st.booleans()), min_size=1, max_size=6
    ).filter(lambda rows: any(row[2] for row in rows)),
    st.floats(-100, 100),
)
def test_bounds_shift_and_order(rows, shift):
    log_probs, errors, mask = (torch.tensor([column]) for column in zip(*rows))
    log_probs = log_probs.double()
    found = expected_errors(log_probs, errors, mask).item()
    kept = [e for _, e, use in rows if use]
    assert min(kept) - 1e-9 <= found <= max(kept) + 1e-9
    moved = expected_errors(log_probs + shift, errors, mask).item()
    turned = expected_errors(*(t.flip(1) for t in (log_probs, errors, mask))).item()
    assert found == pytest.approx(moved, abs=1e-9) == pytest.approx(turned, abs=1e-9)


@pytest.mark.parametrize(
    "log_probs, errors, message",
    [
        ([[-1.0, math.nan]], [[0, 1]], "row 0, candidate 1: log-probability nan"),
        ([[-1.0, -1.0], [math.inf, -1.0]], [[0, 1]] * 2, "row 1, candidate 0: log-probability inf"),
        ([[-1.0, -1.0]], [[0, -1]], "row 0, candidate 1: -1.0 errors"),
        ([[-math.inf, -math.inf]], [[0, 1]], "row 0: no candidate with a probability above 0"),
    ],
)
def test_bad_lists_are_refused(log_probs, errors, message):
    with pytest.raises(DataError, match=message):
        expected_errors(torch.tensor(log_probs), torch.tensor(errors))


def test_an_empty_list_is_refused():
    with pytest.raises(DataError, match="row 0: no candidate"):
        expected_errors(torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.bool))


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match=r"\(B, G\) expected"):
        expected_errors(torch.zeros(2, 3), torch.zeros(2, 2))
    with pytest.raises(ValueError, match=r"\(B, G\) bool expected"):
        expected_errors(torch.zeros(2, 3), torch.zeros(2, 3), torch.ones(2, 3))
