"""Tables as data, written as Markdown for people and CSV for programs; computes no statistic."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from espnet_latentasr.stats.comparisons import Row
from espnet_latentasr.stats.seeds import mean_sd

MISSING = "–"


@dataclass(frozen=True)
class Column:
    """One column.  ``form`` formats its value; a tuple's entries go to it one by one.

    ``parts``: the names of a tuple's entries, each of which is a column of the CSV.
    """

    header: str
    form: str = "{}"
    parts: tuple[str, ...] = ()

    def cell(self, value: Any) -> str:
        """Text of one value; a missing one (None, NaN or a tuple with such) is a dash."""
        values = value if self.parts and value is not None else (value,)
        if any(v is None or v != v for v in values):
            return MISSING
        return self.form.format(*values)


@dataclass(frozen=True)
class Table:
    """A table; ``name`` is its file's, ``note`` says what a reader must know.

    ``shown``: whether it is printed, or written as CSV only.  ``published``: not measured here.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""
    shown: bool = True
    published: bool = False

    def cells(self) -> list[list[str]]:
        """Formatted cells, row by row."""
        return [[c.cell(value) for c, value in zip(self.columns, row, strict=True)] for row in self.rows]

    def markdown(self) -> str:
        """A GitHub-flavoured Markdown table without its title; transcripts are escaped."""
        lines = [
            "|" + "|".join(escape_markdown(c.header) for c in self.columns) + "|",
            "|---" * len(self.columns) + "|",
        ]
        for row, cells in zip(self.rows, self.cells()):
            texts = (escape_markdown(c) if isinstance(v, str) else c for c, v in zip(cells, row))
            lines.append("|" + "|".join(texts) + "|")
        return "\n".join(lines) + "\n"

    def csv(self) -> str:
        """All values unrounded, a column per entry of a tuple; missing values are empty."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(
            name for c in self.columns for name in ([f"{c.header} {p}" for p in c.parts] or [c.header])
        )
        for row in self.rows:
            flat: list[Any] = []
            for column, value in zip(self.columns, row, strict=True):
                width = len(column.parts)
                flat += ([None] * width if value is None else value) if width else [value]
            writer.writerow("" if v is None or v != v else v for v in flat)
        return buffer.getvalue()


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is: no markup, no HTML, no cell border, one line."""
    text = re.sub(r"([\\`*\[\]|~])", r"\\\1", " ".join(text.split()))
    # An underscore inside a word starts no emphasis, and names are full of them.
    text = re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


PERCENT = "{:.2f}"
DIFFERENCE = (
    Column("Δ", "{:+.2f}"),
    Column("95 % CI", "[{:+.2f}, {:+.2f}]", ("low", "high")),
    Column("p", "{:.4f}"),
    Column("p Holm", "{:.4f}"),
    Column("p BH", "{:.4f}"),
    Column("better/worse/same", "{}/{}/{}", ("better", "worse", "same")),
)


def difference_cells(row: Row | None) -> tuple[Any, ...]:
    """Values for `DIFFERENCE`, in percentage points; all missing without a difference."""
    if row is None:
        return (None,) * len(DIFFERENCE)
    d = row.difference
    counts = (d.better, d.worse, d.same)
    return 100 * d.delta, (100 * d.low, 100 * d.high), d.p, row.p_holm, row.p_bh, counts


def seed_table(results: Mapping[str, Mapping[str, tuple[float, float]]], unit: str) -> Table:
    """Mean and standard deviation over seeds.

    Args:
        results: dataset -> seed's experiment -> (frozen, latent) error rate as fractions.
    """
    columns = (
        Column("dataset"),
        Column("seeds"),
        Column("frozen", "{:.2f} ± {:.2f}", ("mean", "sd")),
        Column("latent", "{:.2f} ± {:.2f}", ("mean", "sd")),
        Column("Δ", "{:+.2f} ± {:.2f}", ("mean", "sd")),
    )
    rows = []
    for dataset, seeds in results.items():
        pairs = 100 * np.array(list(seeds.values()))
        sides = (pairs[:, 0], pairs[:, 1], pairs[:, 1] - pairs[:, 0])
        rows.append((dataset, len(pairs), *((m.mean, m.sd) for m in map(mean_sd, sides))))
    note = (
        f"{unit.upper()} in %, mean ± standard deviation over trainings that differ in their seed; the "
        "frozen model has no seed. An interval over utterances (above) says nothing about seeds."
    )
    return Table("seeds", f"Over seeds ({unit.upper()})", columns, tuple(rows), note)
