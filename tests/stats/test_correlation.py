"""Rank correlations by hand, against scipy, and where they do not exist."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from espnet_latentasr.stats.correlation import kendall_tau_b, spearman, spearman_test

POINTS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=3, max_size=15)


def test_spearman_with_ties_by_hand():
    # Ranks 1, 2.5, 2.5, 4 against 1, 3, 2, 4: Pearson of the ranks is 4.5 / sqrt(4.5 * 5).
    assert spearman([10, 20, 20, 30], [1, 3, 2, 4]) == pytest.approx(4.5 / math.sqrt(22.5))
    assert spearman([1, 2, 3], [9, 4, 1]) == pytest.approx(-1)


def test_kendall_with_ties_by_hand():
    # Of six pairs five agree, none disagrees, one is tied in x: 5 / sqrt(5 * 6).
    assert kendall_tau_b([10, 20, 20, 30], [1, 2, 3, 4]) == pytest.approx(5 / math.sqrt(30))


@settings(max_examples=50)
@given(POINTS)
def test_same_as_scipy(points):
    x, y = np.array(points).T
    if np.ptp(x) and np.ptp(y):
        assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
        assert spearman(x, y) == pytest.approx(
            np.corrcoef(stats.rankdata(x), stats.rankdata(y))[0, 1]
        )
        assert kendall_tau_b(x, y) == pytest.approx(stats.kendalltau(x, y).statistic)
        assert spearman(x, 2 * y + 1) == pytest.approx(spearman(x, y))
        found = spearman_test(x, y)
        assert found.value == spearman(x, y) and found.p == pytest.approx(stats.spearmanr(x, y).pvalue)
    else:
        assert math.isnan(spearman(x, y)) and math.isnan(kendall_tau_b(x, y))


@pytest.mark.parametrize(("x", "y"), [([], []), ([1], [2]), ([1, 1], [1, 2]), ([1, 2], [0.1, 0.1])])
def test_undefined_is_nan_without_a_warning(x, y, recwarn):
    assert math.isnan(spearman(x, y)) and math.isnan(kendall_tau_b(x, y))
    assert all(map(math.isnan, spearman_test(x, y)))
    assert not recwarn


def test_two_points_have_no_p(recwarn):
    found = spearman_test([1, 2], [5, 3])
    assert found.value == pytest.approx(-1) and math.isnan(found.p) and not recwarn


@pytest.mark.parametrize("function", [spearman, kendall_tau_b])
def test_refused(function):
    with pytest.raises(ValueError, match=r"shapes \(2,\) and \(3,\)"):
        function([1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match="1 and 0 of 3 values are NaN"):
        function([1, float("nan"), 2], [1, 2, 3])
