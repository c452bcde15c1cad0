"""Pairwise losses of a list and expected loss (Bayes risk); numpy and rapidfuzz, knows no score.

The distances of a list do not depend on any posterior: `PairwiseLosses` computes each matrix at its
first use and keeps it for every temperature, coefficient and list size that follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence

import numpy as np
from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import cdist

from espnet_latentasr.rescoring.nbest_list import Candidate, NBest

# What each loss counts; blanks are characters, except where blanks separate no words.
_UNITS: dict[str, Callable[[Candidate], Sequence[Hashable]]] = {
    "cer": lambda c: c.text,
    "cer_nospace": lambda c: "".join(c.text.split()),
    "wer": lambda c: c.text.split(),
    "token": lambda c: c.tokens,
}
BLEU_ORDER = 4


def edit_distances(sequences: Sequence[Sequence[Hashable]]) -> np.ndarray:
    """Return Levenshtein distances between all pairs: G sequences -> (G, G) int32."""
    ids: dict[Hashable, int] = {}
    # Numbers instead of words: rapidfuzz would compare the hashes of words.
    plain = [s if isinstance(s, str) else [ids.setdefault(x, len(ids)) for x in s] for s in sequences]
    return cdist(plain, plain, scorer=Levenshtein.distance, dtype=np.int32, workers=1)


def neg_bleu(sentences: Sequence[Sequence[str]]) -> np.ndarray:
    """Return 1 - (BLEU(i|j) + BLEU(j|i)) / 2 between all pairs of word sequences, (G, G).

    Sentence BLEU-4 with brevity penalty; precisions of order 2 and up are smoothed by adding one to
    both counts (Lin and Och, 2004).  Two empty sentences have loss 0, an empty and another one loss 1.
    """
    lengths = np.array([len(s) for s in sentences], dtype=np.float64)
    logs = np.zeros((len(sentences), len(sentences)))
    for order in range(1, BLEU_ORDER + 1):
        grams = [Counter(tuple(s[i : i + order]) for i in range(len(s) - order + 1)) for s in sentences]
        columns = {gram: index for index, gram in enumerate({}.fromkeys(g for c in grams for g in c))}
        counts = np.zeros((len(sentences), len(columns)), dtype=np.int32)
        for row, counter in zip(counts, grams):
            row[[columns[g] for g in counter]] = list(counter.values())
        matches = np.array([np.minimum(row, counts).sum(1) for row in counts], dtype=np.float64)
        add = float(order > 1)
        totals = np.maximum(lengths - order + 1, 0)[:, None] + add
        with np.errstate(divide="ignore", invalid="ignore"):
            logs += np.log((matches + add) / totals)
    with np.errstate(divide="ignore", invalid="ignore"):
        brevity = np.minimum(0.0, 1 - lengths[None, :] / lengths[:, None])
        bleu = np.exp(brevity + logs / BLEU_ORDER)
    empty = lengths == 0
    bleu[empty, :], bleu[:, empty] = 0.0, 0.0
    bleu[np.ix_(empty, empty)] = 1.0
    return 1 - (bleu + bleu.T) / 2


class PairwiseLosses:
    """Loss matrices L(y_i, y_j) of one list, each computed once; y_j stands for the reference."""

    def __init__(self, nbest: NBest) -> None:
        self._hyps = nbest.hyps
        self._distances: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self._losses: dict[tuple[str, str], np.ndarray] = {}

    def distances(self, loss: str) -> tuple[np.ndarray, np.ndarray]:
        """Return edit distances (G, G) and lengths (G,) in the units of ``loss``."""
        if loss not in self._distances:
            sequences = [_UNITS[loss](c) for c in self._hyps]
            lengths = np.array([len(s) for s in sequences])
            self._distances[loss] = edit_distances(sequences), lengths
        return self._distances[loss]

    def __call__(self, loss: str, denominator: str = "max") -> np.ndarray:
        """Return losses (G, G).

        Args:
            loss: ``cer``, ``cer_nospace``, ``wer``, ``token`` or ``neg_bleu``.
            denominator: ``max`` (the longer of the two), ``ref`` (y_j) or ``none``; at least 1.
        """
        key = (loss, denominator)
        if key not in self._losses:
            self._losses[key] = self._loss(loss, denominator)
        return self._losses[key]

    def _loss(self, loss: str, denominator: str) -> np.ndarray:
        if loss == "neg_bleu":
            return neg_bleu([_UNITS["wer"](c) for c in self._hyps])
        distances, lengths = self.distances(loss)
        if denominator == "none":
            return distances.astype(np.float64)
        reference = np.broadcast_to(lengths, distances.shape)
        longer = np.maximum(reference, reference.T)
        return distances / np.maximum(longer if denominator == "max" else reference, 1)


def expected_loss(losses: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return risk_i = sum_j Q_j L(y_i, y_j): (G, G), (G,) -> (G,)."""
    return losses @ weights
