"""Rules over one pass: choice on dev, the random control, and that nothing beats the oracle."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espnet_latentasr.analysis.depths import Depths, errors_at
from espnet_latentasr.analysis.oracle import depth_oracle, gap_closure
from espnet_latentasr.analysis.policies import (
    choose_confidence,
    choose_fixed,
    choose_theta,
    outcome,
    quantile_grid,
    random_gate,
    select_confidence,
    select_fixed,
    select_oracle,
)


def make(errors, values=None, log_probs=None, lengths=None):
    errors = np.array(errors)
    zeros = np.zeros(errors.shape)
    return Depths(
        tuple(f"u{row}" for row in range(len(errors))),
        errors,
        np.full(len(errors), 4) if lengths is None else np.array(lengths),
        np.array(zeros if values is None else values, dtype=np.float32),
        np.array(zeros if log_probs is None else log_probs, dtype=float),
        tuple(("x",) * errors.shape[1] for _ in errors),
    )


def test_fixed_and_oracle():
    assert select_fixed(3, 2).tolist() == [2, 2, 2]
    assert select_oracle(np.array([[2, 1, 1], [0, 0, 5], [3, 2, 1]])).tolist() == [1, 0, 2]


def test_confidence_gate():
    log_probs = np.array([[-0.5, 0], [-0.1, 0], [-0.3, 0]])
    assert select_confidence(log_probs, -0.3).tolist() == [1, 0, 0]


def test_outcome():
    found = outcome(make([[2, 0], [1, 3]]), np.array([1, 0]))
    assert (found.rate, found.mean_steps, found.skip_rate) == (1 / 8, 0.5, 0.5)
    assert found.errors.tolist() == [0, 1]


def test_grid_holds_both_ends():
    grid = quantile_grid(np.array([0.1, 0.2, 0.2]))
    assert grid.tolist() == [-np.inf, 0.1, 0.2, np.inf]


def test_threshold_is_chosen_on_dev_and_applied_elsewhere():
    # Thinking helps where v_0 is at least 0.3.
    dev = make([[1, 0], [0, 1], [1, 0], [0, 1]], values=[[0.4, 0], [0.2, 0], [0.3, 0], [0.1, 0]])
    rule = choose_theta(dev)
    assert rule.threshold == pytest.approx(0.3)
    assert outcome(dev, rule.apply(dev)).rate == 0
    other = make([[5, 4], [5, 4]], values=[[0.29, 0], [0.31, 0]])
    assert rule.apply(other).tolist() == [0, 1]


def test_equal_choices_take_the_cheapest():
    dev = make([[1, 1, 1]] * 3, values=[[0.3, 0.2, 0.1]] * 3, log_probs=[[-1, 0, 0]] * 3)
    for choose in (choose_theta, choose_fixed, choose_confidence):
        assert choose(dev).apply(dev).tolist() == [0, 0, 0]


def test_fixed_depth_and_confidence_on_dev():
    errors = [[3, 1, 2], [3, 1, 2]]
    assert choose_fixed(make(errors)).threshold == 1
    rule = choose_confidence(make([[2, 1, 0], [0, 1, 2]], log_probs=[[-0.9, 0, 0], [-0.1, 0, 0]]))
    assert rule.apply(make(errors, log_probs=[[-0.05, 0, 0], [-2.0, 0, 0]])).tolist() == [0, 2]


def test_random_gate_is_the_mean_over_all_deals():
    errors, depth = np.array([[2, 0], [1, 1], [0, 3]]), np.array([1, 0, 0])
    lengths = np.array([2, 2, 2])
    deals = [errors_at(errors, np.array(deal)).sum() / 6 for deal in permutations(depth)]
    found = random_gate(errors, lengths, depth, deals=500)
    assert found.rate == pytest.approx(np.mean(deals))
    assert min(deals) <= found.low <= found.high <= max(deals)
    # The rule's own deal is the best of three different ones.
    assert found.p == pytest.approx(1 / 3, abs=0.06)


def test_a_rule_that_decides_nothing_is_no_better_than_chance():
    errors = np.arange(12).reshape(6, 2) % 3
    found = random_gate(errors, np.full(6, 3), np.ones(6, dtype=int), deals=50)
    assert found.low == found.high == found.rate
    assert found.p == 1.0
    with pytest.raises(ValueError, match="no reference tokens"):
        random_gate(errors, np.zeros(6, dtype=int), np.ones(6, dtype=int))


tables = st.integers(2, 4).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, 4), min_size=n, max_size=n), min_size=1, max_size=5)
)


@settings(max_examples=40)
@given(tables, st.integers(0, 10**6))
def test_no_rule_beats_the_oracle(errors, seed):
    errors = np.array(errors)
    lengths = np.full(len(errors), 4)
    rng = np.random.default_rng(seed)
    rules = {str(k): rng.integers(0, errors.shape[1], len(errors)) for k in range(3)}
    rules["frozen"] = select_fixed(len(errors), 0)
    found = depth_oracle(errors, lengths, rules)
    for name, depth in rules.items():
        assert found.rate * lengths.sum() <= errors_at(errors, depth).sum() + 1e-9
        assert found.closure[name] is None or found.closure[name] <= 1
        assert found.picked[name] <= found.recoverable
    assert found.closure["frozen"] in (None, 0.0)
    assert found.recoverable == (errors.min(1) < errors[:, 0]).sum()


def test_gap_closure():
    assert gap_closure(0.3, 0.2, 0.1) == pytest.approx(0.5)
    assert gap_closure(0.3, 0.4, 0.1) == pytest.approx(-0.5)
    assert gap_closure(0.3, 0.3, 0.3) is None
