"""Gradient variances of many utterances: which are measured, and their ratios with intervals."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from espnet_latentasr.analysis.oracle_gap import REPLICATES, SEED
from espnet_latentasr.errors import DataError
from espnet_latentasr.rescoring.ctc_nbest import JOIN, read_posteriors, read_token_list
from espnet_latentasr.rescoring.ctc_paths import keyed_rng, log_posteriors
from espnet_latentasr.sequence.candidates import draw
from espnet_latentasr.sequence.config import ListConfig
from espnet_latentasr.sequence.variance import gradient_variance

RATIOS = {
    "viterbi / marginal": ("viterbi", "marginal"),
    "sampled / marginal": ("sampled", "marginal"),
    "expected sampled / marginal": ("sampled expected", "marginal"),
    "sampled / viterbi": ("sampled", "viterbi"),
}

Utterances = Iterable[tuple[str, torch.Tensor, torch.Tensor | None]]
ToText = Callable[[tuple[int, ...]], str]


def of_posteriors(folder: Path, token_type: str = "bpe") -> tuple[Utterances, ToText, int]:
    """Utterances of a folder of ``bin.ctc_posteriors``, the function to text, and the blank's id."""
    tokens, blank = read_token_list(folder / "tokens.txt", "<blank>")

    def utterances() -> Iterator[tuple[str, torch.Tensor, None]]:
        for utt_id, matrix in read_posteriors(folder / "ctc_logp.scp"):
            lp = log_posteriors(matrix, len(tokens), f"{folder}: utterance '{utt_id}'")
            yield utt_id, torch.from_numpy(lp), None

    return utterances(), lambda ids: JOIN[token_type]([tokens[k] for k in ids]), blank


def variance_rows(
    utterances: Utterances,
    references: Mapping[str, str],
    config: ListConfig,
    to_text: ToText,
    *,
    seed: int,
    draws: int = 16,
    limit: int | None = None,
    blank: int = 0,
) -> Iterator[dict[str, Any]]:
    """Yield one row per utterance whose candidates differ in errors; the others have no gradient.

    Args:
        utterances: id, log-posteriors (T, V), and encoder outputs (T, D) or None (towards the logits).
        references: normalised transcripts.
        to_text: token sequence -> normalised text.
        limit: stop after so many rows.

    Raises:
        DataError: an utterance without reference.
    """
    seen = rows = 0
    for utt_id, lp, states in utterances:
        if limit is not None and rows == limit:
            break
        seen += 1
        if utt_id not in references:
            raise DataError(f"utterance '{utt_id}' has no reference ({len(references)} there)")
        rng = keyed_rng(seed, utt_id)
        lists = draw(lp.numpy(), utt_id, references[utt_id], config, to_text, rng, blank=blank)
        if not lists.usable:
            continue
        costs = lists.costs("rate")
        found = gradient_variance(lp, lists.tokens, costs, rng, states=states, draws=draws, blank=blank)
        rows += 1
        yield {
            "utt_id": utt_id, "frames": len(lp), "words": lists.words, "candidates": found.candidates,
            "marginal": found.marginal, "viterbi": found.viterbi, "sampled": found.sampled,
            "within": found.within, "sampled expected": found.sampled_expected,
            "viterbi bias": found.viterbi_bias,
        }  # fmt: skip
    logging.info("%d of %d utterances have candidates with different errors", rows, seen)


def _interval(values: np.ndarray, statistic: Callable, replicates: int) -> tuple[float, float]:
    if len(values) < 2:
        return float("nan"), float("nan")
    from scipy.stats import bootstrap

    rng = np.random.default_rng(SEED)
    options = {"n_resamples": replicates, "method": "percentile", "vectorized": True, "batch": 500}
    found = bootstrap((values,), statistic, rng=rng, **options).confidence_interval
    return float(found.low), float(found.high)


def ratio_rows(rows: list[dict[str, Any]], replicates: int = REPLICATES) -> list[dict[str, Any]]:
    """Mean and median over utterances of each ratio with 95 % intervals, and how often it is below 1.

    Only ``expected sampled / marginal`` is a theorem (never below 1); the measured ones hold one
    alignment per candidate, and Viterbi's place is a finding.
    """
    found = []
    for name, (above, below) in RATIOS.items():
        values = np.array([row[above] / row[below] for row in rows if row[below] > 0])
        row: dict[str, Any] = {"ratio": name, "utterances": len(values)}
        for word, statistic in (("mean", np.mean), ("median", np.median)):
            low, high = _interval(values, statistic, replicates)
            value = float(statistic(values)) if len(values) else float("nan")
            row |= {word: value, f"{word} low": low, f"{word} high": high}
        found.append(row | {"below 1": int((values < 1).sum())})
    return found
