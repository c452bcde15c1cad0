"""Recordings longer than the recogniser hears at once: from rows of their parts to the file's row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from espnet_latentasr.data.audio import SAMPLE_RATE

PART_KEYS = ("steps", "stopped", "values", "update_norms")  # one entry per part


def join_rows(
    path: str, bounds: Sequence[tuple[int, int]], rows: Sequence[Mapping[str, Any]], spaces: bool
) -> dict[str, Any]:
    """One row of a file that was transcribed in parts.

    Args:
        bounds: (start, end) of each part in samples.
        rows: of the parts (`transcribe.row_of`).
        spaces: whether blanks separate the language's words.

    Returns:
        The row: texts joined, the score their sum, capped if one is; what is said per utterance (depth,
        values, ...) is a list with one entry per part; ``parts`` has each part's times in seconds, text
        and, where asked for, n-best list.
    """
    texts = [row["text"] for row in rows if row["text"]]
    parts = []
    for (start, end), row in zip(bounds, rows, strict=True):
        part = {"start": start / SAMPLE_RATE, "end": end / SAMPLE_RATE, "text": row["text"]}
        parts.append(part | ({"nbest": row["nbest"]} if "nbest" in row else {}))
    return {
        "file": path,
        "text": (" " if spaces else "").join(texts),
        "language": ", ".join(dict.fromkeys(row["language"] for row in rows)),
        "seconds": bounds[-1][1] / SAMPLE_RATE,
        "score": sum(row["score"] for row in rows),
        "capped": any(row["capped"] for row in rows),
        **{key: [row[key] for row in rows] for key in PART_KEYS},
        "tokens": [token for row in rows for token in row["tokens"]],
        "parts": parts,
    }
