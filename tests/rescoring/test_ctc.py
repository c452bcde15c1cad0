"""Generators and exact CTC quantities against enumeration of every path."""

import itertools
from collections import Counter, defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from espnet_latentasr.errors import DataError
from espnet_latentasr.rescoring.ctc import (
    alignment_posterior,
    alignment_posteriors,
    log_probability,
    viterbi,
)
from espnet_latentasr.rescoring.ctc_paths import (
    best_paths,
    collapse,
    distinct,
    keyed_rng,
    log_posteriors,
    path_scores,
    prefix_search,
    sample_paths,
)


def random_lp(frames, labels, seed, sharp=1.5):
    logits = sharp * np.random.default_rng(seed).standard_normal((frames, labels))
    return torch.tensor(logits).log_softmax(-1)


def enumerate_paths(lp, scale=1.0, beam=None):
    """Every path with its score; pruned arc by arc, as the definition says."""
    lp = np.asarray(lp)
    deficit = lp.max(1, keepdims=True) - lp
    scores = {}
    for path in itertools.product(range(lp.shape[1]), repeat=len(lp)):
        gaps = [0.0, *(deficit[t, k] for t, k in enumerate(path))]
        if beam is None or all(a + b <= beam for a, b in zip(gaps, gaps[1:])):
            scores[path] = scale * sum(lp[t, k] for t, k in enumerate(path))
    return scores


def collapse_slowly(path, blank=0):
    return tuple(label for label, _ in itertools.groupby(path) if label != blank)


def by_text(scores, blank=0):
    grouped = defaultdict(list)
    for path, score in scores.items():
        grouped[collapse_slowly(path, blank)].append((score, path))
    return grouped


tiny = st.builds(random_lp, st.integers(1, 5), st.integers(2, 4), st.integers(0, 10**6))


@settings(max_examples=25)
@given(tiny, st.booleans())
def test_probability_viterbi_and_gamma_equal_enumeration(lp, last):
    blank = lp.shape[1] - 1 if last else 0
    grouped = by_text(enumerate_paths(lp), blank)
    hyps = list(grouped)
    exact = [np.logaddexp.reduce([s for s, _ in grouped[h]]) for h in hyps]
    assert log_probability(lp, hyps, blank=blank).numpy() == pytest.approx(exact, abs=1e-11)
    best, paths = viterbi(lp, hyps, blank=blank)
    assert best.numpy() == pytest.approx([max(grouped[h])[0] for h in hyps], abs=1e-11)
    assert collapse(paths.numpy(), blank) == hyps
    assert path_scores(lp.numpy(), paths.numpy()) == pytest.approx(best.numpy(), abs=1e-11)
    gamma, labels = alignment_posteriors(lp, hyps, blank=blank)
    for index, hyp in enumerate(hyps):
        wanted = np.zeros(lp.shape)
        for score, path in grouped[hyp]:
            wanted[range(len(lp)), path] += np.exp(score - exact[index])
        assert gamma[index].numpy() == pytest.approx(wanted[:, labels.numpy()], abs=1e-11)


def test_all_probabilities_of_a_posterior_add_up_to_one():
    lp = random_lp(5, 4, 0)
    total = log_probability(lp, list(by_text(enumerate_paths(lp)))).logsumexp(0)
    assert float(total) == pytest.approx(0, abs=1e-12)


def test_impossible_hypotheses_are_minus_infinity_not_best():
    lp = random_lp(3, 3, 1)
    found = log_probability(lp, [(1, 1), (1, 1, 1), (1, 2, 1, 2), ()])
    assert torch.isinf(found).tolist() == [False, True, True, False]
    assert (found <= 0).all() and float(found[3]) == pytest.approx(float(lp[:, 0].sum()))
    for function in (viterbi, alignment_posteriors):
        with pytest.raises(DataError, match="hypothesis 1: 3 tokens are impossible in 3 frames"):
            function(lp, [(1,), (1, 1, 1)])


