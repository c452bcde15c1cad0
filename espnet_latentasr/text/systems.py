"""Several systems on the same references, each against the first; knows scores, aligns nothing.

The table is what one would print: difference with its interval, p values corrected for exactly the
rows that are there, and the matched-pairs test as a second opinion.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from espnet_latentasr.errors import DataError
from espnet_latentasr.fileio import atomic_write_text
from espnet_latentasr.stats.bootstrap import PairedDifference
from espnet_latentasr.stats.comparisons import Contest, caption, compare_family
from espnet_latentasr.stats.mapsswe import MatchedPairs, mapsswe
from espnet_latentasr.text.edit_distance import COST_MODEL
from espnet_latentasr.text.error_rate import ErrorRate

FILES = ("comparison.csv", "comparison.md")
CSV_HEADER = (
    "unit", "normalizer", "normalizer_version", "cost_model", "baseline", "system", "utterances",
    "reference_length", "baseline_err", "system_err", "delta", "ci_low", "ci_high", "p", "p_holm",
    "p_bh", "p_one", "mapsswe_segments", "mapsswe_z", "mapsswe_p", "better", "worse", "same",
    "resampled", "units", "replicates", "seed",
)  # fmt: skip


@dataclass(frozen=True)
class Scored:
    """What comparing needs of one scored system, utterances in C-locale order."""

    unit: str
    normalizer: str
    normalizer_version: str
    utts: tuple[str, ...]
    errors: np.ndarray  # (U,)
    lengths: np.ndarray  # (U,)
    operations: tuple[str, ...]

    @classmethod
    def of(cls, result: ErrorRate) -> Scored:
        counts = [alignment.counts for alignment in result.utterances.values()]
        return cls(
            result.unit,
            result.normalizer,
            result.normalizer_version,
            tuple(result.utterances),
            np.array([c.errors for c in counts]),
            np.array([c.reference_length for c in counts]),
            tuple(alignment.operations for alignment in result.utterances.values()),
        )

    @property
    def rate(self) -> float:
        """Error rate in percent."""
        return 100 * float(self.errors.sum() / self.lengths.sum())


@dataclass(frozen=True)
class Row:
    """One system against the baseline."""

    baseline: str
    system: str
    scored: tuple[Scored, Scored]  # baseline, system
    difference: PairedDifference
    matched: MatchedPairs
    p_holm: float
    p_bh: float


@dataclass(frozen=True)
class Bootstrap:
    """How the interval and its p values are made; ``speakers`` (utterance -> speaker): draw those."""

    speakers: Mapping[str, str] | None = None
    replicates: int = 10_000
    seed: int = 0

    @property
    def resampled(self) -> str:
        return "utterances" if self.speakers is None else "speakers"


def compare_systems(
    units: Sequence[Mapping[str, Scored]], bootstrap: Bootstrap = Bootstrap()
) -> list[Row]:
    """Compare each system with the first, unit by unit; the family of tests is all rows returned.

    Args:
        units: for each unit, system name -> its scores; the first one is the baseline.

    Raises:
        DataError: systems scored on different utterances or references, or no reference token.
    """
    contests, pairs = [], []
    for scored in units:
        (baseline_name, baseline), *others = scored.items()
        if not baseline.lengths.sum():
            raise DataError(
                f"no reference token in {len(baseline.utts)} utterances ({baseline.unit}); an error "
                "rate needs one: check the references and the normaliser"
            )
        for name, system in others:
            if system.utts != baseline.utts or (system.lengths != baseline.lengths).any():
                raise DataError(
                    f"'{baseline_name}' and '{name}' were scored on different utterances or "
                    "references; score both against the same file with the same normaliser"
                )
            pairs.append((baseline_name, name, (baseline, system)))
        speakers = bootstrap.speakers
        clusters = None if speakers is None else [speakers[utt] for utt in baseline.utts]
        errors = [system.errors for _, system in others]
        contests.append(Contest(baseline.errors, errors, baseline.lengths, clusters))
    found = compare_family(contests, replicates=bootstrap.replicates, seed=bootstrap.seed)
    return [
        Row(*pair, row.difference, _matched(*pair[2]), row.p_holm, row.p_bh)
        for pair, row in zip(pairs, found, strict=True)
    ]


def _matched(baseline: Scored, system: Scored) -> MatchedPairs:
    return mapsswe(baseline.operations, system.operations)


def write_comparison(directory: Path, rows: Sequence[Row], bootstrap: Bootstrap) -> None:
    """Write ``comparison.csv`` (all digits) and ``comparison.md`` (to print)."""
    for name, text in zip(FILES, (_csv(rows, bootstrap), _markdown(rows, bootstrap)), strict=True):
        atomic_write_text(directory / name, text)


def _csv(rows: Sequence[Row], bootstrap: Bootstrap) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(CSV_HEADER)
    for row in rows:
        baseline, system = row.scored
        d, m = row.difference, row.matched
        cells = (
            system.unit, system.normalizer, system.normalizer_version, COST_MODEL, row.baseline,
            row.system, len(system.utts), int(system.lengths.sum()), baseline.rate, system.rate,
            100 * d.delta, 100 * d.low, 100 * d.high, d.p, row.p_holm, row.p_bh, d.p_one, m.segments, m.z,
            m.p, d.better, d.worse, d.same, bootstrap.resampled, d.units, bootstrap.replicates,
            bootstrap.seed,
        )  # fmt: skip
        missing = [isinstance(cell, float) and math.isnan(cell) for cell in cells]
        writer.writerow("" if no else cell for cell, no in zip(cells, missing, strict=True))
    return buffer.getvalue()


def _markdown(rows: Sequence[Row], bootstrap: Bootstrap) -> str:
    first = rows[0].scored[0]
    lines = [
        f"# Against {rows[0].baseline}",
        "",
        f"{len(first.utts)} utterances, normaliser {first.normalizer} ({first.normalizer_version}), "
        f"counts of {COST_MODEL}. Error rates in %, delta in percentage points (below zero: better). "
        f"CI and p: paired bootstrap over {rows[0].difference.units} {bootstrap.resampled}, "
        f"{bootstrap.replicates:,} draws, seed {bootstrap.seed}, two-sided. {caption(len(rows))} p "
        "MAPSSWE: matched-pairs sentence-segment test, two-sided, not corrected. better/worse/same count "
        "utterances; -: undefined.",
        "",
        f"|unit|system|{rows[0].baseline}|system's|delta|95 % CI|p|p Holm|p BH|p MAPSSWE|"
        "better/worse/same|",
        "|---" * 11 + "|",
    ]
    for row in rows:
        (baseline, system), d = row.scored, row.difference
        interval = "-" if math.isnan(d.low) else f"[{100 * d.low:+.2f}, {100 * d.high:+.2f}]"
        second = "-" if math.isnan(row.matched.p) else f"{row.matched.p:.4f}"
        lines.append(
            f"|{system.unit}|{row.system}|{baseline.rate:.2f}|{system.rate:.2f}|{100 * d.delta:+.2f}|"
            f"{interval}|{d.p:.4f}|{row.p_holm:.4f}|{row.p_bh:.4f}|{second}|"
            f"{d.better}/{d.worse}/{d.same}|"
        )
    return "\n".join(lines) + "\n"
