"""A report as data: sections of text, tables and figures, and how they become Markdown and files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from espnet_latentasr.fileio import atomic_write_text
from espnet_latentasr.report.plots import Figure, save_figure
from espnet_latentasr.report.tables import Table, escape_markdown


@dataclass(frozen=True)
class Section:
    """One question: a sentence or two, its tables and its figures."""

    title: str
    text: str = ""
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()

    def printed(self, published: bool) -> list[Table]:
        """Our tables, or the published ones to put beside them; empty ones are left out."""
        return [t for t in self.tables if t.shown and t.rows and t.published == published]


def table_markdown(table: Table) -> str:
    """Title, table and note."""
    note = f"\n{table.note}\n" if table.note else ""
    return f"**{escape_markdown(table.title)}**\n\n{table.markdown()}{note}"


def section_markdown(section: Section, folder: str | None) -> str:
    """A section; its first figure is shown, others are linked; ``folder`` None: without figures."""
    parts = [f"### {section.title}\n"]
    if section.text:
        parts.append(f"{section.text}\n")
    parts += map(table_markdown, section.printed(published=False))
    if section.figures and folder is not None:
        first, *others = section.figures
        parts.append(f"![{first.caption}]({folder}/{first.name}.png)\n\n{first.caption}\n")
        if others:
            links = ", ".join(f"[{f.name}]({folder}/{f.name}.png)" for f in others)
            parts.append(f"More: {links}\n")
    parts += map(table_markdown, section.printed(published=True))
    return "\n".join(parts)


def write_parts(sections: Sequence[Section], folder: Path, figures: bool = True) -> dict[str, str]:
    """Write a CSV per table and PNG, SVG and CSV per figure; return the figures' SVG by name.

    ``files.txt`` lists what was written; files of an earlier report that are none of this one go.
    """
    drawn: dict[str, str] = {}
    written: list[str] = []
    for section in sections:
        for table in section.tables:
            atomic_write_text(folder / f"{table.name}.csv", table.csv())
            written.append(f"{table.name}.csv")
        for figure in section.figures if figures else ():
            drawn[figure.name] = save_figure(figure, folder)
            written += (f"{figure.name}.{kind}" for kind in ("png", "svg", "csv"))
    listed = folder / "files.txt"
    old = listed.read_text(encoding="utf-8").split("\n") if listed.is_file() else []
    for name in set(old) - {"", *written}:
        (folder / Path(name).name).unlink(missing_ok=True)
    atomic_write_text(listed, "".join(f"{name}\n" for name in written))
    return drawn