def test_labels_of_probability_zero():
    lp = torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.25, 0.25]], dtype=torch.float64).log()
    found = log_probability(lp, [(1,), (2,), (2, 1), (1, 2)]).exp()
    assert found.numpy() == pytest.approx([0.5, 0.125, 0.0, 0.125])
    gamma = alignment_posterior(lp, (2,))
    assert gamma.numpy() == pytest.approx(np.array([[1, 0, 0], [0, 0, 1.0]]))
    with pytest.raises(DataError, match="impossible"):
        alignment_posterior(lp, (2, 1))


def test_gamma_identities_on_a_longer_posterior():
    lp, hyp = random_lp(60, 30, 2), (3, 3, 7, 29, 7)
    gamma = alignment_posterior(lp, hyp)
    assert torch.allclose(gamma.sum(1), torch.ones(60, dtype=torch.float64), atol=1e-12)
    assert gamma.min() > -1e-12
    others = [k for k in range(30) if k not in (0, *hyp)]
    assert float(gamma[:, others].abs().max()) == 0
    for token, occurrences in Counter(hyp).items():
        assert float(gamma[:, token].sum()) >= occurrences - 1e-9
    # Towards the logits the gradient of log P is gamma - p.
    logits = lp.clone().requires_grad_()
    log_probability(logits.log_softmax(-1), [hyp]).sum().backward()
    assert torch.allclose(logits.grad, gamma - lp.exp(), atol=1e-10)


def test_one_hypothesis_alone_equals_it_among_many():
    lp, rng = random_lp(40, 20, 3), np.random.default_rng(0)
    hyps = [tuple(rng.integers(1, 20, n)) for n in (0, 1, 5, 12)]
    together = log_probability(lp, hyps)
    assert [float(log_probability(lp, [h])) for h in hyps] == together.tolist()
    assert log_probability(lp, hyps).equal(together), "not deterministic"
    assert log_probability(lp, []).shape == (0,)


@pytest.mark.parametrize("token", [0, 4, -1])
def test_tokens_of_another_token_list_are_refused(token):
    with pytest.raises(DataError, match=f"hypothesis 1: token {token} is the blank or outside 0..3"):
        log_probability(random_lp(3, 4, 0), [(1,), (token,)])


@pytest.mark.parametrize("scale", [1.0, 0.5])
@pytest.mark.parametrize("beam", [None, 100.0, 4.0, 1.5])
def test_systematic_frequencies_are_the_pruned_scaled_probabilities(scale, beam):
    lp, num = random_lp(5, 4, 7), 200_000
    scores = enumerate_paths(lp, scale, beam)
    assert (len(scores) < 4**5) == (beam in (4.0, 1.5))
    log_total = np.logaddexp.reduce(list(scores.values()))
    drawn = Counter(map(tuple, sample_paths(lp.numpy(), num, scale=scale, beam=beam).tolist()))
    assert drawn.keys() <= scores.keys(), "a pruned path was drawn"
    for path, score in scores.items():
        # Systematic sampling is off by less than one path at each of an interval's two ends.
        assert abs(drawn[path] - num * np.exp(score - log_total)) < 1 + 1e-6 * num


def test_random_frequencies():
    lp, num = random_lp(3, 3, 5), 40_000
    scores = enumerate_paths(lp, 1.0, 3.0)
    log_total = np.logaddexp.reduce(list(scores.values()))
    paths = sample_paths(lp.numpy(), num, beam=3.0, rng=keyed_rng(1, "utt"))
    drawn = Counter(map(tuple, paths.tolist()))
    assert drawn.keys() <= scores.keys()
    for path, score in scores.items():
        p = np.exp(score - log_total)
        assert abs(drawn[path] / num - p) < 5 * np.sqrt(p / num) + 1e-4


def test_random_draws_depend_on_seed_and_utterance_only():
    lp = random_lp(20, 6, 0).numpy()
    one, same, seed, utt = (
        sample_paths(lp, 30, rng=keyed_rng(*key)) for key in [(1, "a"), (1, "a"), (2, "a"), (1, "b")]
    )
    assert (one == same).all() and (one != seed).any() and (one != utt).any()
    assert (sample_paths(lp, 30) == sample_paths(lp, 30)).all()


