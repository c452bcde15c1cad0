"""Paired bootstrap against hand-made cases, scipy and its own laws."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from espnet_latentasr.stats import bootstrap as module
from espnet_latentasr.stats.bootstrap import paired_bootstrap, paired_bootstrap_many

ROWS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 20)), min_size=2, max_size=12
).filter(lambda rows: any(length for *_, length in rows))


def arrays(rows):
    return [np.array(column) for column in zip(*rows)]


def random_set(seed, utterances=60):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 15, utterances)
    return rng.binomial(lengths, 0.2), rng.binomial(lengths, 0.18), lengths


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


def test_blocks_do_not_change_the_draw(monkeypatch):
    whole = paired_bootstrap(*random_set(0), replicates=700)
    monkeypatch.setattr(module, "CELLS", 200)
    assert paired_bootstrap(*random_set(0), replicates=700) == whole


def test_the_draws_are_those_of_one_plain_loop():
    baseline, system, lengths = random_set(4)
    rng = np.random.default_rng(42)
    drawn = []
    for _ in range(300):
        index = rng.integers(len(lengths), size=len(lengths))
        drawn.append((system - baseline)[index].sum() / lengths[index].sum())
    found = paired_bootstrap(baseline, system, lengths, replicates=300, seed=42)
    assert [found.low, found.high] == pytest.approx(np.quantile(drawn, [0.025, 0.975]))
    at_most, at_least = (np.array(drawn) <= 0).sum(), (np.array(drawn) >= 0).sum()
    assert found.p_one == (at_least + 1) / 301
    assert found.p == min(1, 2 * (min(at_most, at_least) + 1) / 301)


def test_p_against_all_draws():
    baseline, system, lengths = np.array([3, 1, 0]), np.array([1, 2, 0]), np.array([5, 4, 6])
    difference = system - baseline
    draws = [sum(difference[i] for i in d) for d in itertools.product(range(3), repeat=3)]
    chance = np.mean(np.array(draws) >= 0)
    found = paired_bootstrap(baseline, system, lengths, replicates=20_000)
    assert found.p_one == pytest.approx(chance, abs=0.012)


@settings(max_examples=40)
@given(ROWS)
def test_swapping_systems_mirrors_everything(rows):
    baseline, system, lengths = arrays(rows)
    one = paired_bootstrap(baseline, system, lengths, replicates=100)
    two = paired_bootstrap(system, baseline, lengths, replicates=100)
    assert one.delta == -two.delta and one.p == two.p
    assert (one.better, one.worse, one.same) == (two.worse, two.better, two.same)
    assert one.low == pytest.approx(-two.high) and one.high == pytest.approx(-two.low)
    assert one.p == min(1, 2 * min(one.p_one, two.p_one))


@settings(max_examples=60)
@given(ROWS, st.integers(0, 3), st.sampled_from([None, 2, 3]))
def test_delta_lies_in_its_interval(rows, seed, speakers):
    clusters = None if speakers is None else [f"s{i % speakers}" for i in range(len(rows))]
    found = paired_bootstrap(*arrays(rows), clusters=clusters, replicates=100, seed=seed)
    assert found.low - 1e-12 <= found.delta <= found.high + 1e-12
    assert 0 < found.p <= 1 and 0 < found.p_one <= 1


def test_one_long_utterance_among_empty_references():
    # A third of the draws have no reference at all; they count as no difference.
    baseline, system = np.array([5] + [0] * 50), np.array([0] + [1] * 50)
    found = paired_bootstrap(baseline, system, np.array([10] + [0] * 50), replicates=2000)
    assert found.low == 0 and found.high >= found.delta == 4.5


def test_seeds_agree_about_as_far_as_draws_do():
    found = [paired_bootstrap(*random_set(7, 400), seed=seed) for seed in range(3)]
    assert len({d.delta for d in found}) == 1 and len({d.low for d in found}) == 3
    assert np.ptp([d.low for d in found]) < 0.001 and np.ptp([d.p for d in found]) < 0.03
    assert paired_bootstrap(*random_set(7, 400), seed=2) == found[2]


@pytest.mark.parametrize("clusters", [None, [f"s{i // 6}" for i in range(60)]])
def test_many_systems_share_the_draws_of_one(clusters):
    baseline, _, lengths = random_set(1)
    systems = [random_set(seed)[1] for seed in (1, 2, 3)] + [baseline]
    options = {"clusters": clusters, "replicates": 500, "seed": 9}
    together = paired_bootstrap_many(baseline, np.stack(systems), lengths, **options)
    assert together == [paired_bootstrap(baseline, s, lengths, **options) for s in systems]
    assert (together[3].low, together[3].high, together[3].p) == (0, 0, 1)
    assert paired_bootstrap_many(baseline, [], lengths) == []


def test_speakers_are_drawn_whole():
    baseline, system, lengths = random_set(5)
    speakers = np.array([f"s{i % 8}" for i in range(60)])
    summed = [
        np.array([values[speakers == s].sum() for s in np.unique(speakers)])
        for values in (baseline, system, lengths)
    ]
    found = paired_bootstrap(baseline, system, lengths, clusters=speakers, replicates=500)
    same = paired_bootstrap(*summed, replicates=500)
    assert (found.delta, found.low, found.high, found.p) == (same.delta, same.low, same.high, same.p)
    assert found.units == 8 and found.better + found.worse + found.same == 60
    alone = paired_bootstrap(baseline, system, lengths, clusters=[f"{i:02d}" for i in range(60)])
    assert alone == paired_bootstrap(baseline, system, lengths)


def test_correlated_speakers_widen_the_interval():
    rng = np.random.default_rng(8)
    gain = np.repeat(rng.integers(-2, 3, 20), 30)
    lengths, baseline = np.full(600, 10), np.full(600, 4)
    by_speaker = paired_bootstrap(
        baseline, baseline + gain, lengths, clusters=np.repeat(np.arange(20), 30), replicates=1000
    )
    by_utterance = paired_bootstrap(baseline, baseline + gain, lengths, replicates=1000)
    assert by_speaker.delta == by_utterance.delta
    assert by_speaker.high - by_speaker.low > 3 * (by_utterance.high - by_utterance.low)


@pytest.mark.parametrize("clusters", [None, ["only"] * 3])
def test_one_unit_says_nothing_about_chance(clusters):
    size = 1 if clusters is None else 3
    found = paired_bootstrap(
        np.full(size, 2), np.full(size, 1), np.full(size, 4), clusters=clusters
    )
    assert math.isnan(found.low) and math.isnan(found.high)
    assert (found.delta, found.p, found.p_one, found.units) == (-0.25, 1, 1, 1)
    assert found.better == size


def test_draws_of_another_statistic_are_a_defect(monkeypatch):
    baseline, system, lengths = random_set(6)
    monkeypatch.setattr(module, "_replicates", lambda units, n, seed: [np.full((n, 1), 0.9)])
    with pytest.raises(AssertionError, match="outside its interval"):
        paired_bootstrap(baseline, system, lengths)


def test_refuses_arrays_that_do_not_belong_together():
    with pytest.raises(ValueError, match="three arrays of one length"):
        paired_bootstrap(np.array([1]), np.array([1, 2]), np.array([3, 3]))
    with pytest.raises(ValueError, match="0 words"):
        paired_bootstrap(np.array([1]), np.array([1]), np.array([0]))
    with pytest.raises(ValueError, match="2 clusters for 3 utterances"):
        paired_bootstrap(*[np.ones(3)] * 3, clusters=["a", "b"])
    with pytest.raises(ValueError, match="system 1: a row of counts"):
        paired_bootstrap(np.array([1, 1]), np.array([0.5, 1]), np.array([3, 3]))
    for value in (np.nan, -1):
        with pytest.raises(ValueError, match="lengths: a row of counts"):
            paired_bootstrap(np.array([1, 1]), np.array([1, 1]), np.array([value, 3]))


def test_refuses_too_few_draws_and_a_level_of_no_interval():
    for options in ({"replicates": 99}, {"level": 0.5}, {"level": 1.0}):
        with pytest.raises(ValueError, match="at least 100 replicates and a level"):
            paired_bootstrap(*random_set(0), **options)
