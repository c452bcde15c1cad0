"""All depths of one decoding pass as arrays: errors, values and confidence at k = 0..N.

A decoding with ``depths: all`` holds, for every utterance, the greedy hypothesis after each number of
latent steps and the values v_0..v_N.  Every halting rule is then a choice of one column per utterance
and needs no further decoding.  This file reads the pass and applies the threshold rule; other rules
are in ``policies.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from espnet_latentasr.analysis.jsonl import read_jsonl
from espnet_latentasr.data.kaldi_dir import c_sorted
from espnet_latentasr.errors import DataError
from espnet_latentasr.text.edit_distance import align
from espnet_latentasr.text.normalize import Normalizer
from espnet_latentasr.text.units import tokenize

ON_HALT = ("keep", "discard")


@dataclass(frozen=True)
class Depths:
    """One pass over U utterances in C-locale order, N latent steps.

    errors: (U, N + 1) int64, errors of the hypothesis at depth k.  lengths: (U,) reference tokens.
    values: (U, N + 1) float32, v_k as the value head gave it.  log_probs: (U, N + 1) mean
    log-probability per token of the greedy hypothesis, in nats (<= 0).  texts: what was recognised.
    """

    utts: tuple[str, ...]
    errors: np.ndarray
    lengths: np.ndarray
    values: np.ndarray
    log_probs: np.ndarray
    texts: tuple[tuple[str, ...], ...]

    @property
    def steps(self) -> int:
        """N."""
        return self.errors.shape[1] - 1

    @property
    def distinct(self) -> float:
        """Share of utterances whose depths give more than one text."""
        return sum(len(set(row)) > 1 for row in self.texts) / len(self.texts)


def has_all_depths(folder: str | Path) -> bool:
    """Whether a decoded set holds more than one depth, judged by its first utterance."""
    path = Path(folder) / "nbest.jsonl"
    for where, row in read_jsonl(path) if path.is_file() else ():
        hyps = _objects(where, row)
        return len(hyps) > 1 and all(hyp.get("depth") == k for k, hyp in enumerate(hyps))
    return False


def read_depths(
    folder: str | Path, references: Mapping[str, str], normalizer: Normalizer, unit: str = "wer"
) -> Depths:
    """Read ``nbest.jsonl`` and ``latent.jsonl`` of a set decoded with ``depths: all`` and count errors.

    Both sides are normalised alike and aligned as sclite does, so that ``errors[:, k]`` are the counts
    that scoring the depth alone would give.

    Raises:
        DataError: names file, line and utterance of a row that lacks a depth or a value, and ids that
            differ from the references.
    """
    folder = Path(folder)
    values, rows = (
        {row["utt_id"]: (where, row) for where, row in read_jsonl(folder / name)}
        for name in ("latent.jsonl", "nbest.jsonl")
    )
    if not rows:
        raise DataError(f"{folder}/nbest.jsonl: no utterance; decode this set again (stage 12)")
    for name, other in (("latent.jsonl", values), ("the references", references)):
        if odd := c_sorted(rows.keys() ^ other.keys()):
            raise DataError(
                f"{folder}/nbest.jsonl: {len(rows)} utterances, {name} {len(other)}; {len(odd)} are in "
                f"one of the two only, first '{odd[0]}'; decode the whole set, or name its data directory"
            )
    utts = c_sorted(rows)
    steps = max(len(_objects(where, row)) for where, row in rows.values()) - 1
    read = [_hypotheses(*rows[utt], steps) for utt in utts]
    counted = [
        _errors(references[utt], [text for text, _ in hyps], normalizer, unit)
        for utt, hyps in zip(utts, read)
    ]
    return Depths(
        tuple(utts),
        np.array([errors for errors, _ in counted], dtype=np.int64),
        np.array([length for _, length in counted], dtype=np.int64),
        np.array([_values(*values[utt], steps) for utt in utts], dtype=np.float32),
        np.array([[log_prob for _, log_prob in hyps] for hyps in read]),
        tuple(tuple(text for text, _ in hyps) for hyps in read),
    )


def _objects(where: str, row: Mapping) -> list[Mapping]:
    """The hypotheses of a row, which must be objects."""
    hyps = row.get("hyps", [])
    if not isinstance(hyps, list) or not all(isinstance(hyp, dict) for hyp in hyps):
        raise DataError(f"{where}: hyps {hyps!r:.200}, a list of objects expected; decode again")
    return hyps


def _hypotheses(where: str, row: Mapping, steps: int) -> list[tuple[str, float]]:
    """(text, mean log-probability) at depth 0..N of one ``nbest.jsonl`` row."""
    hyps = row.get("hyps", ())
    if len(hyps) != steps + 1 or steps < 1:
        raise DataError(
            f"{where}: {len(hyps)} hypotheses, one per depth 0..{max(steps, 1)} expected; decode with "
            "'depths: all'"
        )
    found = []
    for depth, hyp in enumerate(hyps):
        if hyp.get("depth") != depth:
            raise DataError(f"{where}: hypothesis {depth} is of depth {hyp.get('depth')!r}; decode again")
        try:
            # The end token is part of the sum and not of the count.  A hypothesis cut at its cap has
            # none; its mean is then over one token too many, in some hundred.
            mean = float(hyp["am_logp"]) / (int(hyp["n_tok"]) + 1)
            found.append((str(hyp["text"]), mean))
        except (KeyError, TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
            raise DataError(
                f"{where}: depth {depth}: {error!r}; text, am_logp and n_tok expected; decode again"
            ) from error
        if not np.isfinite(mean):
            raise DataError(f"{where}: depth {depth}: log-probability {hyp['am_logp']!r} is not finite")
    return found


def _values(where: str, row: Mapping, steps: int) -> list[float]:
    values = row.get("values")
    whole = isinstance(values, list) and all(type(v) in (int, float) for v in values)
    # Beyond float32 there is no value: they are compared as such.
    if not whole or len(values) != steps + 1 or not all(abs(v) < 3e38 for v in values):
        count = len(values) if isinstance(values, list) else "no"
        raise DataError(
            f"{where}: {count} values in 'values', {steps + 1} finite ones expected (v_0..v_{steps}); "
            "decode with 'depths: all'"
        )
    return values


def _errors(reference: str, texts: list[str], normalizer: Normalizer, unit: str) -> tuple[list[int], int]:
    """Errors of each text and the reference's length; equal texts are aligned once."""
    tokens = tokenize(normalizer(reference), unit)
    counts = {text: align(tokens, tokenize(normalizer(text), unit)).counts.errors for text in set(texts)}
    return [counts[text] for text in texts], len(tokens)


