"""Sequence-level training in RESULTS.md: the tables that local/run_sequence.sh left; computes nothing."""

from __future__ import annotations

from pathlib import Path

from espnet_latentasr.reading import read_text

WHAT = "a report of local/run_sequence.sh"


def sequence_markdown(study: Path) -> str:
    """A study's outcome tables and the variance ratios of its checkpoints, one heading level lower.

    Args:
        study: ``<expdir>/sequence/<tag>``.

    Figures and trajectories stay in the study's own report.
    """
    report = read_text(study / "report/sequence.md", WHAT)
    parts = [report.split("\n## Trajectories\n")[0]]
    for path in sorted(study.glob("*/variance/*/ratios.md")):
        title, _, table = read_text(path, WHAT).partition("\n")
        checkpoint = path.parents[2].name
        parts.append(f"{title}: checkpoint '{checkpoint}'\n{table}")
    lines = "\n".join(part.rstrip("\n") + "\n" for part in parts).split("\n")
    return "\n".join(f"#{line}" if line.startswith("#") else line for line in lines)