def test_long_posteriors_keep_the_probabilities_of_each_frame():
    # 25 open frames among 500 certain ones: 24 bits, which the 53 of a point hold.
    probabilities = np.full((500, 50), 1e-9)
    probabilities[:, 0] = 1 - 49e-9
    probabilities[10::20, :2] = [0.6 - 24e-9, 0.4 - 24e-9]
    lp = log_posteriors(np.log(probabilities))
    for rng in (None, keyed_rng(0, "u")):
        paths = sample_paths(lp, 2000, beam=8.0, rng=rng)
        assert paths[:, 10::20].mean() == pytest.approx(0.4, abs=0.02)
        assert paths[:, 10::20].mean(0) == pytest.approx(np.full(25, 0.4), abs=0.06)
        assert np.delete(paths, np.s_[10::20], axis=1).max() == 0


@settings(max_examples=25)
@given(tiny, st.integers(1, 7))
def test_best_paths_are_all_paths_in_order(lp, chunk):
    scores = enumerate_paths(lp)
    paths = np.concatenate(list(best_paths(lp.numpy(), chunk)))
    assert len({tuple(p) for p in paths.tolist()}) == len(paths) == len(scores)
    assert path_scores(lp.numpy(), paths) == pytest.approx(sorted(scores.values(), reverse=True))


def test_the_first_path_of_each_text_is_its_viterbi_path():
    lp = random_lp(30, 8, 4)
    paths = next(best_paths(lp.numpy(), 500))
    found = distinct(paths)
    firsts = path_scores(lp.numpy(), paths[[rows[0] for rows in found.values()]])
    assert firsts == pytest.approx(viterbi(lp, list(found))[0].numpy())


def test_best_paths_skip_impossible_labels():
    lp = np.array([[0.0, -np.inf], np.log([0.75, 0.25])])
    assert np.concatenate(list(best_paths(lp))).tolist() == [[0, 0], [0, 1]]


@settings(max_examples=25)
@given(tiny)
def test_prefix_search_without_pruning_is_exact(lp):
    found = prefix_search(lp.numpy(), 10_000)
    grouped = by_text(enumerate_paths(lp))
    assert {tokens for tokens, _ in found} == set(grouped)
    values = [value for _, value in found]
    assert values == pytest.approx(log_probability(lp, [t for t, _ in found]).numpy())
    assert values == sorted(values, reverse=True)


def test_narrow_prefix_search_bounds_from_below():
    lp = random_lp(40, 12, 6)
    found = prefix_search(lp.numpy(), 20, beam=4.0)
    assert len(found) == 20
    exact = log_probability(lp, [tokens for tokens, _ in found]).numpy()
    assert (exact >= np.array([value for _, value in found]) - 1e-9).all()


def test_collapse():
    paths = np.array([[0, 1, 1, 0, 1], [2, 2, 2, 2, 2], [0, 0, 0, 0, 0], [1, 2, 0, 2, 1]])
    assert collapse(paths) == [(1, 1), (2,), (), (1, 2, 2, 1)]
    assert collapse(paths, blank=2) == [(0, 1, 0, 1), (), (0,), (1, 0, 1)]


def test_posteriors_are_checked():
    lp = random_lp(4, 3, 0)
    assert log_posteriors(lp.float()).dtype == np.float64
    assert log_posteriors(lp, 3) == pytest.approx(lp.numpy())
    strided = np.asfortranarray(np.repeat(lp.numpy(), 2, 0))[::2]
    assert not strided.flags.c_contiguous and log_posteriors(strided).flags.c_contiguous
    assert (log_posteriors(strided) == log_posteriors(lp)).all()
    for bad, message in [
        (lp.T, r"u: shape \(3, 4\), \(frames, 3\) expected; transposed"),
        (lp[None], r"shape \(1, 4, 3\)"),
        (lp[:0], r"shape \(0, 3\)"),
        (lp.exp(), "frame . sum to .* natural-log"),
        (lp / np.log(10), "natural-log"),
        (lp + 800, "natural-log"),
        (torch.full((2, 3), -torch.inf), "sum to 0,"),
        (lp * torch.tensor([1, np.nan, 1]), "NaN in frame 0"),
    ]:
        with pytest.raises(DataError, match=message):
            log_posteriors(bad, 3, "u")
