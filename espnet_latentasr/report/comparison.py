"""Frozen against latent, test set by test set: reads scored folders, decodes and scores nothing."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from espnet_latentasr.errors import DataError
from espnet_latentasr.stats.bootstrap import PairedDifference, paired_bootstrap
from espnet_latentasr.stats.multiplicity import benjamini_hochberg, holm

BASELINE_TAG = "decode_frozen"
# Its text is that of decode_latent; it is decoded for its other depths.
ANALYSIS_TAG = "decode_latent_depths"


@dataclass(frozen=True)
class Scored:
    """Errors and reference lengths by utterance, and what the loop did."""

    errors: dict[str, int]
    lengths: dict[str, int]
    mean_steps: float
    skip_rate: float
    capped: int
    real_time_factor: float

    @property
    def rate(self) -> float:
        return sum(self.errors.values()) / max(sum(self.lengths.values()), 1)


def read_scored(folder: Path, unit: str = "wer") -> Scored:
    """Read ``score_<unit>/per_utt.csv`` and ``latent.jsonl`` of one decoded set.

    A rescored set has no ``latent.jsonl``: what the loop did is then NaN, and nothing counts as capped.

    Raises:
        DataError: the two do not cover the same utterances.
    """
    errors, lengths = {}, {}
    with open(folder / f"score_{unit}" / "per_utt.csv", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            errors[row["utt"]] = int(row["S"]) + int(row["D"]) + int(row["I"])
            lengths[row["utt"]] = int(row["ref_len"])
    if not (folder / "latent.jsonl").is_file() and (folder / "rescore.json").is_file():
        return Scored(errors, lengths, math.nan, math.nan, 0, math.nan)
    with open(folder / "latent.jsonl", encoding="utf-8") as lines:
        records = {row["utt_id"]: row for row in map(json.loads, lines)}
    if records.keys() != errors.keys():
        raise DataError(f"{folder}: latent.jsonl and per_utt.csv differ in utterances; score again")
    count = max(len(records), 1)
    audio = sum(row["audio_seconds"] for row in records.values())
    spent = sum(sum(row["seconds"].values()) for row in records.values())
    return Scored(
        errors,
        lengths,
        mean_steps=sum(row["steps"] for row in records.values()) / count,
        skip_rate=sum(row["stopped"] == "entry" for row in records.values()) / count,
        capped=sum(row["capped"] for row in records.values()),
        real_time_factor=spent / audio if audio else 0.0,
    )


def compare(baseline: Scored, system: Scored) -> PairedDifference:
    """Paired difference over the utterances, which must be the same ones."""
    if baseline.errors.keys() != system.errors.keys() or baseline.lengths != system.lengths:
        raise DataError("the two systems were scored on different utterances or references")
    utts = sorted(baseline.errors)
    return paired_bootstrap(
        np.array([baseline.errors[u] for u in utts]),
        np.array([system.errors[u] for u in utts]),
        np.array([baseline.lengths[u] for u in utts]),
    )


def comparison_section(expdir: Path, unit: str = "wer", dev: str | None = None) -> str:
    """Markdown table of every decoding of one experiment against its frozen decoding.

    ``dev``: the set that settings are chosen on; it is no row, nor is the pass over all depths, whose
    text is another row's.

    The p values are also adjusted for the number of tests; the family is exactly the rows printed.
    Sets without any reference token have no error rate to compare and no row.
    """
    rows: list[tuple[str, Scored, Scored, PairedDifference]] = []
    for folder in sorted(expdir.glob(f"*/*/score_{unit}"), key=lambda p: str(p).encode()):
        place = folder.parent
        tag, test_set = place.parts[-2:]
        frozen = expdir / BASELINE_TAG / test_set
        unpaired = not (frozen / f"score_{unit}").is_dir()
        if tag in (BASELINE_TAG, ANALYSIS_TAG) or test_set == dev or unpaired:
            continue
        baseline, system = read_scored(frozen, unit), read_scored(place, unit)
        if sum(system.lengths.values()):
            rows.append((f"{tag}/{test_set}", baseline, system, compare(baseline, system)))
    if not rows:
        return ""
    p_values = [difference.p for *_, difference in rows]
    adjusted = zip(holm(p_values), benjamini_hochberg(p_values), strict=True)
    header = (
        f"### Latent against frozen ({unit.upper()})\n\n"
        "Paired bootstrap over utterances (10,000 draws, two-sided p). p Holm and p BH: p corrected for "
        f"the {len(rows)} rows of this table, after Holm and after Benjamini and Hochberg. "
        "better/worse/same counts utterances; RTF: seconds of compute per second of audio.\n\n"
        "|dataset|frozen|latent|delta|95 % CI|p|p Holm|p BH|better/worse/same|mean K|skipped|capped|"
        "RTF frozen|RTF latent|\n" + "|---" * 14 + "|\n"
    )
    lines = (_row(*row, *pair) for row, pair in zip(rows, adjusted, strict=True))
    return header + "\n".join(lines) + "\n"


def _row(
    name: str, baseline: Scored, system: Scored, d: PairedDifference, p_holm: float, p_bh: float
) -> str:
    return (
        f"|{name}|{baseline.rate:.2%}|{system.rate:.2%}|{100 * d.delta:+.2f}|"
        f"[{100 * d.low:+.2f}, {100 * d.high:+.2f}]|{d.p:.4f}|{p_holm:.4f}|{p_bh:.4f}|"
        f"{d.better}/{d.worse}/{d.same}|"
        f"{_known(system.mean_steps, '.2f')}|{_known(system.skip_rate, '.1%')}|{system.capped}|"
        f"{_known(baseline.real_time_factor, '.4f')}|{_known(system.real_time_factor, '.4f')}|"
    )


def _known(value: float, form: str) -> str:
    """The number, or a dash where a system has none (a rescored list took no latent step)."""
    return "-" if math.isnan(value) else format(value, form)