def select_threshold(values: np.ndarray, theta: float, on_halt: str = "keep") -> np.ndarray:
    """Depth K (U,) at which the loop stops under a value threshold.

    v_0 < theta: 0.  The smallest k >= 1 with v_k < theta stops: ``keep`` gives k, ``discard`` k - 1.
    Otherwise N.  Comparison is in float32, as in the loop.

    Args:
        values: (U, N + 1).
    """
    if on_halt not in ON_HALT:
        raise ValueError(f"on_halt: {on_halt!r}; one of {', '.join(ON_HALT)} expected")
    entered, first = _halts(values, theta)
    steps = values.shape[1] - 1
    stopped = first if on_halt == "keep" else first - 1
    return np.where(entered, np.minimum(np.where(first > steps, steps, stopped), steps), 0)


def steps_run(values: np.ndarray, theta: float) -> np.ndarray:
    """Latent steps (U,) that are computed under a threshold, kept or not: the compute spent."""
    entered, first = _halts(values, theta)
    return np.where(entered, np.minimum(first, values.shape[1] - 1), 0)


def _halts(values: np.ndarray, theta: float) -> tuple[np.ndarray, np.ndarray]:
    """Whether the entry gate let a row in, and the first k >= 1 with v_k < theta (N + 1: none)."""
    values = np.asarray(values, dtype=np.float32)
    below = values < np.float32(theta)
    first = np.where(below[:, 1:].any(1), below[:, 1:].argmax(1) + 1, values.shape[1])
    return ~below[:, 0], first


def errors_at(errors: np.ndarray, depth: np.ndarray) -> np.ndarray:
    """Errors (U,) of the chosen depth (U,) among errors (U, N + 1)."""
    return np.take_along_axis(errors, np.asarray(depth, dtype=np.int64)[:, None], axis=1)[:, 0]
