"""Transcripts as plain text, JSON lines or CSV; knows rows, no model."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from espnet_latentasr.errors import ConfigError

FORMATS = ("text", "jsonl", "csv")
SUFFIX = {".txt": "text", ".jsonl": "jsonl", ".csv": "csv"}
PLAIN = ("file", "text", "language", "seconds", "score", "capped")
TRACE = ("steps", "stopped", "values", "update_norms", "tokens")


def format_of(named: str | None, output: Path | None) -> str:
    """The format asked for, else what the output's name says, else plain text.

    Raises:
        ConfigError: a name that says none.
    """
    if named is not None:
        return named
    if output is None:
        return "text"
    if output.suffix not in SUFFIX:
        raise ConfigError(f"--output {output}: ends in none of {', '.join(SUFFIX)}; say --format")
    return SUFFIX[output.suffix]


def transcript_line(row: Mapping[str, Any], form: str, trace: bool) -> str:
    """One file's transcript: ``FILE<tab>TEXT``, an object, or a CSV row, with its line break.

    ``trace``: with what the latent loop did (depth, why it stopped, values, norms) and the tokens; plain
    text then has depth and values in further columns.  A file in parts has one depth and one list of
    values per part, with ``/`` between them in plain text.
    """
    if form == "text":
        parts = [row["file"], row["text"]]
        if trace:
            whole = "parts" not in row
            steps, values = ([row["steps"]], [row["values"]]) if whole else (row["steps"], row["values"])
            parts.append(" / ".join(map(str, steps)))
            parts.append(" / ".join(" ".join(f"{value:.4f}" for value in part) for part in values))
        return "\t".join(" ".join(part.split()) if part else part for part in parts) + "\n"
    keys = [*PLAIN, *(TRACE if trace else ())]
    if form == "jsonl":
        chosen = {key: row[key] for key in [*keys, "nbest", "parts"] if key in row}
        return json.dumps(chosen, ensure_ascii=False) + "\n"
    return _csv([row[key] if not isinstance(row[key], list) else json.dumps(row[key]) for key in keys])


def transcripts(
    rows: Iterable[Mapping[str, Any]], problems: Mapping[str, str], form: str, trace: bool
) -> str:
    """All transcripts; JSON lines and CSV also name the files that have none, and why."""
    parts = [transcript_line(row, form, trace) for row in rows]
    if form == "jsonl":
        failed = ({"file": file, "error": error} for file, error in problems.items())
        parts += [json.dumps(row, ensure_ascii=False) + "\n" for row in failed]
    if form == "csv":
        width = len(PLAIN) + (len(TRACE) if trace else 0)
        parts = [line.removesuffix("\n") + ",\n" for line in parts]
        parts.insert(0, _csv([*PLAIN, *(TRACE if trace else ()), "error"]))
        parts += [_csv([file, *[""] * (width - 1), error]) for file, error in problems.items()]
    return "".join(parts)


def _csv(cells: Iterable[Any]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(cells)
    return buffer.getvalue()
