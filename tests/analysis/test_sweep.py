"""The threshold sweep, its front and knee, and the allocation at one threshold."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espnet_latentasr.analysis.allocation import allocation
from espnet_latentasr.analysis.policies import quantile_grid
from espnet_latentasr.analysis.sweep import Point, captured, knee, pareto_front, sweep

VALUES = np.array([[-0.2, 0.5, 0.5], [0.1, -0.1, 0.5], [0.1, 0.2, -0.1], [0.3, 0.3, 0.3]])
ERRORS = np.array([[1, 0, 0], [2, 1, 0], [2, 1, 3], [0, 0, 1]])
LENGTHS = np.array([5, 5, 5, 5])


def test_points_by_hand():
    never, zero, always = sweep(VALUES, ERRORS, LENGTHS, [1.0, 0.0, -2.0])
    assert (never.rate, never.delta, never.steps, never.skip_rate) == (0.25, 0.0, 0.0, 1.0)
    assert (zero.rate, zero.steps, zero.skip_rate) == ((1 + 1 + 3 + 1) / 20, 5 / 4, 0.25)
    assert (always.rate, always.steps, always.kept) == (4 / 20, 2.0, 2.0)


def test_a_discarded_step_was_computed_all_the_same():
    (point,) = sweep(VALUES, ERRORS, LENGTHS, [0.0], "discard")
    assert (point.steps, point.kept) == (5 / 4, 3 / 4)


@settings(max_examples=40)
@given(st.integers(0, 10**6))
def test_front_holds_no_beaten_point(seed):
    rng = np.random.default_rng(seed)
    values, errors = rng.normal(size=(12, 3)), rng.integers(0, 4, (12, 3))
    points = sweep(values, errors, np.full(12, 5), quantile_grid(values))
    front = pareto_front(points)
    for point in points:
        assert any(f.steps <= point.steps and f.rate <= point.rate for f in front)
    for a, b in zip(front, front[1:]):
        assert a.steps < b.steps and a.rate > b.rate
    bend = knee(front)
    assert bend is None or bend in front[1:-1]


def points(*pairs):
    return [Point(0.0, rate, rate - 0.5, steps, steps, 0.0) for steps, rate in pairs]


def test_knee():
    front = points((0, 0.5), (1, 0.2), (2, 0.15), (4, 0.1))
    assert knee(front).steps == 1
    assert knee(front[:2]) is None
    assert knee(points((0, 0.5), (1, 0.4), (2, 0.3))) is None


def test_captured_share():
    front = points((0, 0.5), (1, 0.2), (4, 0.1))
    assert captured(front[1], front) == pytest.approx(0.75)
    assert captured(front[0], points((0, 0.5), (1, 0.6))) is None


def test_skips_at_entry_and_stops_after_a_step_are_told_apart():
    keep, discard = (allocation(VALUES, 0.0, on_halt) for on_halt in ("keep", "discard"))
    assert (keep.entry, keep.stopped, keep.budget) == (1, (1, 1), 1)
    assert (discard.entry, discard.stopped, discard.budget) == (1, (1, 1), 1)
    # A loop stopped after its first step ends like a skip when that step is discarded.
    assert (keep.kept, discard.kept) == ((1, 1, 2), (2, 1, 1))
    assert (keep.mean_run, discard.mean_run) == (1.25, 1.25)
    assert keep.skip_rate == discard.skip_rate == 0.25


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.floats(-1, 1), st.sampled_from(["keep", "discard"]))
def test_allocation_counts_everyone_once(seed, theta, on_halt):
    values = np.random.default_rng(seed).normal(size=(9, 4))
    found = allocation(values, theta, on_halt)
    assert found.entry + sum(found.stopped) + found.budget == sum(found.kept) == 9


def test_nothing_to_allocate():
    with pytest.raises(ValueError, match="no utterance"):
        allocation(np.zeros((0, 3)), 0.0)
