"""Sequence trainings by checkpoint, method and seed: decoded sets compared with where they began."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from espnet_latentasr.data.kaldi_dir import c_sorted, read_kaldi_table
from espnet_latentasr.errors import DataError
from espnet_latentasr.stats.comparisons import Contest, Row, compare_family
from espnet_latentasr.stats.seeds import mean_sd
from espnet_latentasr.text.error_rate import score
from espnet_latentasr.text.normalize import Normalizer


@dataclass(frozen=True)
class Grid:
    """What was trained: every method from every checkpoint with every seed.

    A training lies in ``root/<checkpoint>_<method>_seed<n>``, a checkpoint itself in
    ``root/<checkpoint>``; ``decode/<set>/text`` is below both.
    """

    root: Path
    checkpoints: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...]

    def run(self, checkpoint: str, method: str, seed: int) -> Path:
        return self.root / f"{checkpoint}_{method}_seed{seed}"


@dataclass(frozen=True)
class Scored:
    """Errors (U,) and reference words (U,) of a decoded set in C order of the ids."""

    errors: np.ndarray
    words: np.ndarray

    @property
    def corpus(self) -> float:
        return float(self.errors.sum() / self.words.sum())

    @property
    def macro(self) -> float:
        some = self.words > 0
        return float((self.errors[some] / self.words[some]).mean())


def read_scored(path: Path, references: Mapping[str, str], normalizer: Normalizer) -> Scored:
    """Score a decoded text with sclite's counts.

    Raises:
        DataError: not decoded, or other utterances than the references.
    """
    if not path.is_file():
        raise DataError(f"{path}: not found; this model is not decoded yet")
    found = score(references, read_kaldi_table(path, allow_empty=True), "wer", normalizer).utterances
    counts = [found[utt].counts for utt in c_sorted(found)]
    words = np.array([c.reference_length for c in counts], dtype=np.int64)
    return Scored(np.array([c.errors for c in counts], dtype=np.int64), words)


def outcome_rows(
    grid: Grid, test_set: str, references: Mapping[str, str], normalizer: Normalizer
) -> tuple[list[dict[str, Any]], list[Row]]:
    """Every method from every checkpoint against the checkpoint, paired over utterances; one family.

    The errors of all seeds are added up, so that an utterance counts once whatever their number.

    Returns:
        Rows (rates are fractions, mean and standard deviation over seeds) and their comparisons.
    """
    rows, contests = [], []
    for checkpoint in grid.checkpoints:
        place = Path("decode") / test_set / "text"
        start = read_scored(grid.root / checkpoint / place, references, normalizer)
        systems = []
        for method in grid.methods:
            runs = [
                read_scored(grid.run(checkpoint, method, seed) / place, references, normalizer)
                for seed in grid.seeds
            ]
            systems.append(np.sum([run.errors for run in runs], axis=0))
            corpus, macro = mean_sd([r.corpus for r in runs]), mean_sd([r.macro for r in runs])
            rows.append(
                {
                    "checkpoint": checkpoint,
                    "method": method,
                    "seeds": len(runs),
                    "before": start.corpus,
                    "after": (corpus.mean, corpus.sd),
                    "macro before": start.macro,
                    "macro after": (macro.mean, macro.sd),
                }
            )
        seeds = len(grid.seeds)
        contests.append(Contest(start.errors * seeds, systems, start.words * seeds))
    return rows, compare_family(contests)


def trajectory_rows(grid: Grid) -> list[dict[str, Any]]:
    """All rows of all ``trajectory.csv``, numbers as numbers (rates in percent, of the valid set).

    Raises:
        DataError: a training without trajectory.
    """
    found = []
    for checkpoint in grid.checkpoints:
        for method in grid.methods:
            for seed in grid.seeds:
                path = grid.run(checkpoint, method, seed) / "trajectory.csv"
                if not path.is_file():
                    raise DataError(f"{path}: not found; this training has not been run")
                for row in csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))):
                    whole = {k: int(row[k]) for k in ("epoch", "steps", "errors", "words", "utterances")}
                    rest = {k: float(v) if v else None for k, v in row.items() if k not in whole}
                    run = {"checkpoint": checkpoint, "method": method, "seed": seed}
                    found.append(run | whole | rest)
    return found


def mean_trajectory(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Mean, least and largest corpus and macro WER over seeds, by checkpoint, method and epoch."""
    groups: dict[tuple[str, str, int], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["checkpoint"], row["method"], row["epoch"]), []).append(row)
    found = []
    for (checkpoint, method, epoch), members in groups.items():
        row: dict[str, Any] = {
            "checkpoint": checkpoint,
            "method": method,
            "epoch": epoch,
            "seeds": len(members),
        }
        for name in ("wer_corpus", "wer_macro"):
            values = [m[name] for m in members]
            row |= {name: float(np.mean(values)), f"{name} low": min(values), f"{name} high": max(values)}
        found.append(row)
    return found
