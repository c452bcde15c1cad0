"""``RESULTS.md`` in ESPnet's format: knows saved scores and the environment; scores nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from espnet_latentasr import __version__
from espnet_latentasr.data.skipped import read_skipped
from espnet_latentasr.report.experiment import UNITS
from espnet_latentasr.text.error_rate import ErrorRate
from espnet_latentasr.text.sclite import COLUMNS
from espnet_latentasr.text.sclite_table import round_half_up
from espnet_latentasr.text.score_dir import read_score_json

# What is read from the installed packages' metadata; none of them is imported (espnet takes 10 s).
PACKAGES = {"espnet": "espnet", "pytorch": "torch", "transformers": "transformers"}


def results_table(scores: Mapping[str, ErrorRate | Mapping]) -> str:
    """Return the table ``|dataset|Snt|Wrd|Corr|Sub|Del|Ins|Err|S.Err|``, one row per score.

    ``scores`` maps ``<decode tag>/<set>`` to an `ErrorRate` or the content of a ``score.json``.
    Percentages are rounded as sclite rounds them; a rate that does not exist is ``-``.
    """
    lines = [f"|dataset|{'|'.join(COLUMNS)}|", "|---" * (len(COLUMNS) + 1) + "|"]
    for dataset, score in scores.items():
        summary = score.summary() if isinstance(score, ErrorRate) else score
        counts, rates = summary["counts"], summary["rates"]
        cells = [dataset, str(counts["sentences"]), str(counts["reference_length"])]
        for column in COLUMNS[2:]:
            rate = rates[column]
            cells.append("-" if rate is None else f"{round_half_up(rate):.1f}")
        lines.append(f"|{'|'.join(cells)}|")
    return "\n".join(lines) + "\n"


def left_out_section(data_root: str | Path) -> str:
    """Return which test sets were decoded without some of their utterances, and why; nothing if none.

    Looks for ``<data_root>/<set>/skipped.tsv``, which stages 2 and 3 write when asked to go on.
    """
    lines = []
    for path in sorted(Path(data_root).glob("*/skipped.tsv"), key=lambda p: str(p).encode()):
        if rows := read_skipped(path):
            counts = Counter(reason for _, reason, _ in rows)
            why = ", ".join(f"{number} {reason}" for reason, number in sorted(counts.items()))
            lines.append(f"- {path.parent.name}: {len(rows)} left out ({why}); {path} names them\n")
    return "## Test utterances that were left out\n\n" + "".join(lines) if lines else ""


def experiment_section(expdir: str | Path) -> str:
    """Return the section of one experiment: a table per unit of all its scored test sets.

    Looks for ``<expdir>/<decode tag>/<set>/score_<unit>/score.json``; the normalisers used are
    named above each table, since rows of different normalisers do not compare.
    """
    expdir = Path(expdir)
    parts = [f"## {expdir}\n"]
    for unit in UNITS:
        paths = sorted(expdir.glob(f"*/*/score_{unit}/score.json"), key=lambda p: str(p).encode())
        scores = {"/".join(path.parts[-4:-2]): read_score_json(path) for path in paths}
        if scores:
            names = {f"{s['normalizer']} ({s['normalizer_version']})" for s in scores.values()}
            parts.append(
                f"### {unit.upper()}\n\nnormaliser: {', '.join(sorted(names))}\n\n"
                + results_table(scores)
            )
    return "\n".join(parts)


def environment_section(repository: str | Path = ".") -> str:
    """Return the ``## Environments`` list: date, versions, and the commit of ``repository``."""
    commit, commit_date = git_commit(repository)
    items = {
        "date": time.strftime("%a %b %e %H:%M:%S %Z %Y"),
        "python version": sys.version.replace("\n", " "),
        **{f"{name} version": f"{name} {_installed(dist)}" for name, dist in PACKAGES.items()},
        "espnet_latentasr version": f"espnet_latentasr {__version__}",
        "Git hash": commit,
    }
    lines = [f"- {name}: `{value}`\n" for name, value in items.items()]
    return "## Environments\n" + "".join(lines) + f"  - Commit date: `{commit_date}`\n"


def git_commit(repository: str | Path) -> tuple[str, str]:
    """Return hash and date of the commit checked out in a folder; ``none`` twice if there is none.

    A report must be possible from an unpacked archive and without git.
    """
    try:
        done = subprocess.run(
            ["git", "-C", str(repository), "log", "-1", "--format=%H%n%cd"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "none", "none"
    commit, date = done.stdout.strip().split("\n")
    return commit, date


def _installed(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"
