"""Sequence trainings by checkpoint, method and seed: decoded sets compared with where they began."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from espnet_latentasr.data.kaldi_dir import c_sorted, read_kaldi_table
from espnet_latentasr.errors import DataError
from espnet_latentasr.reading import parse_number, read_csv
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


def read_grid(
    grid: Grid, test_set: str, references: Mapping[str, str], normalizer: Normalizer
) -> dict[tuple[str, str | None], list[Scored]]:
    """Decoded sets by checkpoint and method, one per seed; method None: the checkpoint itself."""
    place = Path("decode") / test_set / "text"
    found: dict[tuple[str, str | None], list[Scored]] = {}
    for checkpoint in grid.checkpoints:
        paths: dict[str | None, list[Path]] = {None: [grid.root / checkpoint]}
        paths |= {m: [grid.run(checkpoint, m, seed) for seed in grid.seeds] for m in grid.methods}
        for method, runs in paths.items():
            scored = [read_scored(run / place, references, normalizer) for run in runs]
            found[checkpoint, method] = scored
    return found


def added(scored: Sequence[Scored]) -> np.ndarray:
    """Errors (U,) of all seeds together, so that an utterance counts once whatever their number."""
    return np.sum([run.errors for run in scored], axis=0)


def outcome_rows(
    grid: Grid, scored: Mapping[tuple[str, str | None], Sequence[Scored]]
) -> tuple[list[dict[str, Any]], list[Row]]:
    """Every method from every checkpoint against the checkpoint, paired over utterances; one family.

    Returns:
        Rows (rates are fractions, mean and standard deviation over seeds) and their comparisons.
    """
    rows, contests, seeds = [], [], len(grid.seeds)
    for checkpoint in grid.checkpoints:
        (start,) = scored[checkpoint, None]
        for method in grid.methods:
            runs = scored[checkpoint, method]
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
        systems = [added(scored[checkpoint, method]) for method in grid.methods]
        contests.append(Contest(start.errors * seeds, systems, start.words * seeds))
    return rows, compare_family(contests)


def control_rows(
    grid: Grid, scored: Mapping[tuple[str, str | None], Sequence[Scored]], control: str
) -> tuple[list[dict[str, Any]], list[Row]]:
    """Every other method against ``control`` from the same checkpoint with the same seeds; one family.

    The control has seen the same utterances as often, without candidates: what a method gains on it is
    due to the sequence-level loss.
    """
    others = [method for method in grid.methods if method != control]
    rows, contests = [], []
    for checkpoint in grid.checkpoints:
        words = scored[checkpoint, None][0].words * len(grid.seeds)
        systems = [added(scored[checkpoint, method]) for method in others]
        contests.append(Contest(added(scored[checkpoint, control]), systems, words))
        rows += [{"checkpoint": checkpoint, "method": method, "control": control} for method in others]
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
                whole_keys = ("epoch", "steps", "errors", "words", "utterances")
                for where, row in read_csv(path, whole_keys, "a trajectory.csv of this training"):
                    whole = {k: parse_number(where, row, k, int) for k in whole_keys}
                    rest = {
                        k: parse_number(where, row, k, finite=False) if v else None
                        for k, v in row.items()
                        if k not in whole
                    }
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
