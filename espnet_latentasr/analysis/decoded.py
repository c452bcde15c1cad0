"""One scored decoding of one set as arrays: counts, texts, what the loop did and its seconds."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from espnet_latentasr.analysis.jsonl import read_jsonl
from espnet_latentasr.data.kaldi_dir import c_sorted
from espnet_latentasr.errors import DataError
from espnet_latentasr.text.score_dir import read_score_json, score_dir_name

STAGES = ("encode", "prefill", "loop", "decode")
STOPPED = ("entry", "step", "budget")


@dataclass(frozen=True)
class Decoded:
    """U utterances in C-locale order.

    references, hypotheses: normalised and cut into the unit's tokens, separated by blanks.  errors,
    lengths, steps: (U,) int64.  stopped: (U,) of `STOPPED`.  values and updates: per utterance, ragged:
    v_0.. and the update norms, cosines and jumps of the steps made.  seconds: (U, 4) by `STAGES`.
    """

    folder: Path
    summary: dict
    utts: tuple[str, ...]
    references: tuple[str, ...]
    hypotheses: tuple[str, ...]
    errors: np.ndarray
    lengths: np.ndarray
    steps: np.ndarray
    stopped: np.ndarray
    capped: np.ndarray
    audio_seconds: np.ndarray
    seconds: np.ndarray
    values: tuple[list[float], ...]
    updates: tuple[dict[str, list[float]], ...]

    @property
    def rate(self) -> float:
        """Pooled error rate as a fraction; NaN without reference tokens."""
        return error_rate(self.errors, self.lengths)


def error_rate(errors: np.ndarray, lengths: np.ndarray) -> float:
    """Pooled errors over pooled reference tokens; NaN where there is nothing to divide by."""
    total = int(np.sum(lengths))
    return int(np.sum(errors)) / total if total else float("nan")


def read_decoded(folder: str | Path, unit: str = "wer") -> Decoded:
    """Read ``score_<unit>/{score.json,per_utt.csv}`` and ``latent.jsonl`` of one decoded set.

    Raises:
        DataError: files that do not cover the same utterances, or a record that lacks a field.
    """
    folder = Path(folder)
    scores = folder / score_dir_name(unit)
    summary = read_score_json(scores / "score.json")
    with open(scores / "per_utt.csv", encoding="utf-8", newline="") as file:
        counts = {row["utt"]: row for row in csv.DictReader(file)}
    records = {row["utt_id"]: (where, row) for where, row in read_jsonl(folder / "latent.jsonl")}
    if odd := c_sorted(counts.keys() ^ records.keys()):
        raise DataError(
            f"{folder}: latent.jsonl has {len(records)} utterances, per_utt.csv {len(counts)}; first "
            f"differing id '{odd[0]}'; score this set again (stage 13)"
        )
    utts = c_sorted(counts)
    read = [_record(*records[utt]) for utt in utts]
    scored = [counts[utt] for utt in utts]

    def column(index: int, dtype: type) -> np.ndarray:
        return np.array([row[index] for row in read], dtype=dtype)

    return Decoded(
        folder,
        summary,
        tuple(utts),
        tuple(row["ref"] for row in scored),
        tuple(row["hyp"] for row in scored),
        np.array([int(row["S"]) + int(row["D"]) + int(row["I"]) for row in scored], dtype=np.int64),
        np.array([int(row["ref_len"]) for row in scored], dtype=np.int64),
        column(0, np.int64),
        column(1, np.str_),
        column(2, np.bool_),
        column(3, np.float64),
        column(4, np.float64).reshape(-1, len(STAGES)),
        tuple(row[5] for row in read),
        tuple(row[6] for row in read),
    )


def _record(where: str, row: dict) -> tuple:
    """Fields of one ``latent.jsonl`` row, in the order `read_decoded` takes them."""
    try:
        if row["stopped"] not in STOPPED:
            raise ValueError(f"stopped: {row['stopped']!r}, one of {', '.join(STOPPED)} expected")
        updates = {key: row[f"update_{key}"] for key in ("norms", "cosines", "jumps")}
        seconds = [float(row["seconds"][stage]) for stage in STAGES]
        audio = float(row["audio_seconds"])
        return row["steps"], row["stopped"], row["capped"], audio, seconds, row["values"], updates
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{where}: {error}; decode this set again (stage 12)") from error


def check_same_utterances(baseline: Decoded, system: Decoded) -> None:
    """Refuse a comparison of two decodings of different utterances or references."""
    if baseline.utts != system.utts or not np.array_equal(baseline.lengths, system.lengths):
        raise DataError(
            f"{baseline.folder} ({len(baseline.utts)} utterances) and {system.folder} "
            f"({len(system.utts)}): different utterances or references; decode and score both again"
        )
    if baseline.summary["normalizer"] != system.summary["normalizer"]:
        raise DataError(
            f"{baseline.folder} was scored with normaliser '{baseline.summary['normalizer']}', "
            f"{system.folder} with '{system.summary['normalizer']}'; score both alike (stage 13)"
        )
