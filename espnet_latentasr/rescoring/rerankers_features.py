"""The 14-feature reranker: what a list says about each of its candidates -> predicted error rate.

Features are numpy, training is scikit-learn's, and what is kept of it are arrays: scoring needs numpy
alone, and a checkpoint holds no code.

    0  log P(y|x)       4  tokens              8  mean CER to others      11  0 minus the list's best
    1  0 per token      5  characters          9  mean WER to others      12  softmax of 0 over the list
    2  0 per character  6  words              10  share of words that     13  entropy of 12 (nats)
    3  rank by 0        7  z of 4 in the list     are their position's majority
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.rescoring.nbest_list import NBest
from espnet_latentasr.rescoring.posterior import softmax
from espnet_latentasr.rescoring.rerankers_config import FeatureConfig
from espnet_latentasr.rescoring.rerankers_data import Judged
from espnet_latentasr.rescoring.risk import PairwiseLosses

NAMES = (
    "logp",
    "logp_per_token",
    "logp_per_character",
    "rank",
    "tokens",
    "characters",
    "words",
    "tokens_z",
    "cer_to_others",
    "wer_to_others",
    "agreement",
    "logp_below_best",
    "probability",
    "entropy",
)


def majority_agreement(sentences: Sequence[Sequence[str]]) -> np.ndarray:
    """Share of each sentence's words that are the majority of their position: (G,).

    Position p counts the sentences that have a p-th word; of equally frequent words the first met is
    the majority.  A sentence without words has share 0.
    """
    longest = max(map(len, sentences), default=0)
    majority = []
    for place in range(longest):
        counts = Counter(words[place] for words in sentences if len(words) > place)
        majority.append(max(counts, key=counts.__getitem__))
    agreeing = [sum(a == b for a, b in zip(words, majority)) for words in sentences]
    return np.array([n / max(len(words), 1) for n, words in zip(agreeing, sentences)])


def _mean_to_others(losses: np.ndarray) -> np.ndarray:
    """(G, G) with zero diagonal -> (G,) mean over the other candidates, 0 for a single one."""
    return losses.sum(1) / max(len(losses) - 1, 1)


def list_features(nbest: NBest) -> np.ndarray:
    """The features of every candidate, (G, 14) float64, in the order of ``NAMES``.

    They describe a candidate within its whole list: another list size gives other features.
    """
    logp = np.array([c.am_logp for c in nbest.hyps])
    tokens = np.array([float(c.n_tok) for c in nbest.hyps])
    characters = np.array([float(c.n_char) for c in nbest.hyps])
    words = [text.split() for text in nbest.texts]
    rank = np.empty(len(logp))
    rank[np.argsort(-logp, kind="stable")] = np.arange(len(logp))
    losses = PairwiseLosses(nbest)
    probability = softmax(logp, 1.0)
    held = probability[probability > 0]
    spread = tokens.std()
    columns = (
        logp,
        logp / np.maximum(tokens, 1),
        logp / np.maximum(characters, 1),
        rank,
        tokens,
        characters,
        np.array([float(len(w)) for w in words]),
        (tokens - tokens.mean()) / (spread if spread > 0 else 1.0),
        _mean_to_others(losses("cer")),
        _mean_to_others(losses("wer")),
        majority_agreement(words),
        logp - logp.max(),
        probability,
        np.full(len(logp), -(held * np.log(held)).sum()),
    )
    return np.stack(columns, 1)


def _pairs(rates: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    """At most ``most`` pairs (P, 2) of candidates with different error rates, the better one first."""
    better, worse = np.nonzero(rates[:, None] < rates[None])
    if len(better) > most:
        drawn = np.sort(rng.choice(len(better), most, replace=False))
        better, worse = better[drawn], worse[drawn]
    return np.stack([better, worse], 1)


def train_features(
    lists: Sequence[Judged], config: FeatureConfig, seed: int
) -> dict[str, np.ndarray]:
    """Fit the model; returns its arrays: scaling, then ``weight.N`` and ``bias.N`` of each layer.

    Layers but the last are followed by a ReLU.  The output is a score: the higher, the fewer errors.
    """
    try:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression, Ridge
        from sklearn.neural_network import MLPRegressor
    except ImportError as error:
        raise ConfigError(
            f"kind: features is trained by scikit-learn ({error}); pip install scikit-learn"
        ) from error

    parts = [list_features(judged.nbest) for judged in lists]
    rows, rates = np.concatenate(parts), np.concatenate([judged.rates for judged in lists])
    mean, scale = rows.mean(0), rows.std(0)
    scale[scale == 0] = 1.0
    rows = (rows - mean) / scale
    if config.model == "mlp":
        layers = tuple(map(int, config.layers.split()))
        fitted = MLPRegressor(
            hidden_layer_sizes=layers,
            early_stopping=True,
            validation_fraction=0.1,
            random_state=seed,
            max_iter=config.max_iterations,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # max_iterations is the user's choice
            fitted.fit(rows, rates)
        # Its output predicts errors, a score is their negative.
        weights = [w.T for w in fitted.coefs_]
        biases = list(fitted.intercepts_)
        weights[-1], biases[-1] = -weights[-1], -biases[-1]
    elif config.model == "ridge":
        fitted = Ridge(config.alpha).fit(rows, rates)
        weights, biases = [-fitted.coef_[None]], [np.array([-fitted.intercept_])]
    else:
        rng, starts = np.random.default_rng(seed), np.cumsum([0, *map(len, parts)])
        pairs = [
            start + _pairs(judged.rates, config.pairs, rng) for start, judged in zip(starts, lists)
        ]
        better, worse = np.concatenate(pairs).T
        difference = rows[better] - rows[worse]
        # Both directions of each pair: the two classes are then equal in number.
        fitted = LogisticRegression(fit_intercept=False, max_iter=config.max_iterations).fit(
            np.concatenate([difference, -difference]), np.repeat([1, 0], len(difference))
        )
        weights, biases = [fitted.coef_], [np.zeros(1)]
    arrays = {"mean": mean, "scale": scale}
    for index, (weight, bias) in enumerate(zip(weights, biases)):
        arrays |= {f"weight.{index}": weight, f"bias.{index}": bias}
    return {name: np.ascontiguousarray(a, dtype=np.float64) for name, a in arrays.items()}


class FeatureReranker:
    """Scores lists with trained arrays."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.mean, self.scale = arrays["mean"], arrays["scale"]
        if self.mean.shape != (len(NAMES),):
            raise DataError(f"reranker of {self.mean.shape} features, ({len(NAMES)},) expected: damaged?")
        depth = sum(name.startswith("weight.") for name in arrays)
        self.layers = [(arrays[f"weight.{i}"], arrays[f"bias.{i}"]) for i in range(depth)]

    def score(self, nbest: NBest) -> list[float]:
        """Minus the predicted error rate of each candidate (pairwise: a preference)."""
        values = (list_features(nbest) - self.mean) / self.scale
        for index, (weight, bias) in enumerate(self.layers):
            values = values @ weight.T + bias
            if index < len(self.layers) - 1:
                values = np.maximum(values, 0.0)
        return values[:, 0].tolist()
