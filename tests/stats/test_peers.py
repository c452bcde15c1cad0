"""Corrections and intervals against packages that are used where they are installed."""

import numpy as np
import pytest

from espnet_latentasr.stats.bootstrap import paired_bootstrap
from espnet_latentasr.stats.multiplicity import benjamini_hochberg, holm


@pytest.mark.parametrize("ours, name", [(holm, "holm"), (benjamini_hochberg, "fdr_bh")])
def test_corrections_equal_statsmodels(ours, name):
    multitest = pytest.importorskip("statsmodels.stats.multitest", reason="statsmodels is not installed")
    rng = np.random.default_rng(0)
    for size in (1, 2, 7, 40):
        p = rng.random(size) ** 3
        p[: size // 3] = p[0]  # ties
        np.testing.assert_allclose(ours(p), multitest.multipletests(p, method=name)[1], atol=1e-12)


def test_intervals_are_near_kaldialigns():
    kaldialign = pytest.importorskip("kaldialign", reason="kaldialign is not installed")
    rng = np.random.default_rng(1)
    words = [f"w{i}" for i in range(30)]
    refs = [[words[i] for i in rng.integers(0, 30, rng.integers(3, 12))] for _ in range(300)]

    def heard(rate):
        return [[w if rng.random() > rate else "x" for w in ref] for ref in refs]

    one, two = heard(0.25), heard(0.15)
    found = kaldialign.bootstrap_wer_ci(refs, one, two, replications=4000)
    errors = [np.array([sum(a != b for a, b in zip(*pair)) for pair in zip(refs, h)]) for h in (one, two)]
    lengths = np.array([len(ref) for ref in refs])
    for key, own in (("system1", errors[0]), ("system2", errors[1])):
        # The same estimate; its interval is symmetric (1.96 standard deviations), so near ours.
        ours = paired_bootstrap(np.zeros_like(own), own, lengths, replicates=4000, seed=0)
        assert found[key]["wer"] == pytest.approx(ours.delta, abs=2e-3)
        assert found[key]["ci95"] == pytest.approx((ours.high - ours.low) / 2, rel=0.1)
    assert found["p_s2_improv_over_s1"] > 0.999
    assert paired_bootstrap(errors[0], errors[1], lengths, replicates=4000).high < 0
