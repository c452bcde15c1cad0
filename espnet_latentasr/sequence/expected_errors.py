"""Expected number of errors of a candidate list: the loss of minimum word error rate training.

Knows log-probabilities and error counts; knows neither how candidates are made nor what scores them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from espnet_latentasr.errors import DataError


def expected_errors(log_probs: Tensor, errors: Tensor, mask: Tensor | None = None) -> Tensor:
    """E_b = sum_i p_bi W_bi with p_b the softmax of ``log_probs`` over the list of utterance b.

    The list-normalised loss of Prabhavalkar et al. (2018, Eq. 6): bounded by the smallest and the
    largest W of the list, and its gradient p_i (W_i - E) vanishes with p_i.  Subtracting the list's
    mean error from W moves the value by a constant and no gradient, so it is not done.

    Args:
        log_probs: (B, G) log-probability of each candidate, divided by a temperature if one is wanted;
            only differences within a row count.  -inf is a candidate of probability 0.
        errors: (B, G) error counts (or rates) of any number type; no gradient flows into them.
        mask: (B, G) bool, True where a candidate exists; None: everywhere.  What stands elsewhere,
            NaN included, changes neither value nor gradient.

    Returns:
        (B,) expected errors in the float type of ``log_probs``.

    Raises:
        ValueError: shapes or mask type.
        DataError: a row without a candidate of non-zero probability, NaN or +inf among the
            log-probabilities, an error count that is negative or not finite.
    """
    if log_probs.dim() != 2 or errors.shape != log_probs.shape:
        raise ValueError(
            f"log_probs {tuple(log_probs.shape)}, errors {tuple(errors.shape)}: both (B, G) expected"
        )
    if mask is None:
        mask = torch.ones_like(log_probs, dtype=torch.bool)
    if mask.dtype != torch.bool or mask.shape != log_probs.shape:
        raise ValueError(f"mask {tuple(mask.shape)} {mask.dtype}: (B, G) bool expected")
    wanted = errors.detach().to(log_probs.dtype).masked_fill(~mask, 0.0)
    scores = log_probs.masked_fill(~mask, -torch.inf)
    _check(scores, wanted)
    weights = scores.softmax(-1)
    return (weights * wanted).sum(-1)


def _check(scores: Tensor, errors: Tensor) -> None:
    bad = scores.isnan() | (scores == torch.inf)
    if bool(bad.any()):
        row, index = bad.nonzero()[0].tolist()
        raise DataError(
            f"row {row}, candidate {index}: log-probability {scores[row, index].item()!r}; a number or "
            "-inf expected: look at what scored it"
        )
    bad = ~errors.isfinite() | (errors < 0)
    if bool(bad.any()):
        row, index = bad.nonzero()[0].tolist()
        raise DataError(
            f"row {row}, candidate {index}: {errors[row, index].item()!r} errors; a finite number of at "
            "least 0 expected"
        )
    empty = (scores == -torch.inf).all(-1)
    if bool(empty.any()):
        raise DataError(
            f"row {empty.nonzero()[0].item()}: no candidate with a probability above 0; leave such lists "
            "out"
        )
