"""Quartiles, and the regression to the mean that they must not hide."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espnet_latentasr.analysis.quartiles import (
    FROZEN_RATE,
    difficulties,
    expected_by_chance,
    quartiles,
    utterance_rates,
)


def test_bins_by_hand():
    difficulty = np.array([0.4, 0.1, 0.3, 0.2, 0.5])
    found = quartiles(
        difficulty, np.array([4, 1, 3, 2, 5]), np.array([2, 1, 3, 3, 5]), np.full(5, 10),
        np.array([True, False, False, True, False]), bins=2,
    )  # fmt: skip
    assert [(b.utterances, b.low, b.high) for b in found] == [(2, 0.1, 0.2), (3, 0.3, 0.5)]
    assert (found[0].baseline, found[0].system, found[0].delta) == (3 / 20, 4 / 20, pytest.approx(1 / 20))
    assert (found[0].skip_rate, found[1].skip_rate) == (1 / 2, 1 / 3)


def test_sizes_are_floor_splits():
    ones = np.ones(1842)
    assert [b.utterances for b in quartiles(ones, ones, ones, ones, ones)] == [460, 461, 460, 461]


@settings(max_examples=40)
@given(st.integers(4, 30), st.integers(0, 10**6))
def test_bins_partition_the_set(count, seed):
    rng = np.random.default_rng(seed)
    baseline, system = rng.integers(0, 5, (2, count))
    found = quartiles(rng.normal(size=count), baseline, system, np.ones(count, dtype=int), baseline > 2)
    assert sum(b.utterances for b in found) == count
    assert sum(b.utterances * b.delta for b in found) == pytest.approx((system - baseline).sum())
    assert all(a.high <= b.low for a, b in zip(found, found[1:]))


def test_bad_input():
    one = np.ones(3)
    with pytest.raises(ValueError, match="3 utterances cannot fill 4 bins"):
        quartiles(one, one, one, one, one)
    with pytest.raises(ValueError, match="not finite"):
        quartiles(np.array([1, np.nan]), one[:2], one[:2], one[:2], one[:2], bins=2)


def test_two_equal_systems_show_the_pattern_that_looks_like_a_gain():
    rng = np.random.default_rng(0)
    lengths = np.full(2000, 10)
    baseline, system = rng.binomial(lengths, 0.2, (2, 2000))
    notions = difficulties(baseline, system, lengths, np.zeros(2000))
    deltas = {
        name: [b.delta for b in quartiles(notions[name], baseline, system, lengths, baseline > 9)]
        for name in (FROZEN_RATE, "mean of both error rates")
    }
    assert deltas[FROZEN_RATE][0] > 0.05 and deltas[FROZEN_RATE][3] < -0.05
    assert max(map(abs, deltas["mean of both error rates"])) < 0.02
    np.testing.assert_allclose(
        expected_by_chance(baseline, system, lengths), deltas[FROZEN_RATE], atol=0.02
    )


def test_a_real_gain_is_not_expected_by_chance():
    baseline, lengths = np.full(400, 3), np.full(400, 10)
    chance = expected_by_chance(baseline, baseline - 1, lengths, draws=50)
    assert sum(chance) == pytest.approx(0, abs=0.01)
    assert utterance_rates(np.array([3]), np.array([0])).tolist() == [3.0]
