"""Value against realised gain: bins, correlation over utterances and within them."""

import numpy as np
import pytest
from scipy import stats

from espnet_latentasr.analysis.calibration import (
    calibration,
    realised_gain,
    value_bins,
    within_utterances,
)


def test_gain_of_a_state():
    errors = np.array([[3, 1, 2], [0, 2, 1]])
    assert realised_gain(errors, 1).tolist() == [2, -2]
    assert realised_gain(errors, 2).tolist() == [1, -1]
    assert realised_gain(errors, 0).tolist() == [1.5, -1.5]


def test_bins_by_hand():
    found = value_bins(
        np.array([0.1, 0.4, 0.2, 0.3]), np.array([1, 0, -1, 2]), np.array([5, 5, 10, 10]), bins=2
    )
    assert [(b.utterances, b.low, b.high) for b in found] == [(2, 0.1, 0.2), (2, 0.3, 0.4)]
    assert [b.gain for b in found] == [0.0, 2 / 15]


def test_equal_values_share_a_bin():
    found = value_bins(np.zeros(8), np.ones(8), np.full(8, 4), bins=4)
    assert [(b.utterances, b.gain, b.error) for b in found] == [(8, 0.25, 0.0)]


def test_error_of_a_bin_is_that_of_a_ratio():
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, 12, 400)
    saved = rng.integers(-2, 3, 400)
    (found,) = value_bins(np.zeros(400), saved, lengths, bins=1)
    draws = rng.integers(400, size=(2000, 400))
    spread = (saved[draws].sum(1) / lengths[draws].sum(1)).std()
    assert found.error == pytest.approx(spread, rel=0.1)


def test_correlation_is_spearmans():
    rng = np.random.default_rng(1)
    values, errors = rng.normal(size=(40, 3)), rng.integers(0, 5, (40, 3))
    lengths = rng.integers(0, 6, 40)
    found = calibration(values, errors, lengths, 2)
    known = lengths > 0
    expected = stats.spearmanr(values[known, 2], ((errors[:, 0] - errors[:, 2])[known] / lengths[known]))
    assert (found.rho, found.p) == (pytest.approx(expected.statistic), pytest.approx(expected.pvalue))


def test_sign_agreement_counts_changed_utterances_only():
    values = np.array([[0.0, 0.5], [0.0, -0.5], [0.0, 0.5], [0.0, 0.5]])
    errors = np.array([[2, 1], [2, 1], [1, 2], [1, 1]])
    found = calibration(values, errors, np.full(4, 3), 1)
    assert (found.changed, found.sign_agreement) == (3, pytest.approx(1 / 3))


def test_nothing_changes():
    found = calibration(np.ones((5, 2)), np.ones((5, 2), dtype=int), np.full(5, 3), 1)
    assert np.isnan(found.rho)
    assert (found.changed, found.sign_agreement) == (0, None)


def test_within_utterances_is_the_mean_of_each_ones_correlation():
    rng = np.random.default_rng(2)
    values, errors = rng.normal(size=(30, 4)), rng.integers(0, 3, (30, 4))
    errors[:5] = 2
    each = [stats.spearmanr(v, e).statistic for v, e in zip(values, errors) if np.ptp(e)]
    found = within_utterances(values, errors)
    assert found.defined == len(each) <= 25
    assert found.mean_rho == pytest.approx(np.mean(each))
    assert found.anti_correlated == pytest.approx(np.mean(np.array(each) > 1e-9))


def test_within_needs_three_depths():
    assert within_utterances(np.zeros((3, 2)), np.zeros((3, 2))).defined == 0
    assert within_utterances(np.zeros((3, 4)), np.ones((3, 4))).mean_rho is None
