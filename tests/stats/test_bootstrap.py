"""Paired bootstrap against hand-made cases and scipy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from espnet_latentasr.stats.bootstrap import paired_bootstrap


def test_counts_and_delta_by_hand():
    found = paired_bootstrap(
        np.array([2, 0, 1, 3]), np.array([1, 0, 2, 1]), np.array([4, 2, 4, 10]), replicates=200
    )
    assert (found.better, found.worse, found.same) == (2, 1, 1)
    assert found.delta == pytest.approx((-1 + 0 + 1 - 2) / 20)


def test_no_difference_has_p_one():
    errors = np.array([1, 0, 2])
    found = paired_bootstrap(errors, errors, np.array([5, 5, 5]), replicates=100)
    assert (found.delta, found.low, found.high, found.p) == (0.0, 0.0, 0.0, 1.0)


def test_constant_gain_has_the_smallest_possible_p():
    found = paired_bootstrap(np.full(50, 2), np.full(50, 1), np.full(50, 4), replicates=999)
    assert found.p == pytest.approx(2 / 1000)
    assert found.low == found.high == found.delta == -0.25


def test_close_to_scipy_percentile_interval():
    rng = np.random.default_rng(3)
    lengths = rng.integers(3, 12, 200)
    baseline, system = rng.binomial(lengths, 0.2), rng.binomial(lengths, 0.18)

    def statistic(difference, words, axis=-1):
        return difference.sum(axis) / words.sum(axis)

    other = scipy_stats.bootstrap(
        (system - baseline, lengths),
        statistic,
        paired=True,
        method="percentile",
        n_resamples=5000,
        rng=np.random.default_rng(1),
        vectorized=True,
    ).confidence_interval
    ours = paired_bootstrap(baseline, system, lengths, replicates=5000)
    assert ours.low == pytest.approx(other.low, abs=0.004)
    assert ours.high == pytest.approx(other.high, abs=0.004)


def test_chunks_do_not_change_the_draw(monkeypatch):
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 4, 30), rng.integers(0, 4, 30), rng.integers(1, 9, 30)]
    whole = paired_bootstrap(*arrays, replicates=700)
    monkeypatch.setattr("espnet_latentasr.stats.bootstrap.CHUNK", 100)
    assert paired_bootstrap(*arrays, replicates=700) == whole


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 20)), min_size=1))
def test_swapping_systems_mirrors_everything(rows):
    baseline, system, lengths = (np.array(column) for column in zip(*rows))
    one = paired_bootstrap(baseline, system, lengths, replicates=100)
    two = paired_bootstrap(system, baseline, lengths, replicates=100)
    assert one.delta == -two.delta and one.p == two.p
    assert (one.better, one.worse) == (two.worse, two.better)
    assert one.low == pytest.approx(-two.high) and one.high == pytest.approx(-two.low)
    assert one.low <= one.high


def test_refuses_arrays_that_do_not_belong_together():
    with pytest.raises(ValueError, match="three arrays of one length"):
        paired_bootstrap(np.array([1]), np.array([1, 2]), np.array([3, 3]))
    with pytest.raises(ValueError, match="0 words"):
        paired_bootstrap(np.array([1]), np.array([1]), np.array([0]))
