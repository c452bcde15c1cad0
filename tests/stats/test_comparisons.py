"""A table's rows: each as the bootstrap alone gives it, corrected over exactly the rows there are."""

from dataclasses import replace

import numpy as np
import pytest

from espnet_latentasr.stats.bootstrap import paired_bootstrap
from espnet_latentasr.stats.comparisons import Contest, caption, compare_family, correct
from espnet_latentasr.stats.multiplicity import benjamini_hochberg, holm

FAST = {"replicates": 200, "seed": 3}


def contest(seed, systems, clusters=None, utterances=40):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9, utterances)
    draw = [rng.binomial(lengths, 0.3 - 0.05 * system) for system in range(systems + 1)]
    return Contest(draw[0], draw[1:], lengths, clusters)


def test_rows_are_single_tests_corrected_over_all_of_them():
    contests = [contest(0, 2), contest(1, 1, [f"s{u % 7}" for u in range(40)])]
    rows = compare_family(contests, **FAST)
    alone = [
        paired_bootstrap(c.baseline, system, c.lengths, clusters=c.clusters, **FAST)
        for c in contests for system in c.systems
    ]  # fmt: skip
    assert [row.difference for row in rows] == alone
    assert [row.difference.units for row in rows] == [40, 40, 7]
    p = [difference.p for difference in alone]
    assert [row.p_holm for row in rows] == holm(p).tolist()
    assert [row.p_bh for row in rows] == benjamini_hochberg(p).tolist()
    assert rows == correct(alone)


def test_further_rows_change_the_correction_and_nothing_else():
    one = contest(0, 1)
    few, more = (compare_family([replace(one, systems=one.systems * n)], **FAST) for n in (1, 3))
    assert few[0].difference == more[0].difference
    p = few[0].difference.p
    assert few[0].p_holm == p < more[0].p_holm == min(1, 3 * p)


def test_no_row():
    assert compare_family([]) == [] == compare_family([contest(0, 0)], **FAST)


def test_caption():
    assert "exactly the 1,200 tests of this table" in caption(1200)
    assert "the one test of this table" in caption(1)


def test_what_the_bootstrap_refuses_is_refused():
    with pytest.raises(ValueError, match="replicates"):
        compare_family([contest(0, 1)], replicates=99)
