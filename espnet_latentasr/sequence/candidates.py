"""Candidate lists drawn while training: posterior in, tokens and their word errors out; no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from rapidfuzz.distance import Levenshtein

from espnet_latentasr.rescoring.ctc_paths import collapse, distinct, sample_paths
from espnet_latentasr.sequence.config import ListConfig

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Drawn:
    """A list of G distinct texts; the first is greedy's.

    tokens: of each candidate one token sequence, the first that was drawn.  errors: (G,) int64 word
    errors by Levenshtein distance.  words: of the reference.
    """

    utt_id: str
    tokens: tuple[Tokens, ...]
    texts: tuple[str, ...]
    errors: np.ndarray
    words: int

    @property
    def usable(self) -> bool:
        """Whether the candidates differ in their errors: without that there is no reward to follow."""
        return bool((self.errors != self.errors[0]).any())

    def costs(self, kind: str) -> np.ndarray:
        """Costs (G,) float64: ``errors``, or ``rate``, per reference word (at least one)."""
        return self.errors / max(self.words, 1) if kind == "rate" else self.errors.astype(np.float64)


def greedy_tokens(lp: np.ndarray, blank: int = 0) -> Tokens:
    """Tokens of the best path of log-posteriors (T, V)."""
    return collapse(lp.argmax(1)[None], blank)[0]


def independent_paths(lp: np.ndarray, num_paths: int, rng: np.random.Generator) -> np.ndarray:
    """Draw label sequences (N, T) from log-posteriors (T, V), frame by frame independently.

    What `sample_paths` draws from without pruning and scaling, in one operation instead of one a frame:
    several times faster, and drawing was the largest part of a training step.
    """
    frames, labels = lp.shape
    mass = np.exp(lp).cumsum(1)
    mass /= mass[:, -1:]
    # One sorted row instead of T: frame t's distribution function lies in [t, t + 1].
    start = np.arange(frames)
    points = (rng.random((num_paths, frames)) + start).ravel()
    places = np.searchsorted((mass + start[:, None]).ravel(), points, side="right")
    return np.minimum(places.reshape(num_paths, frames) - labels * start, labels - 1)


def draw(
    lp: np.ndarray,
    utt_id: str,
    reference: str,
    config: ListConfig,
    to_text: Callable[[Tokens], str],
    rng: np.random.Generator,
    *,
    blank: int = 0,
) -> Drawn:
    """Draw the list of one utterance.

    Paths are drawn independently from log-posteriors (T, V), so that without pruning and scaling a
    text comes up with exactly its probability.

    Args:
        reference: normalised transcript.
        to_text: token sequence -> normalised text.
    """
    if config.nbest_scale == 1 and config.output_beam is None:
        paths = independent_paths(lp, config.num_paths, rng)
    else:
        options = {"scale": config.nbest_scale, "beam": config.output_beam}
        paths = sample_paths(lp, config.num_paths, rng=rng, **options)
    found: dict[str, Tokens] = {}
    for tokens in (greedy_tokens(lp, blank), *distinct(paths, blank)):
        if len(found) == config.size:
            break
        found.setdefault(to_text(tokens), tokens)
    words = reference.split()
    errors = np.array([word_errors(words, text.split()) for text in found], dtype=np.int64)
    return Drawn(utt_id, tuple(found.values()), tuple(found), errors, len(words))


def word_errors(reference: Sequence[str], hypothesis: Sequence[str]) -> int:
    """Levenshtein distance between two word sequences.

    Cheaper than sclite's alignment and never above its count; scores that are reported use sclite's.
    """
    return Levenshtein.distance(reference, hypothesis)
