"""Adjusted p values by hand, against scipy and by their laws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import false_discovery_control

from espnet_latentasr.stats.multiplicity import benjamini_hochberg, holm

FAMILY = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def test_holm_by_hand():
    # Sorted: 0.005 x 4, 0.01 x 3, 0.03 x 2, 0.04 x 1 -> raised to 0.06 by the one before it.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.4, 0.9]) == pytest.approx([0.8, 0.9])
    assert holm([0.6, 0.9]) == pytest.approx([1.0, 1.0])
    assert holm([0.2, 0.2]) == pytest.approx([0.4, 0.4])
    assert holm([0.3]) == pytest.approx([0.3])


def test_benjamini_hochberg_by_hand():
    # Sorted: 0.005 x 4/1, 0.01 x 4/2, 0.03 x 4/3, 0.04 x 4/4.
    assert benjamini_hochberg([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.02, 0.04, 0.04, 0.02])
    # Step up: a later, smaller value lowers the earlier ones.
    assert benjamini_hochberg([0.04, 0.05, 0.05]) == pytest.approx([0.05, 0.05, 0.05])


@settings(max_examples=50)
@given(FAMILY)
def test_laws(p):
    p = np.array(p)
    strict, loose = holm(p), benjamini_hochberg(p)
    assert loose == pytest.approx(false_discovery_control(p))
    assert (strict <= 1).all() and (strict <= np.minimum(1, len(p) * p)).all()  # never past Bonferroni
    assert (p <= loose + 1e-15).all() and (loose <= strict + 1e-12).all()
    order = np.argsort(p, kind="stable")
    assert (np.diff(strict[order]) >= 0).all()
    assert holm(p[::-1]).tolist() == strict[::-1].tolist()


def test_holm_rejects_what_the_step_down_procedure_rejects():
    rng = np.random.default_rng(0)
    for _ in range(100):
        p = rng.random(rng.integers(1, 9)) ** 3
        rejected = set()
        for step, index in enumerate(np.argsort(p)):
            if p[index] > 0.05 / (len(p) - step):
                break
            rejected.add(index)
        assert set(np.flatnonzero(holm(p) <= 0.05)) == rejected


@pytest.mark.parametrize("adjust", [holm, benjamini_hochberg])
def test_edges(adjust):
    assert adjust([]).shape == (0,)
    assert adjust([0.0, 1.0]).tolist() == [0.0, 1.0]
    for bad in (float("nan"), -0.1, 1.1):
        with pytest.raises(ValueError, match=r"p value 1 of 2 is .*in \[0, 1\] expected"):
            adjust([0.5, bad])
    with pytest.raises(ValueError, match="one row"):
        adjust([[0.5]])
