"""Losses over candidate lists: hand-computed cases, enumeration of all texts, finite differences."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from espnet_latentasr.errors import DataError
from espnet_latentasr.rescoring.ctc import log_probability
from espnet_latentasr.rescoring.ctc_paths import collapse
from espnet_latentasr.sequence.batch import frames_needed, log_probabilities
from espnet_latentasr.sequence.candidates import Drawn, word_errors
from espnet_latentasr.sequence.config import MwerConfig, RaftConfig, SequenceConfig
from espnet_latentasr.sequence.mwer import advantages, mwer_eq4, mwer_grpo, mwer_nbest
from espnet_latentasr.sequence.objective import as_lists, reference_nll, sequence_loss
from espnet_latentasr.sequence.raft import oracle_index, raft

FULL = torch.tensor([[True, True, True]])


def tensor(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def random_logits(*shape, seed=0):
    return torch.tensor(1.5 * np.random.default_rng(seed).standard_normal(shape))


def drawn(hyps, reference, utt_id="u"):
    errors = np.array([word_errors(reference, hyp) for hyp in hyps], dtype=np.int64)
    texts = tuple(" ".join(map(str, hyp)) for hyp in hyps)
    return Drawn(utt_id, tuple(map(tuple, hyps)), texts, errors, len(reference))


def test_eq4_by_hand():
    log_probs, costs = tensor([-1.0, -2.0, -4.0]), tensor([0.0, 1.0, 2.0])
    assert float(mwer_eq4(log_probs, costs, FULL)) == -1 * -1 + 0 * -2 + 1 * -4
    log_probs.requires_grad_()
    mwer_eq4(log_probs, costs, FULL).sum().backward()
    assert log_probs.grad.tolist() == [[-1, 0, 1]], "the gradient is the advantage, whatever log P is"


def test_eq4_has_no_bound_and_nbest_has():
    costs = tensor([0.0, 1.0, 2.0])
    for nats in (10.0, 1e3, 1e6):
        bad = tensor([-1.0, -2.0, -nats])
        assert float(mwer_eq4(bad, costs, FULL)) == pytest.approx(1 - nats)
        assert -1 <= float(mwer_nbest(bad, costs, FULL)) <= 1
    gone = tensor([-1.0, -2.0, -1e3]).requires_grad_()
    mwer_nbest(gone, costs, FULL).sum().backward()
    assert float(gone.grad[0, 2]) == 0


def test_nbest_by_hand():
    log_probs, costs = tensor([0.5, 0.25, 0.25]).log(), tensor([0.0, 1.0, 4.0])
    assert float(mwer_nbest(log_probs, costs, FULL)) == pytest.approx(1.25 - 5 / 3)
    root = tensor([0.5, 0.25, 0.25]) ** 0.5
    warm = float((root / root.sum() * costs).sum()) - 5 / 3
    assert float(mwer_nbest(log_probs, costs, FULL, temperature=2.0)) == pytest.approx(warm)


def test_what_the_mask_leaves_out_changes_nothing():
    part = torch.tensor([[True, True, False]])
    log_probs, costs = tensor([-1.0, -3.0, math.nan]), tensor([1.0, 0.0, 99.0])
    short = tensor([-1.0, -3.0]), tensor([1.0, 0.0]), part[:, :2]
    lengths, options = torch.tensor([[2, 3, 0]]), {"clip_low": 0.1, "clip_high": 0.2}
    assert float(advantages(costs, part).sum()) == 0
    for function in (mwer_eq4, mwer_nbest):
        variable = log_probs.clone().requires_grad_()
        found = function(variable, costs, part)
        found.sum().backward()
        assert found.item() == function(*short).item() and variable.grad[0, 2] == 0
    found = mwer_grpo(log_probs, log_probs - 0.1, costs, lengths, part, **options)
    assert float(found) == float(
        mwer_grpo(short[0], short[0] - 0.1, short[1], lengths[:, :2], short[2], **options)
    )


def test_an_impossible_candidate_is_refused_where_it_would_be_multiplied():
    with pytest.raises(
        DataError, match="row 0, candidate 1: log-probability -inf, a finite number expected"
    ):
        mwer_eq4(tensor([-1.0, -math.inf, -2.0]), tensor([0.0, 1.0, 2.0]), FULL)


def grpo(moved, costs=(0.0, 2.0)):
    """Loss and gradient of two candidates of two tokens whose ratios are ``moved``."""
    old = tensor([-3.0, -4.0])
    log_probs = (old + 2 * tensor(list(moved)).log()).requires_grad_()
    mask, lengths = torch.ones(1, 2, dtype=torch.bool), torch.full((1, 2), 2)
    loss = mwer_grpo(log_probs, old, tensor(list(costs)), lengths, mask, clip_low=0.1, clip_high=0.2)
    loss.sum().backward()
    return float(loss), log_probs.grad[0].tolist()


def test_grpo_starts_as_reinforce_and_then_really_clips():
    # Advantages as rewards are +1 and -1; at ratio 1 the gradient is -A / (G |y|).
    loss, gradient = grpo([1.0, 1.0])
    assert loss == pytest.approx(0) and gradient == pytest.approx([-0.25, 0.25])
    # Both moved beyond their bound in the direction of their advantage: nothing is left to follow.
    loss, gradient = grpo([1.3, 0.8])
    assert loss == pytest.approx(-(1.2 - 0.9) / 2) and gradient == [0, 0]
    # Moved the wrong way: never clipped, and the gradient brings them back.
    loss, gradient = grpo([0.8, 1.3])
    assert loss == pytest.approx(-(0.8 - 1.3) / 2)
    assert gradient == pytest.approx([-0.8 / 4, 1.3 / 4])


def test_raft_by_hand():
    nll, lengths = tensor(6.0), torch.tensor([3])
    reference, words = tensor(10.0), torch.tensor([5])
    assert float(raft(nll, lengths, reference, words, 0.25)) == 0.75 * 2 + 0.25 * 2
    assert float(raft(nll, torch.tensor([0]), reference, words, 0.0)) == 6, "empty counts as one token"
    assert float(raft(nll, lengths, tensor(math.inf), words, 0.0)) == 2
    errors = torch.tensor([[2, 1, 1], [3, 3, 3], [2, 0, 0]])
    mask = torch.tensor([[True] * 3, [True] * 3, [True, False, False]])
    assert oracle_index(errors, mask).tolist() == [1, 0, 0], "ties go to the lowest index"
    assert oracle_index(errors.double(), mask).tolist() == [1, 0, 0]


@settings(max_examples=15)
@given(st.integers(2, 4), st.integers(2, 3), st.integers(0, 10**6))
def test_list_of_all_texts_gives_the_true_expected_errors_and_gradient(frames, labels, seed):
    logits = random_logits(frames, labels, seed=seed).requires_grad_()
    paths = np.array(list(itertools.product(range(labels), repeat=frames)))
    reference = (1,)
    # Enumeration: the sum over all paths of probability times errors.
    errors = torch.tensor([word_errors(reference, text) for text in collapse(paths)], dtype=torch.float64)
    mass = logits.log_softmax(-1)[range(frames), torch.tensor(paths)].sum(-1).exp()
    (wanted,) = torch.autograd.grad((mass * errors).sum(), logits)
    texts = list(dict.fromkeys(collapse(paths)))
    lp = logits.log_softmax(-1)[None]
    log_probs = log_probabilities(lp, torch.tensor([frames]), [0] * len(texts), texts)[None]
    costs = tensor([float(word_errors(reference, text)) for text in texts])
    loss = mwer_nbest(log_probs, costs, torch.ones_like(costs, dtype=torch.bool))
    assert float(loss + costs.mean()) == pytest.approx(float((mass * errors).sum()), abs=1e-10)
    (found,) = torch.autograd.grad(loss.sum(), logits)
    assert torch.allclose(found, wanted, atol=1e-9)


def test_probabilities_of_a_padded_batch_are_those_of_each_utterance():
    lp = random_logits(2, 9, 5).log_softmax(-1)
    frames, owners = torch.tensor([9, 6]), [0, 1, 1, 0, 1]
    hyps = [(1, 2, 3), (), (4, 4), (2,), (3, 1, 3, 1)]
    found = log_probabilities(lp, frames, owners, hyps)
    for value, row, hyp in zip(found, owners, hyps):
        assert float(value) == pytest.approx(
            float(log_probability(lp[row, : frames[row]], [hyp])), abs=1e-10
        )
    swapped = lp.roll(1, -1)  # the blank is label 1 now
    moved = [tuple((k + 1) % 5 for k in hyp) for hyp in hyps]
    assert log_probabilities(swapped, frames, owners, moved, blank=1).tolist() == pytest.approx(
        found.tolist()
    )
    assert log_probabilities(lp, frames, [], []).shape == (0,)
    assert [frames_needed(h) for h in ((), (1,), (1, 1), (1, 2, 1), (2, 2, 2))] == [0, 1, 3, 3, 5]


OBJECTIVES = {
    "nbest": SequenceConfig(mwer=MwerConfig(anchor=0.1)),
    "eq4": SequenceConfig(mwer=MwerConfig("eq4", cost="errors")),
    "grpo": SequenceConfig(mwer=MwerConfig("grpo", anchor=0.0)),
    "raft": SequenceConfig("raft"),
    "reference": SequenceConfig("raft", raft=RaftConfig(1.0)),
}
LISTS = [drawn([(1, 2), (1,), (2, 1)], (1,)), drawn([(2,), (2, 2)], (1, 2))]
TARGETS = [(1,), (1, 2)]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_gradient_of_a_batch_by_finite_differences(name):
    logits = random_logits(2, 4, 3, seed=3).requires_grad_()
    old = random_logits(2, 4, 3, seed=4).log_softmax(-1)
    frames = torch.tensor([4, 3])

    def losses(values):
        lp = values.log_softmax(-1)
        return sequence_loss(lp, frames, TARGETS, LISTS, OBJECTIVES[name], old_lp=old)[0]

    assert torch.autograd.gradcheck(losses, logits, atol=1e-6)
    # What is beyond an utterance's frames has no influence.
    (gradient,) = torch.autograd.grad(losses(logits).sum(), logits)
    assert float(gradient[1, 3].abs().max()) == 0


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_batch_is_its_utterances(name):
    lp, old = (random_logits(2, 5, 4, seed=s).log_softmax(-1) for s in (5, 6))
    frames = torch.tensor([4, 5])
    together, shown = sequence_loss(lp, frames, TARGETS, LISTS, OBJECTIVES[name], old_lp=old)
    alone, parts = [], []
    for row in range(2):
        one = slice(row, row + 1)
        loss, part = sequence_loss(
            lp[one], frames[one], TARGETS[one], LISTS[one], OBJECTIVES[name], old_lp=old[one]
        )
        alone.append(float(loss))
        parts.append(part)
    assert together.tolist() == pytest.approx(alone)
    for key, value in shown.items():
        assert float(value) == pytest.approx(np.mean([float(part[key]) for part in parts])), key


def test_a_batch_by_hand():
    lp = random_logits(2, 5, 4, seed=7).log_softmax(-1)
    frames = torch.tensor([5, 5])
    nll = reference_nll(lp, frames, TARGETS)
    loss, shown = sequence_loss(lp, frames, TARGETS, LISTS, OBJECTIVES["reference"])
    assert loss.tolist() == pytest.approx([float(nll[0]), float(nll[1]) / 2])
    best = [float(log_probability(lp[0], [(1,)])), float(log_probability(lp[1], [(2,)]))]
    loss, _ = sequence_loss(lp, frames, TARGETS, LISTS, OBJECTIVES["raft"])
    assert loss.tolist() == pytest.approx(
        [0.5 * -best[0] + 0.5 * float(nll[0]), 0.5 * -best[1] + 0.25 * float(nll[1])]
    )
    names = ("usable", "greedy_errors", "oracle_errors", "words", "candidates")
    assert {k: float(shown[k]) for k in names} == {
        "usable": 0.5, "greedy_errors": 1.0, "oracle_errors": 0.5, "words": 1.5, "candidates": 2.5,
    }  # fmt: skip
    lists = as_lists(LISTS, "rate")
    assert lists.costs.tolist() == [[1, 0, 1], [0.5, 0.5, 0]]
    _, shown = sequence_loss(lp, frames, TARGETS, LISTS, OBJECTIVES["nbest"])
    mass = [sum(math.exp(float(v)) for v in log_probability(lp[i], LISTS[i].tokens)) for i in range(2)]
    assert float(shown["list_mass"]) == pytest.approx(np.mean(mass))


def test_a_reference_that_does_not_fit_has_no_anchor_and_no_gradient():
    logits = random_logits(1, 3, 4, seed=8).requires_grad_()
    lists = [drawn([(1,), (1, 2)], (1, 1, 2))]
    frames, targets = torch.tensor([3]), [(1, 1, 2)]
    assert reference_nll(logits.log_softmax(-1), frames, targets).tolist() == [math.inf]
    anchored, shown = sequence_loss(logits.log_softmax(-1), frames, targets, lists, OBJECTIVES["nbest"])
    free = SequenceConfig(mwer=MwerConfig(anchor=0.0))
    plain, _ = sequence_loss(logits.log_softmax(-1), frames, targets, lists, free)
    assert float(shown["impossible"]) == 1 and float(anchored) == float(plain)
    (gradient,) = torch.autograd.grad(anchored.sum(), logits)
    assert bool(gradient.isfinite().all())


def test_grpo_without_the_policy_that_drew_is_refused():
    lp = random_logits(2, 4, 3).log_softmax(-1)
    with pytest.raises(ValueError, match="needs old_lp"):
        sequence_loss(lp, torch.tensor([4, 4]), TARGETS, LISTS, OBJECTIVES["grpo"])
