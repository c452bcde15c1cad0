"""The loss of a batch: posteriors, references and drawn candidates in, losses and figures out.

Knows neither the model behind the posteriors nor ESPnet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from espnet_latentasr.sequence.batch import frames_needed, log_probabilities
from espnet_latentasr.sequence.candidates import Drawn, Tokens
from espnet_latentasr.sequence.config import MwerConfig, SequenceConfig
from espnet_latentasr.sequence.mwer import mwer_eq4, mwer_grpo, mwer_nbest
from espnet_latentasr.sequence.raft import oracle_index, raft


@dataclass(frozen=True)
class Lists:
    """Drawn lists as padded tensors (B, G): token counts, errors, costs, and which candidates exist."""

    owners: tuple[int, ...]
    hyps: tuple[Tokens, ...]
    mask: Tensor
    lengths: Tensor
    errors: Tensor
    costs: Tensor

    def padded(self, values: Tensor) -> Tensor:
        """Spread values (N,) of all candidates over (B, G); 0 where there is none."""
        return values.new_zeros(self.mask.shape).masked_scatter(self.mask, values)


def as_lists(drawn: Sequence[Drawn], cost: str, device: torch.device | str = "cpu") -> Lists:
    """Stack the lists of a batch."""
    sizes = torch.tensor([len(d.tokens) for d in drawn], device=device)
    mask = torch.arange(int(sizes.max()), device=device) < sizes[:, None]

    def padded(values: Sequence[Sequence[float]], kind: torch.dtype) -> Tensor:
        flat = torch.tensor([v for row in values for v in row], dtype=kind, device=device)
        return torch.zeros(mask.shape, dtype=kind, device=device).masked_scatter(mask, flat)

    return Lists(
        tuple(index for index, d in enumerate(drawn) for _ in d.tokens),
        tuple(tokens for d in drawn for tokens in d.tokens),
        mask,
        padded([[len(t) for t in d.tokens] for d in drawn], torch.int64),
        padded([d.errors for d in drawn], torch.int64),
        padded([d.costs(cost) for d in drawn], torch.float64),
    )


def reference_nll(lp: Tensor, frames: Tensor, targets: Sequence[Tokens], blank: int = 0) -> Tensor:
    """-log P(y*|x) of each utterance (B,) float64; inf, without gradient, where it does not fit."""
    fits = [i for i, (t, f) in enumerate(zip(targets, frames.tolist())) if frames_needed(t) <= f]
    nll = torch.full((len(targets),), torch.inf, dtype=torch.float64, device=lp.device)
    found = -log_probabilities(lp, frames, fits, [targets[i] for i in fits], blank=blank)
    return nll.index_put((torch.tensor(fits, dtype=torch.long, device=lp.device),), found)


def sequence_loss(
    lp: Tensor,
    frames: Tensor,
    targets: Sequence[Tokens],
    drawn: Sequence[Drawn],
    config: SequenceConfig,
    *,
    old_lp: Tensor | None = None,
    blank: int = 0,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return losses (B,) float64 and what to report of the batch, each a mean over its utterances.

    A reference that cannot fit into its frames contributes no anchor (its CTC loss is infinite, and its
    gradient undefined); the share is ``impossible``.  Lists whose candidates all cost the same contribute
    the anchor alone.  ``list_mass``: probability of the list's token sequences; ``expected_cost``: under
    the list-normalised posterior.

    Args:
        lp: (B, T, V) log-posteriors after a log-softmax, with its gradient.
        frames: (B,) frames.
        targets: reference tokens of each utterance.
        old_lp: (B, T, V) of the policy the candidates were drawn from; needed by kind grpo.
    """
    lists = as_lists(drawn, config.mwer.cost, lp.device)
    nll = reference_nll(lp, frames, targets, blank)
    possible = nll.isfinite()
    nll = torch.where(possible, nll, 0)
    lengths = torch.tensor([len(t) for t in targets], device=lp.device)
    oracle = oracle_index(lists.errors, lists.mask)
    if config.objective == "raft":
        share = config.raft.reference_share
        best = [drawn[row].tokens[index] for row, index in enumerate(oracle.tolist())]
        rows = range(len(drawn))
        with torch.set_grad_enabled(torch.is_grad_enabled() and share < 1):
            policy = -log_probabilities(lp, frames, rows, best, blank=blank)
        sizes = torch.tensor([len(tokens) for tokens in best], device=lp.device)
        loss = raft(policy, sizes, nll, lengths, share)
        policy = policy / sizes.clamp(min=1)
        shown = {}
    else:
        log_probs = lists.padded(log_probabilities(lp, frames, lists.owners, lists.hyps, blank=blank))
        old = None
        if old_lp is not None:
            old = lists.padded(log_probabilities(old_lp, frames, lists.owners, lists.hyps, blank=blank))
        policy = _policy(log_probs, old, lists, config.mwer)
        loss = policy + config.mwer.anchor * nll
        inside = log_probs.detach().masked_fill(~lists.mask, -torch.inf)
        weights = inside.softmax(-1)
        shown = {
            "list_mass": inside.logsumexp(-1).exp().mean(),
            "expected_cost": (weights * lists.costs).sum(-1).mean(),
        }
    words = torch.tensor([d.words for d in drawn], dtype=torch.float64, device=lp.device)
    least = lists.errors.gather(1, oracle[:, None])[:, 0]
    shown |= {
        "policy": policy.detach().mean(),
        "reference_nll": (nll.detach() / lengths.clamp(min=1)).mean(),
        "impossible": (~possible).double().mean(),
        "usable": torch.tensor([d.usable for d in drawn], device=lp.device).double().mean(),
        "candidates": lists.mask.sum(-1).double().mean(),
        "greedy_errors": lists.errors[:, 0].double().mean(),
        "oracle_errors": least.double().mean(),
        "words": words.mean(),
    }
    return loss, shown


def _policy(log_probs: Tensor, old: Tensor | None, lists: Lists, config: MwerConfig) -> Tensor:
    if config.kind == "eq4":
        return mwer_eq4(log_probs, lists.costs, lists.mask)
    if config.kind == "nbest":
        return mwer_nbest(log_probs, lists.costs, lists.mask, config.temperature)
    if old is None:
        raise ValueError("kind grpo needs old_lp, the posteriors of the policy that drew the candidates")
    return mwer_grpo(
        log_probs, old, lists.costs, lists.lengths, lists.mask,
        clip_low=config.clip_low, clip_high=config.clip_high,
    )  # fmt: skip
