"""What the acoustic value head reads of a hypothesis: encoder states at its frames; trains nothing.

Needs the CTC log-posteriors that the lists were made from: they say at which frame a token stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from espnet_latentasr.data.kaldi_dir import read_kaldi_table
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.rescoring.ctc_nbest import read_token_list, recorded_model
from espnet_latentasr.rescoring.nbest_list import NBest

HYPOTHESIS_SCALARS = ("logp", "confidence", "tokens", "characters")
UTTERANCE_SCALARS = ("frames", "entropy_mean", "entropy_sd", "blank_mean", "token_max_mean")


def align_tokens(lp: np.ndarray, tokens: Sequence[int]) -> np.ndarray:
    """Frames t_1 < ... < t_n (n,) that maximise sum_i lp[t_i, y_i]; (T, V) log-posteriors.

    Raises:
        DataError: more tokens than frames.
    """
    if len(tokens) > len(lp):
        raise DataError(f"{len(tokens)} tokens in {len(lp)} frames; are these the list's posteriors?")
    best = np.zeros(len(lp) + 1)  # best[t]: of the tokens so far, all before frame t
    arrived = []
    for token in tokens:
        reached = best[:-1] + lp[:, token]
        best = np.concatenate([[-np.inf], np.maximum.accumulate(reached)])
        arrived.append(reached)
    frames, end = np.empty(len(tokens), dtype=np.int64), len(lp)
    for index in reversed(range(len(tokens))):
        end = int(arrived[index][:end].argmax())
        frames[index] = end
    return frames


@dataclass(frozen=True)
class Heard:
    """One list's features: ``utterance`` (D,), ``hypotheses`` (G, D), their ``scalars`` (G, 4 + 5)."""

    utterance: np.ndarray
    hypotheses: np.ndarray
    scalars: np.ndarray

    def rows(self) -> np.ndarray:
        """(G, 3 D + 9) float32: hypothesis, utterance, their difference, scalars."""
        utterance = np.broadcast_to(self.utterance, self.hypotheses.shape)
        parts = (self.hypotheses, utterance, self.hypotheses - utterance, self.scalars)
        return np.concatenate(parts, 1).astype(np.float32)


def hear(nbest: NBest, states: np.ndarray, lp: np.ndarray, blank: int) -> Heard:
    """Features of a list from encoder states (A, D) and log-posteriors (T, V).

    A hypothesis' vector is the mean state at its tokens' frames (the utterance's mean where it has no
    token, with confidence 0).  Where A and T differ, frame t reads state floor(t A / T).
    """
    lp = lp.astype(np.float64)
    read = states[np.arange(len(lp)) * len(states) // len(lp)].astype(np.float64)
    mean = read.mean(0)
    vectors, scalars = [], []
    for candidate in nbest.hyps:
        if candidate.tokens and max(candidate.tokens) >= lp.shape[1]:
            raise DataError(
                f"utterance '{nbest.utt_id}': token {max(candidate.tokens)}, but the posteriors have "
                f"{lp.shape[1]} labels; are they of another model?"
            )
        frames = align_tokens(lp, candidate.tokens)
        vectors.append(read[frames].mean(0) if len(frames) else mean)
        sure = float(np.exp(lp[frames, list(candidate.tokens)]).mean()) if len(frames) else 0.0
        scalars.append((candidate.am_logp, sure, candidate.n_tok, candidate.n_char))
    p = np.exp(lp)
    entropy = -(p * np.where(p > 0, lp, 0.0)).sum(1)
    others = np.delete(p, blank, 1).max(1)
    own = (len(lp), entropy.mean(), entropy.std(), p[:, blank].mean(), others.mean())
    scalars = np.concatenate([np.array(scalars), np.tile(own, (len(vectors), 1))], 1)
    return Heard(mean, np.stack(vectors), scalars)


class Acoustics:
    """Encoder states and posteriors of a set, read from Kaldi tables by utterance.

    Args:
        embeddings, posteriors: ``.scp`` files; ``token_list``: default ``tokens.txt`` beside the latter.

    Raises:
        DataError: a table that cannot be read.
    """

    def __init__(
        self, embeddings: Path, posteriors: Path, token_list: Path | None = None, blank: str = "<blank>"
    ) -> None:
        self.tables: Mapping[Path, dict[str, str]] = {
            path: read_kaldi_table(path, require_sorted=False) for path in (embeddings, posteriors)
        }
        self.embeddings, self.posteriors = embeddings, posteriors
        self.model = recorded_model(posteriors)
        _, self.blank = read_token_list(token_list or posteriors.with_name("tokens.txt"), blank)

    def _matrix(self, path: Path, utt_id: str) -> np.ndarray:
        from espnet_latentasr.data.ark import load_mat

        place = self.tables[path].get(utt_id)
        if place is None or "|" in place:
            what = "no such entry" if place is None else f"'{place}' is a command; give a file"
            raise DataError(f"{path}: utterance '{utt_id}': {what}")
        try:
            matrix = np.asarray(load_mat(place))
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: utterance '{utt_id}': '{place}': {error}") from None
        if matrix.ndim != 2 or not len(matrix) or np.isnan(matrix).any():
            raise DataError(f"{path}: utterance '{utt_id}': shape {matrix.shape} or NaN; (T, D) expected")
        return matrix

    def hear(self, nbest: NBest) -> Heard:
        """Features of a list.

        Raises:
            DataError: the list was made from another model's posteriors.
        """
        if nbest.meta.model != self.model:
            raise DataError(
                f"{self.posteriors}: posteriors of {self.model}, but the lists (utterance "
                f"'{nbest.utt_id}') were made by {nbest.meta.model}; the value head needs the lists' own "
                "CTC posteriors (lists of an autoregressive recogniser have none)"
            )
        states = self._matrix(self.embeddings, nbest.utt_id)
        return hear(nbest, states, self._matrix(self.posteriors, nbest.utt_id), self.blank)


def acoustics_of(embeddings: Path | None, posteriors: Path | None, blank: str) -> Acoustics | None:
    """Acoustics of two tables, None of none.

    Raises:
        ConfigError: one of the two alone.
    """
    if embeddings is None and posteriors is None:
        return None
    if embeddings is None or posteriors is None:
        raise ConfigError("--embeddings and --posteriors belong together: give both, or neither")
    return Acoustics(embeddings, posteriors, blank=blank)
