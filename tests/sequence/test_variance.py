"""Alignments drawn given a text, and the variances of three gradient estimators, against enumeration."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from espnet_latentasr.errors import DataError
from espnet_latentasr.rescoring.ctc import log_probability
from espnet_latentasr.rescoring.ctc_paths import collapse
from espnet_latentasr.sequence.variance import (
    full_gamma,
    gradient_variance,
    gradients,
    one_hot,
    sample_alignments,
)


def random_lp(frames, labels, seed, sharp=1.5):
    logits = sharp * np.random.default_rng(seed).standard_normal((frames, labels))
    return torch.tensor(logits).log_softmax(-1)


def alignments(lp, hyp, blank=0):
    """Every alignment of a text and its probability given the text."""
    paths = np.array(list(itertools.product(range(lp.shape[1]), repeat=len(lp))))
    paths = np.array([p for p, tokens in zip(paths, collapse(paths, blank)) if tokens == tuple(hyp)])
    mass = lp.numpy()[range(len(lp)), paths].sum(1)
    return paths, np.exp(mass - np.logaddexp.reduce(mass))


@pytest.mark.parametrize("blank", [0, 2])
def test_alignments_are_drawn_with_their_probability(blank):
    lp, draws = random_lp(5, 3, 0), 4000
    a, b = (k for k in range(3) if k != blank)
    hyps = [(a,), (), (a, a), (b, a, b)]
    found = sample_alignments(lp, hyps, draws, np.random.default_rng(0), blank=blank).numpy()
    assert found.shape == (4, draws, 5)
    for hyp, paths in zip(hyps, found):
        assert set(collapse(paths, blank)) == {hyp}, "every drawn alignment collapses to its text"
        for path, p in zip(*alignments(lp, hyp, blank)):
            share = (paths == path).all(1).mean()
            assert share == pytest.approx(p, abs=4.5 * (p * (1 - p) / draws) ** 0.5 + 1e-9)
    with pytest.raises(DataError, match="hypothesis 1: 3 tokens are impossible in 4 frames"):
        sample_alignments(lp[:4], [(a,), (a, a, a)], 1, np.random.default_rng(0), blank=blank)


def test_frequencies_of_labels_are_gamma_on_a_longer_posterior():
    lp, hyps = random_lp(40, 12, 1), [(3, 3, 7, 11, 7), (5,)]
    found = one_hot(sample_alignments(lp, hyps, 3000, np.random.default_rng(1)), 12).mean(1)
    assert torch.allclose(found, full_gamma(lp, hyps), atol=0.05)


@settings(max_examples=15)
@given(st.integers(3, 4), st.integers(2, 3), st.booleans(), st.integers(0, 10**6))
def test_law_of_total_variance_by_enumeration(frames, labels, projected, seed):
    """Var(sampled) = Var_y(marginal) + E_y Var(sampled | y), exactly, texts drawn from the model."""
    lp = random_lp(frames, labels, seed)
    rng = np.random.default_rng(seed)
    paths = np.array(list(itertools.product(range(labels), repeat=frames)))
    hyps = list(dict.fromkeys(collapse(paths)))
    states = torch.tensor(rng.standard_normal((frames, 2))) if projected else None
    weight = log_probability(lp, hyps).exp()
    advantage, p = torch.tensor(rng.standard_normal(len(hyps))), lp.exp()
    marginal = gradients(full_gamma(lp, hyps), p, advantage, states)
    total = second = within = 0.0
    for index, hyp in enumerate(hyps):
        every, mass = alignments(lp, hyp)
        mass = torch.tensor(mass)[:, None]
        each = gradients(
            one_hot(torch.tensor(every), labels), p, advantage[index].expand(len(every)), states
        )
        # Rao-Blackwell: the marginal gradient is the sampled one's expectation given the text.
        assert torch.allclose((mass * each).sum(0), marginal[index], atol=1e-10)
        total = total + weight[index] * (mass * each).sum(0)
        second = second + weight[index] * (mass * each.square()).sum(0)
        within = within + weight[index] * ((mass * each.square()).sum(0) - marginal[index].square())
    between = (weight[:, None] * marginal.square()).sum(0) - total.square()
    assert torch.allclose(second - total.square(), between + within, atol=1e-10)
    assert bool((within >= -1e-12).all()), (
        "so the sampled estimator is never the quieter one in expectation"
    )


def test_expected_variance_over_a_list_is_marginal_plus_within():
    lp, rng = random_lp(6, 3, 2), np.random.default_rng(3)
    hyps, costs = [(1,), (2,), (1, 2), (2, 1)], [0, 1, 1, 2]
    found = [gradient_variance(lp, hyps, costs, rng) for _ in range(1500)]
    measured = np.array([f.sampled for f in found])
    error = measured.std() / len(measured) ** 0.5
    assert found[0].within > 0 and found[0].draws == 0
    assert measured.mean() == pytest.approx(found[0].sampled_expected, abs=4 * error)
    assert found[0].sampled_expected >= found[0].marginal


def test_closed_form_within_equals_enumeration_and_draws():
    lp, hyps, costs = random_lp(4, 3, 4), [(1,), (1, 2)], [0.0, 3.0]
    found = gradient_variance(lp, hyps, costs, np.random.default_rng(0))
    wanted = 0.0
    for hyp in hyps:
        paths, mass = alignments(lp, hyp)
        hot, mass = one_hot(torch.tensor(paths), 3).flatten(1), torch.tensor(mass)[:, None]
        mean = (mass * hot).sum(0)
        wanted += 1.5**2 * float(((mass * hot.square()).sum(0) - mean.square()).mean()) / 2
    assert found.within == pytest.approx(wanted)
    # With the identity as encoder outputs the projection's gradient is the logits', so draws must agree.
    same = gradient_variance(
        lp, hyps, costs, np.random.default_rng(0), states=torch.eye(4, dtype=torch.float64), draws=4000
    )
    assert same.marginal == pytest.approx(found.marginal) and same.viterbi == pytest.approx(found.viterbi)
    assert same.within == pytest.approx(found.within, rel=0.1) and same.draws == 4000


def test_gradients_are_those_of_autograd():
    torch.manual_seed(0)
    states = torch.randn(6, 4, dtype=torch.float64)
    weight = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    lp = (states @ weight.T).log_softmax(-1)
    hyps, advantage = [(1, 2), (2,)], torch.tensor([0.5, -0.5], dtype=torch.float64)
    found = gradients(full_gamma(lp, hyps), lp.detach().exp(), advantage, states)
    for row, hyp, a in zip(found, hyps, advantage):
        (wanted,) = torch.autograd.grad(-a * log_probability(lp, [hyp])[0], weight, retain_graph=True)
        assert torch.allclose(row.view(3, 4), wanted, atol=1e-10)
    path = [0, 1, 1, 0, 2, 2]
    (wanted,) = torch.autograd.grad(-0.5 * lp[range(6), path].sum(), weight)
    one = gradients(one_hot(torch.tensor(path), 3), lp.detach().exp(), advantage[0], states)
    assert torch.allclose(one.view(3, 4), wanted, atol=1e-10)


def test_an_alignment_without_doubt_leaves_no_difference():
    lp = torch.full((3, 3), 1e-9, dtype=torch.float64)
    lp[[0, 1, 2], [1, 0, 2]] = 1.0
    found = gradient_variance(
        lp.log().log_softmax(-1), [(1, 2), (1, 2, 1)], [0, 1], np.random.default_rng(0)
    )
    assert found.viterbi == pytest.approx(found.marginal, rel=1e-3)
    with pytest.raises(DataError, match="two different costs expected"):
        gradient_variance(lp.log(), [(1, 2), (1,)], [1, 1], np.random.default_rng(0))
