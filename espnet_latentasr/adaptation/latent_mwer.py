"""Minimum word error rate training of latent thinking: candidate lists scored with gradient.

Knows states, token ids and error counts.  What draws a list and counts its errors is handed in
(``decode.training_lists``), since decoding builds on adaptations and not the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from espnet_latentasr.backbone.base import Backbone, State
from espnet_latentasr.backbone.teacher_forcing import teacher_force
from espnet_latentasr.errors import DataError
from espnet_latentasr.sequence.expected_errors import expected_errors


@dataclass(frozen=True)
class CandidateLists:
    """Lists of a batch.

    ``tokens``: per utterance its distinct token sequences without end token, the greedy one of the
    state they are scored from first.  ``errors``: their numbers of errors.  ``lengths``: of the
    references, in the same unit.
    """

    tokens: Sequence[Sequence[tuple[int, ...]]]
    errors: Sequence[Sequence[int]]
    lengths: Sequence[int]

    def informative(self) -> list[bool]:
        """Whether the candidates differ in their errors; other lists have no gradient."""
        return [len(set(errors)) > 1 for errors in self.errors]


class ListWriter(Protocol):
    """Draws lists from the stages of a latent loop, which stay valid, and counts their errors.

    ``targets``: reference token ids, end token included.  ``seeds``: per utterance one for each sample.
    """

    def __call__(
        self,
        stages: Sequence[State],
        targets: Sequence[Sequence[int]],
        seeds: Sequence[Sequence[int]],
    ) -> CandidateLists: ...


def sequence_log_probs(
    backbone: Backbone, state: State, rows: Sequence[int], sequences: Sequence[Sequence[int]]
) -> Tensor:
    """log P(sequence, then the end | row of ``state``), with gradient, as the search would write it.

    Teacher-forced; tokens that the recogniser never writes have no probability, and ending is the sum
    over all end tokens (``decode.nbest.sequence_scores`` is the same without gradient).  ``state``
    stays valid.

    Args:
        rows: row of ``state`` that each of the M sequences follows.

    Returns:
        (M,) float64 natural logarithms.

    Raises:
        DataError: a sequence of probability 0.
    """
    device, ends = state.mask.device, list(backbone.end_ids)
    forked = backbone.fork(state, torch.tensor(list(rows), device=device))
    logits, ids, owners = teacher_force(backbone, forked, [[*s, ends[0]] for s in sequences])
    first = torch.ones_like(owners, dtype=torch.bool)
    first[1:] = owners[1:] != owners[:-1]
    last = torch.ones_like(first)
    last[:-1] = first[1:]
    log_probs = backbone.suppress(logits, first).log_softmax(-1)
    terms = log_probs.gather(1, ids[:, None])[:, 0].double()
    # Ends are looked at where a text ends and nowhere else: where they are suppressed, all of them are
    # -inf, and their log-sum-exp has a NaN for a gradient.
    terms = terms.masked_scatter(last, log_probs[last][:, ends].double().logsumexp(-1))
    zeros = torch.zeros(len(sequences), dtype=torch.float64, device=device)
    totals = zeros.index_add(0, owners, terms)
    if not bool(totals.isfinite().all()):
        index = int((~totals.isfinite()).nonzero()[0])
        raise DataError(
            f"row {rows[index]}: log-probability {totals[index].item()!r} of the tokens "
            f"{tuple(sequences[index])}: the recogniser never writes them; take such candidates out"
        )
    return totals


def expected_word_errors(
    backbone: Backbone, state: State, lists: CandidateLists, temperature: float, counted: Tensor
) -> Tensor:
    """Expected number of errors of each list under softmax(log P / temperature), with gradient.

    Lists whose candidates all have the same errors are not scored: their expectation is that number
    whatever the probabilities are.

    Args:
        state: where the utterances' transcripts begin; stays valid.
        counted: (B,) bool, utterances that count; the others get 0.

    Returns:
        (B,) float64.
    """
    device = state.mask.device
    first = torch.tensor([float(errors[0]) for errors in lists.errors], dtype=torch.float64)
    expected = torch.where(counted, first.to(device), 0.0)
    live = [b for b, use in enumerate(lists.informative()) if use and bool(counted[b])]
    if not live:
        return expected
    sizes = torch.tensor([len(lists.tokens[b]) for b in live])
    mask = torch.arange(int(sizes.max()))[None] < sizes[:, None]
    rows = [b for b in live for _ in lists.tokens[b]]
    sequences = [tokens for b in live for tokens in lists.tokens[b]]
    scores = sequence_log_probs(backbone, state, rows, sequences) / temperature
    mask = mask.to(device)
    errors = torch.zeros(mask.shape, dtype=torch.float64, device=device)
    errors[mask] = torch.tensor(
        [float(e) for b in live for e in lists.errors[b]], dtype=torch.float64, device=device
    )
    log_probs = torch.zeros_like(errors).masked_scatter(mask, scores)
    risks = expected_errors(log_probs, errors, mask)
    return expected.index_copy(0, torch.tensor(live, device=device), risks)


def mwer_loss(
    backbone: Backbone, state: State, lists: CandidateLists, temperature: float, counted: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """Expected errors of the counted utterances over their pooled reference length, and what to report.

    ``wer`` is the greedy text's rate, ``wer_oracle`` the best candidate's; ``list_informative``: share of
    utterances whose candidates differ in errors.
    """
    risks = expected_word_errors(backbone, state, lists, temperature, counted)

    def counts(values: Sequence[float]) -> Tensor:
        return torch.tensor([float(v) for v in values], device=counted.device) * counted

    length = counts(lists.lengths).sum().clamp(min=1)
    rows = counted.sum().clamp(min=1)
    loss = (risks.sum() / length).float()
    return loss, {
        "mwer": loss.detach(),
        "wer": counts([errors[0] for errors in lists.errors]).sum() / length,
        "wer_oracle": counts([min(errors) for errors in lists.errors]).sum() / length,
        "list_size": counts([len(errors) for errors in lists.errors]).sum() / rows,
        "list_informative": counts(lists.informative()).sum() / rows,
    }
