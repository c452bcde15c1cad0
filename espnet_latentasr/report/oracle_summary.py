"""The short form of an oracle-gap study for RESULTS.md, from the tables that bin.oracle_gap wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from espnet_latentasr.errors import DataError
from espnet_latentasr.reading import parse_number, read_csv, read_text

Rows = list[dict[str, str]]
RANKED = ("all", "recoverable")
WHAT = "a table of bin.oracle_gap"


def read_rows(path: Path, words: Sequence[str], numbers: Sequence[str]) -> Rows:
    """Read a table of ``bin.oracle_gap``; an empty list if there is no such file.

    Args:
        words, numbers: columns that it has; a number may be left empty.

    Raises:
        DataError: it has not, or a cell is no number.
    """
    rows = []
    for where, row in read_csv(path, (*words, *numbers), WHAT) if path.is_file() else ():
        for key in numbers:
            if row[key] != "":
                parse_number(where, row, key, finite=False)
        rows.append(row)
    return rows


def number(text: str, digits: int = 2, sign: bool = False) -> str:
    """Return a CSV cell rounded; a dash for an empty one."""
    return "–" if text in ("", "nan") else f"{float(text):{'+' if sign else ''}.{digits}f}"


def judged(row: Mapping[str, str]) -> str:
    """Return ``rate (difference, Holm's p)`` of a rule."""
    delta, p = number(row["delta"], sign=True), number(row["Holm p"], 4)
    return f"{number(row['error rate'])} ({delta}, {p})"


def wide(rows: Rows, by: str, title: str) -> list[str]:
    """Return a Markdown table: a line per value of ``by``, a column per rule."""
    rules = list(dict.fromkeys(row["rule"] for row in rows))
    lines = [
        f"\n{title}\n",
        f"|{by}|utterances|greedy|oracle|{'|'.join(rules)}|",
        "|---" * (len(rules) + 4) + "|",
    ]
    for value in dict.fromkeys(row[by] for row in rows):
        mine = {row["rule"]: row for row in rows if row[by] == value}
        first = next(iter(mine.values()))
        cells = [value, first["utterances"], number(first["greedy"]), number(first["oracle"])]
        cells += [judged(mine[rule]) if rule in mine else number("") for rule in rules]
        lines.append(f"|{'|'.join(cells)}|")
    return lines


def listed(rows: Rows, columns: Sequence[tuple[str, int | None]], title: str) -> list[str]:
    """Return a Markdown table of some columns; with digits for numbers, as they are for None."""
    lines = [f"\n{title}\n", f"|{'|'.join(name for name, _ in columns)}|", "|---" * len(columns) + "|"]
    for row in rows:
        cells = [row[name] if digits is None else number(row[name], digits) for name, digits in columns]
        lines.append(f"|{'|'.join(cells)}|")
    return lines


def summary_markdown(folder: Path) -> str:
    """Summarise ``folder`` (``report`` and ``rules`` below it) of ``local/run_oracle_gap.sh``.

    Raises:
        DataError: no report by condition is there.
    """
    judged_by = ("error rate", "delta", "Holm p")
    rows = read_rows(
        folder / "report/conditions.csv",
        ("condition", "rule", "utterances"),
        ("G", "greedy", "oracle", *judged_by),
    )
    if not rows:
        raise DataError(f"{folder}/report/conditions.csv: nothing there; run bin.oracle_gap first")
    report = read_text(folder / "report/oracle_gap.md", "a report of bin.oracle_gap")
    head = [*report.split("\n"), "", ""][2]
    longest = max((row["G"] for row in rows), key=lambda size: float(size or "nan"))
    cells = "Cells: error rate in % (difference to greedy in points, p after Holm over"
    family = f"{cells} all {len(rows)} rows by list size, condition and rule)."
    parts = [f"## Oracle gap: {folder.name}\n\n{head}. {family}"]
    parts += wide([r for r in rows if r["condition"] == "all"], "G", "By list size, all conditions:")
    parts += wide([r for r in rows if r["G"] == longest], "condition", f"By condition, G = {longest}:")
    numbers = (*judged_by, "low", "high", "p", "closure")
    if rules := read_rows(folder / "rules/rules.csv", ("rule", "better", "worse", "same"), numbers):
        columns = [("rule", None), ("error rate", 2), ("delta", 2), ("low", 2), ("high", 2), ("p", 4)]
        columns += [("Holm p", 4), ("closure", 1), ("better", None), ("worse", None), ("same", None)]
        title = f"Every rule with its own settings, G = {longest} (Holm over these):"
        parts += listed(rules, columns, title)
    numbers = ("rho", "low", "high", "P(top is best)")
    ranking = read_rows(folder / "report/ranking.csv", ("score", "subset", "N"), numbers)
    ranking = [row for row in ranking if row["subset"] in RANKED]
    columns = [("score", None), ("subset", None), ("rho", 3), ("low", 3), ("high", 3), ("N", None)]
    parts += listed(ranking, [*columns, ("P(top is best)", 1)], "Spearman's rho of score and errors:")
    return "\n".join(parts) + "\n"
