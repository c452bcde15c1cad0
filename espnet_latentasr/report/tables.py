"""Tables as data, written as Markdown for people and CSV for programs; computes paired statistics only
by calling ``stats``."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from espnet_latentasr.analysis.decoded import Decoded, check_same_utterances
from espnet_latentasr.analysis.latency import latency
from espnet_latentasr.stats.bootstrap import PairedDifference, paired_bootstrap_many
from espnet_latentasr.stats.multiplicity import holm
from espnet_latentasr.stats.seeds import mean_sd

MISSING = "–"
REPLICATES = 10_000


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
    Column("Holm p", "{:.4f}"),
    Column("better/worse/same", "{}/{}/{}", ("better", "worse", "same")),
)


def difference_cells(d: PairedDifference | None, adjusted: float | None = None) -> tuple[Any, ...]:
    """Values for `DIFFERENCE`, in percentage points; all missing without a difference."""
    if d is None:
        return (None,) * len(DIFFERENCE)
    return 100 * d.delta, (100 * d.low, 100 * d.high), d.p, adjusted, (d.better, d.worse, d.same)


@dataclass(frozen=True)
class Pair:
    """One decoding of one set beside the frozen model's.

    all_depths: it decoded every depth, so that its seconds are no system's.
    """

    tag: str
    test_set: str
    frozen: Decoded
    latent: Decoded
    difference: PairedDifference
    all_depths: bool = False


def compare_all(
    decoded: Mapping[tuple[str, str], Decoded],
    frozen_tag: str,
    all_depths: Collection[tuple[str, str]] = (),
    replicates: int = REPLICATES,
) -> list[Pair]:
    """Compare every (tag, set) with the frozen decoding of its set, where there is one.

    Raises:
        DataError: the two hold different utterances or references.
    """
    found: dict[tuple[str, str], PairedDifference] = {}
    for name in dict.fromkeys(test_set for _, test_set in decoded):
        baseline = decoded.get((frozen_tag, name))
        systems = {key: d for key, d in decoded.items() if key[1] == name and key[0] != frozen_tag}
        if baseline is None or not systems or not baseline.lengths.sum():
            continue
        for system in systems.values():
            check_same_utterances(baseline, system)
        errors = [system.errors for system in systems.values()]
        compared = paired_bootstrap_many(baseline.errors, errors, baseline.lengths, replicates=replicates)
        found |= zip(systems, compared)
    return [
        Pair(*key, decoded[frozen_tag, key[1]], system, found[key], key in all_depths)
        for key, system in decoded.items()
        if key in found
    ]


def holm_by_family(families: Sequence[str], p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p of each test within its family; the order stays."""
    adjusted = [0.0] * len(p_values)
    for family in set(families):
        rows = [row for row, name in enumerate(families) if name == family]
        for row, p in zip(rows, holm([p_values[row] for row in rows])):
            adjusted[row] = float(p)
    return adjusted


def paired_table(pairs: Sequence[Pair], unit: str) -> Table:
    """The main table: frozen and latent error rate, difference, and what it costs."""
    columns = (
        Column("dataset"),
        Column("frozen", PERCENT),
        Column("latent", PERCENT),
        *DIFFERENCE,
        Column("mean K", "{:.2f}"),
        Column("skip %", "{:.1f}"),
        Column("RTF ratio", "{:.3f}"),
        Column("capped"),
    )
    adjusted = holm_by_family([p.tag for p in pairs], [p.difference.p for p in pairs])
    rows = []
    for pair, p in zip(pairs, adjusted):
        thinks = any(pair.latent.values)
        seconds = None if pair.all_depths else pair.frozen.seconds
        overhead = latency(pair.latent.seconds, pair.latent.audio_seconds, seconds).overhead
        rows.append(
            (
                f"{pair.tag}/{pair.test_set}",
                100 * pair.frozen.rate,
                100 * pair.latent.rate,
                *difference_cells(pair.difference, p),
                float(pair.latent.steps.mean()) if thinks else None,
                100 * float((pair.latent.stopped == "entry").mean()) if thinks else None,
                None if overhead is None else 1 + overhead,
                int(pair.latent.capped.sum()),
            )
        )
    note = (
        f"{unit.upper()} in %; Δ in percentage points, latent minus frozen, with the 95 % interval and "
        f"two-sided p of a paired bootstrap over utterances ({REPLICATES:,} draws). Holm p: corrected "
        "for the test sets of the same decoding configuration. better/worse/same count utterances; skip: "
        "refused at entry; RTF ratio: compute seconds over the frozen decoding's (none where all depths "
        "were decoded at once); capped: hypotheses cut at their longest length."
    )
    return Table("paired", f"Latent against frozen ({unit.upper()})", columns, tuple(rows), note)


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
