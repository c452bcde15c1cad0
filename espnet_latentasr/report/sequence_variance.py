"""Tables of gradient variances: one row per utterance, and the ratios over all; computes no statistic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from espnet_latentasr.analysis.sequence_variance import ratio_rows
from espnet_latentasr.fileio import atomic_write_text
from espnet_latentasr.report.oracle_gap import rows_table

NOTE = {
    "logits": "towards the logits of every frame; the variance given a text is exact",
    "projection": "towards the output projection's weight; the variance given a text is from draws",
}


def write_variances(rows: Sequence[Mapping[str, Any]], output: Path, towards: str) -> str:
    """Write ``variance.csv`` (utterances) and ``ratios.csv``, ``ratios.md``; return the latter's text.

    Args:
        towards: ``logits`` or ``projection``.
    """
    note = (
        f"Gradients {NOTE[towards]}. Ratios of variances over the candidates of a list, per utterance; "
        "mean and median over utterances with 95 % bootstrap intervals. Expected sampled / marginal is "
        "never below 1 (law of total variance); the others may be."
    )
    ratios = rows_table("ratios", "Gradient variance", ratio_rows(list(rows)), note)
    atomic_write_text(output / "variance.csv", rows_table("variance", "Utterances", rows).csv())
    atomic_write_text(output / "ratios.csv", ratios.csv())
    text = f"# Gradient variance of a CTC policy\n\n{ratios.markdown()}\n{note}\n"
    atomic_write_text(output / "ratios.md", text)
    return text
