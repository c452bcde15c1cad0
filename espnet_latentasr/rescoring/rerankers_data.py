"""Candidate lists with their errors, as rerankers are trained on; knows no model.

Training utterances are held out by a hash of their ids, candidates are drawn by (seed, utterance), so
neither depends on the order or number of other utterances.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from espnet_latentasr.errors import DataError
from espnet_latentasr.rescoring.nbest_list import NBest, normalizer_of, read_nbest
from espnet_latentasr.text.edit_distance import align
from espnet_latentasr.text.units import tokenize


@dataclass(frozen=True)
class Judged:
    """A list and the errors (G,) of its candidates against a reference of ``length`` tokens."""

    nbest: NBest
    errors: np.ndarray
    length: int

    @property
    def rates(self) -> np.ndarray:
        """Errors over the reference length, at least 1 (G,)."""
        return self.errors / max(self.length, 1)

    def pick(self, rows: list[int]) -> Judged:
        """The list of these candidates alone."""
        hyps = tuple(self.nbest.hyps[row] for row in rows)
        return replace(self, nbest=replace(self.nbest, hyps=hyps), errors=self.errors[rows])


def _digest(*parts: object) -> int:
    text = "\0".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def is_held_out(utt_id: str, share: float, seed: int) -> bool:
    """Whether an utterance is among the ``share`` that chooses the epoch; by its id alone."""
    return _digest("held out", seed, utt_id) < share * 2**64


def draw_candidates(size: int, wanted: int, utt_id: str, seed: int) -> list[int]:
    """Rows of a list of ``size`` to learn from: the greedy one and others drawn, in list order."""
    if size <= wanted:
        return list(range(size))
    rng = np.random.default_rng(_digest("candidates", seed, utt_id))
    return [0, *sorted((1 + rng.choice(size - 1, wanted - 1, replace=False)).tolist())]


def judged_lists(path: Path, refs: Mapping[str, str] | None, unit: str) -> Iterator[Judged]:
    """Read lists and count the errors of every candidate, as sclite does.

    Args:
        refs: by utterance; None takes the references in the file.

    Raises:
        DataError: an utterance without a reference.
    """
    for nbest in read_nbest(path):
        ref = nbest.ref if refs is None else refs.get(nbest.utt_id)
        if ref is None:
            where = "the file" if refs is None else "--ref"
            raise DataError(
                f"{path}: utterance '{nbest.utt_id}': no reference in {where}; errors are learned"
            )
        reference = tokenize(normalizer_of(nbest.meta)(ref), unit)
        errors = [align(reference, tokenize(text, unit)).counts.errors for text in nbest.texts]
        yield Judged(nbest, np.array(errors, dtype=np.int64), len(reference))


def split_lists(
    path: Path,
    refs: Mapping[str, str] | None,
    unit: str,
    candidates: int | None,
    held_out: float,
    seed: int,
) -> tuple[list[Judged], list[Judged]]:
    """Training and held-out lists, each cut to ``candidates`` (None: whole).

    Training lists whose candidates all have the same errors teach no ranking and are left out.

    Raises:
        DataError: one of the parts is empty.
    """
    parts: tuple[list[Judged], list[Judged]] = ([], [])
    flat = 0
    for judged in judged_lists(path, refs, unit):
        utt_id = judged.nbest.utt_id
        if candidates is not None:
            judged = judged.pick(draw_candidates(len(judged.errors), candidates, utt_id, seed))
        out = is_held_out(utt_id, held_out, seed)
        if not out and len(set(judged.errors.tolist())) == 1:
            flat += 1
        else:
            parts[out].append(judged)
    logging.info(
        "%s: %d lists to train on, %d held out, %d left out (all candidates equally wrong)",
        path,
        *map(len, parts),
        flat,
    )
    if not all(parts):
        raise DataError(
            f"{path}: {len(parts[0])} lists to train on, {len(parts[1])} held out ({flat} lists have "
            "candidates that are all equally wrong); both parts need some, give more lists"
        )
    return parts


def greedy_rate(lists: list[Judged]) -> float:
    """Pooled error rate of the greedy candidates, a fraction."""
    return sum(int(j.errors[0]) for j in lists) / max(sum(j.length for j in lists), 1)


def chosen_rate(lists: list[Judged], scores: list[np.ndarray]) -> float:
    """Pooled error rate of the candidates with the highest scores (of ties the first), a fraction."""
    chosen = [int(j.errors[int(np.argmax(s))]) for j, s in zip(lists, scores, strict=True)]
    return sum(chosen) / max(sum(j.length for j in lists), 1)
