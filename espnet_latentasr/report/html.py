"""``report.html``: one file with tables, figures and a list of utterances; loads nothing from a network.

Everything that comes from data is escaped, and a content security policy lets only this page's own
script and style run.  Without JavaScript the list can be read and opened, but not sorted.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from urllib.parse import quote

from espnet_latentasr.report.document import Section
from espnet_latentasr.report.html_utterances import utterances
from espnet_latentasr.report.listing import Listing
from espnet_latentasr.report.tables import Table


def page(
    title: str,
    sections: Sequence[Section],
    drawn: Mapping[str, str],
    listed: Listing | None,
    unit: str,
    folder: str = "",
) -> str:
    """The whole page.

    Args:
        drawn: SVG by figure name.  listed: None leaves the list out.  folder: of the tables' and
            figures' files beside the page, which are linked.
    """
    style, script = (
        (files(__package__) / name).read_text(encoding="utf-8") for name in ("page.css", "page.js")
    )
    script = script if listed is not None else ""
    policy = (
        f"default-src 'none'; img-src data:; media-src 'self' data: file:; style-src {_hash(style)}; "
        f"script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
    )
    titles = [*(section.title for section in sections), *(["Utterances"] if listed is not None else [])]
    links = (f'<a href="#section{n}">{escape(name)}</a>' for n, name in enumerate(titles))
    body = [f"<nav>{' '.join(links)}</nav>"]
    body += [_section(section, drawn, folder, f"section{n}") for n, section in enumerate(sections)]
    if listed is not None:
        body.append(utterances(listed, unit, f"section{len(sections)}"))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n" + "\n".join(body)
        + (f"\n<script>{script}</script>" if script else "") + "\n</body>\n</html>\n"
    )  # fmt: skip


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _link(path: str, text: str) -> str:
    return f'<a href="{escape(quote(path))}">{escape(text)}</a>'


def _section(section: Section, drawn: Mapping[str, str], folder: str, anchor: str) -> str:
    parts = [f'<section id="{anchor}">\n<h2>{escape(section.title)}</h2>']
    if section.text:
        parts.append(f"<p>{escape(section.text.replace('`', ''))}</p>")
    parts += (html_table(table, folder) for table in section.printed(published=False))
    hidden = [t.name for t in section.tables if not t.shown and t.rows]
    if hidden and folder:
        files = ", ".join(_link(f"{folder}/{name}.csv", f"{name}.csv") for name in hidden)
        parts.append(f'<p class="note">All numbers: {files}</p>')
    figures = []
    for figure in section.figures:
        if figure.name in drawn:
            data = base64.b64encode(drawn[figure.name].encode("utf-8")).decode("ascii")
            caption = escape(figure.caption)
            figures.append(
                f'<figure><img src="data:image/svg+xml;base64,{data}" alt="{caption}">'
                f"<figcaption>{caption}{_files(figure.name, folder)}</figcaption></figure>"
            )
    if len(figures) > 2:
        rest = "".join(figures[1:])
        figures = [
            figures[0],
            f"<details><summary>{len(figures) - 1} more figures</summary>{rest}</details>",
        ]
    return "\n".join([*parts, *figures, *map(html_table, section.printed(published=True)), "</section>"])


def _files(name: str, folder: str) -> str:
    if not folder:
        return ""
    return " " + ", ".join(_link(f"{folder}/{name}.{kind}", kind) for kind in ("png", "svg", "csv"))


def html_table(table: Table, folder: str = "") -> str:
    """A table with its title, note and link; published ones are set apart."""
    kind = ' class="published"' if table.published else ""
    head = "".join(f'<th scope="col">{escape(c.header)}</th>' for c in table.columns)
    rows = "\n".join(
        f"<tr{kind}>" + "".join(map(_cell, cells, row)) + "</tr>"
        for cells, row in zip(table.cells(), table.rows)
    )
    link = f" {_link(f'{folder}/{table.name}.csv', 'csv')}" if folder else ""
    note = f'\n<p class="note">{escape(table.note)}{link}</p>' if table.note or link else ""
    return (
        f'<h3>{escape(table.title)}</h3>\n<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>{note}"
    )


def _cell(text: str, value: object) -> str:
    # Numbers and intervals stay on one line; texts wrap.
    kind = ' dir="auto"' if isinstance(value, str) else ' class="number"'
    return f"<td{kind}>{escape(text)}</td>"
