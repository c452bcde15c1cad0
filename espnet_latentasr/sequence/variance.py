"""Three estimators of the policy gradient of a CTC model and their variance over a candidate list.

With advantage A_i and p the posterior of the frames, the gradient of -A_i log P(y_i|x) towards the
logits is A_i (p - w_i), where w_i (T, V) is gamma, the posterior of the alignments of y_i (marginal); the
one-hot best alignment (Viterbi); or a one-hot alignment drawn from P(pi|y_i, x) (sampled).  E[sampled|y]
is the marginal one, so the law of total variance holds between these two and makes the sampled one the
noisier (a theorem); Viterbi's is biased, and where it lies is a finding.  float64; knows neither text nor
model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from espnet_latentasr.errors import DataError
from espnet_latentasr.rescoring.ctc import alignment_posteriors, viterbi
from espnet_latentasr.rescoring.ctc_paths import check_tokens

Tokens = Sequence[int]


@dataclass(frozen=True)
class GradientVariance:
    """Of one list: unbiased variances over its candidates, averaged over the parameters.

    marginal, viterbi, sampled (one alignment per candidate): as measured.  within: the mean over
    candidates of the variance of A_i times the sampled one given y_i.  Its expectation over alignments
    makes E[sampled] = marginal + within exactly.  viterbi_bias: norm of the difference between the mean
    Viterbi and the mean marginal gradient, over the norm of the latter.  draws: alignments ``within`` was
    estimated from; 0: computed in closed form.
    """

    candidates: int
    marginal: float
    viterbi: float
    sampled: float
    within: float
    viterbi_bias: float
    draws: int

    @property
    def sampled_expected(self) -> float:
        """Expectation of ``sampled`` over alignments."""
        return self.marginal + self.within


def sample_alignments(
    lp: Tensor, hyps: Sequence[Tokens], draws: int, rng: np.random.Generator, *, blank: int = 0
) -> Tensor:
    """Draw alignments from P(pi|y, x): log-posteriors (T, V), G hypotheses -> labels (G, draws, T).

    Forward filtering over the states blank, y_1, blank, ..., blank, then backward sampling.

    Raises:
        DataError: a hypothesis is impossible in so few frames.
    """
    check_tokens(hyps, lp.shape[1], blank)
    lp = lp.detach().double()
    lengths = torch.tensor([len(hyp) for hyp in hyps])
    states = torch.full((len(hyps), 2 * max(1, int(lengths.max())) + 1), blank)
    for row, hyp in zip(states, hyps):
        row[1 : 2 * len(hyp) : 2] = torch.tensor(list(hyp), dtype=torch.long)
    skip = torch.zeros_like(states, dtype=torch.bool)
    skip[:, 3::2] = states[:, 3::2] != states[:, 1:-2:2]
    inside = torch.arange(states.shape[1]) <= 2 * lengths[:, None]
    score = torch.full(states.shape, -torch.inf, dtype=torch.float64)
    score[:, :2] = lp[0][states[:, :2]]
    forward = [score.masked_fill(~inside, -torch.inf)]
    for row in lp[1:]:
        score = _reached(forward[-1], skip).logsumexp(0) + row[states]
        forward.append(score.masked_fill(~inside, -torch.inf))
    rows = torch.arange(len(hyps))
    ends = torch.stack([2 * lengths, (2 * lengths - 1).clamp(min=0)])  # (2, G)
    last = forward[-1][rows, ends]
    last[1] = last[1].masked_fill(lengths == 0, -torch.inf)  # with no token both ends are one state
    if bool((last == -torch.inf).all(0).any()):
        worst = int((last == -torch.inf).all(0).nonzero()[0])
        raise DataError(
            f"hypothesis {worst}: {len(hyps[worst])} tokens are impossible in {len(lp)} frames"
        )
    uniform = torch.from_numpy(rng.random((len(lp), len(hyps), draws)))
    state = ends.T.gather(1, _choose(last.T, uniform[-1]))
    path = [states.gather(1, state)]
    for t in range(len(lp) - 2, -1, -1):
        reached = _reached(forward[t], skip)  # (3, G, S): from the same state, one before, two before
        weights = reached[:, rows[:, None], state].permute(1, 2, 0)  # (G, draws, 3)
        state = state - _choose(weights, uniform[t][..., None])[..., 0]
        path.append(states.gather(1, state))
    return torch.stack(path[::-1], -1)


def _reached(score: Tensor, skip: Tensor) -> Tensor:
    """Scores (G, S) of the three states each state can be reached from (3, G, S)."""
    one = functional.pad(score, (1, 0), value=-torch.inf)[:, :-1]
    two = functional.pad(score, (2, 0), value=-torch.inf)[:, :-2].masked_fill(~skip, -torch.inf)
    return torch.stack([score, one, two])


def _choose(logits: Tensor, uniform: Tensor) -> Tensor:
    """Index (..., M) drawn from softmax(logits (..., K)) by uniform numbers (..., M)."""
    mass = logits.softmax(-1).cumsum(-1)
    mass = (mass / mass[..., -1:])[..., None, :]
    return (mass <= uniform[..., None]).sum(-1)


def one_hot(paths: Tensor, labels: int) -> Tensor:
    """Paths (..., T) -> indicators (..., T, V) float64."""
    return functional.one_hot(paths, labels).double()


def gradients(weights: Tensor, p: Tensor, advantages: Tensor, states: Tensor | None = None) -> Tensor:
    """A_i (p - w_i): weights (..., T, V), posterior (T, V), advantages broadcast over (...) -> (..., F).

    Args:
        states: encoder outputs (T, D): towards the output projection's weight (V, D) instead of the
            logits (T, V).
    """
    towards = advantages[..., None, None] * (p - weights)
    if states is not None:
        towards = towards.transpose(-1, -2) @ states.double()
    return towards.flatten(-2)


def spread(values: Tensor, dim: int = 0) -> Tensor:
    """Unbiased variance along ``dim`` averaged over the last axis."""
    return values.var(dim, correction=1).mean(-1)


def full_gamma(lp: Tensor, hyps: Sequence[Tokens], blank: int = 0) -> Tensor:
    """gamma of each hypothesis over all labels: (G, T, V)."""
    gamma, labels = alignment_posteriors(lp, hyps, blank=blank)
    full = gamma.new_zeros((len(hyps), *lp.shape))
    full[..., labels] = gamma
    return full


def gradient_variance(
    lp: Tensor,
    hyps: Sequence[Tokens],
    costs: Sequence[float] | np.ndarray,
    rng: np.random.Generator,
    *,
    states: Tensor | None = None,
    draws: int = 16,
    blank: int = 0,
) -> GradientVariance:
    """Variances of the three estimators over one list.

    Towards the logits ``within`` is exact: given y, frame t's indicator has total variance
    1 - sum_k gamma_t(k)^2.  Towards the projection's weight frames are not independent; it is
    estimated from ``draws`` alignments of each candidate.

    Args:
        lp: (T, V) log-posteriors.
        hyps: at least two candidates (G), each possible.
        costs: (G,) word errors or rates.
        states: encoder outputs (T, D), see `gradients`.

    Raises:
        DataError: fewer than two candidates, costs that are all equal, or an impossible candidate.
    """
    cost = torch.as_tensor(np.asarray(costs, dtype=np.float64))
    if len(hyps) < 2 or len(cost) != len(hyps) or bool((cost == cost[0]).all()):
        raise DataError(
            f"{len(hyps)} candidates with costs {cost.tolist()}: two different costs expected"
        )
    lp = lp.detach().double()
    advantage, p, labels = cost - cost.mean(), lp.exp(), lp.shape[1]
    gamma = full_gamma(lp, hyps, blank)
    best = one_hot(viterbi(lp, hyps, blank=blank)[1], labels)
    drawn = sample_alignments(lp, hyps, draws if states is not None else 1, rng, blank=blank)
    each = gradients(one_hot(drawn, labels), p, advantage[:, None], states)  # (G, draws, F)
    marginal = gradients(gamma, p, advantage, states)
    highest = gradients(best, p, advantage, states)
    if states is None:
        within = (advantage**2 * (1 - gamma.square().sum(-1)).sum(-1)).mean() / marginal.shape[1]
    else:
        within = spread(each, 1).mean()
    mean = marginal.mean(0)
    return GradientVariance(
        len(hyps),
        float(spread(marginal)),
        float(spread(highest)),
        float(spread(each[:, 0])),
        float(within),
        float((highest.mean(0) - mean).norm() / mean.norm()),
        0 if states is None else draws,
    )
