"""The oracle gap of the lists that sequence training would draw: is there a reward to follow?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from espnet_latentasr.errors import DataError
from espnet_latentasr.rescoring.ctc_nbest import JOIN, read_posteriors, read_token_list
from espnet_latentasr.rescoring.ctc_paths import keyed_rng, log_posteriors
from espnet_latentasr.sequence.candidates import Drawn, draw
from espnet_latentasr.sequence.config import ListConfig
from espnet_latentasr.stats.comparisons import Contest, compare_family
from espnet_latentasr.text.normalize import Normalizer


def draw_lists(
    folder: Path,
    references: Mapping[str, str],
    config: ListConfig,
    normalizer: Normalizer,
    *,
    seed: int,
    token_type: str = "bpe",
    blank: str = "<blank>",
) -> list[Drawn]:
    """Draw a list of every utterance of a folder of ``bin.ctc_posteriors`` as training does; in C order.

    Raises:
        DataError: an utterance without reference, or no posterior over this token list.
    """
    posteriors = folder / "ctc_logp.scp"
    tokens, blank_id = read_token_list(folder / "tokens.txt", blank)
    join, found = JOIN[token_type], []

    def to_text(ids: tuple[int, ...]) -> str:
        return normalizer(join([tokens[k] for k in ids]))

    for utt_id, matrix in read_posteriors(posteriors):
        if utt_id not in references:
            raise DataError(f"{posteriors}: utterance '{utt_id}' has no reference")
        lp = log_posteriors(matrix, len(tokens), f"{posteriors}: utterance '{utt_id}'")
        reference, rng = normalizer(references[utt_id]), keyed_rng(seed, utt_id)
        found.append(draw(lp, utt_id, reference, config, to_text, rng, blank=blank_id))
    return found


def gap_rows(lists: Mapping[str, Sequence[Drawn]], sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Greedy against the oracle of the first G candidates, by checkpoint and G; rates are fractions.

    ``usable``: share of utterances whose candidates differ in errors.  ``better``: share with a candidate
    that has fewer errors than greedy.  ``low``, ``high``: 95 % interval of ``gap`` over utterances.
    ``macro`` columns are means over utterances of their own rates.

    Raises:
        DataError: no utterance, or no reference words.
    """
    rows, contests = [], []
    for name, drawn in lists.items():
        words = np.array([d.words for d in drawn], dtype=np.int64)
        if not words.sum():
            raise DataError(f"{name}: {len(drawn)} utterances without a reference word; some expected")
        greedy = np.array([d.errors[0] for d in drawn], dtype=np.int64)
        some, total = words > 0, int(words.sum())
        oracles = []
        for size in sizes:
            best = np.array([d.errors[:size].min() for d in drawn], dtype=np.int64)
            oracles.append(best)
            rows.append(
                {
                    "checkpoint": name,
                    "G": size,
                    "utterances": len(drawn),
                    "candidates": float(np.mean([len(d.errors[:size]) for d in drawn])),
                    "greedy": float(greedy.sum() / total),
                    "oracle": float(best.sum() / total),
                    "gap": float((greedy - best).sum() / total),
                    "low": None,
                    "high": None,
                    "greedy macro": float((greedy[some] / words[some]).mean()),
                    "oracle macro": float((best[some] / words[some]).mean()),
                    "usable": float(np.mean([(d.errors[:size] != d.errors[0]).any() for d in drawn])),
                    "better": float((best < greedy).mean()),
                }
            )
        contests.append(Contest(greedy, oracles, words))
    for row, found in zip(rows, compare_family(contests), strict=True):
        row["low"], row["high"] = -found.difference.high, -found.difference.low
    return rows
