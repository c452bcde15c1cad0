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

from espnet_latentasr.report.document import Section
from espnet_latentasr.report.listing import Listing, Row
from espnet_latentasr.report.tables import Table
from espnet_latentasr.text.edit_distance import align

HEADS = (
    ("set", "set", "text"), ("id", "utterance", "text"), ("seconds", "seconds", "number"),
    ("tokens", "tokens", "number"), ("frozen", "frozen", "number"), ("latent", "latent", "number"),
    ("saved", "saved", "number"), ("k", "K", "number"), ("v0", "v0", "number"),
)  # fmt: skip


def page(
    title: str, sections: Sequence[Section], drawn: Mapping[str, str], listed: Listing | None, unit: str
) -> str:
    """The whole page.

    Args:
        drawn: SVG by figure name.  listed: None leaves the list out.
    """
    style, script = (
        (files(__package__) / name).read_text(encoding="utf-8") for name in ("page.css", "page.js")
    )
    script = script if listed is not None else ""
    policy = (
        f"default-src 'none'; img-src data:; media-src 'self' data: file:; style-src {_hash(style)}; "
        f"script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
    )
    body = [_section(section, drawn) for section in sections]
    if listed is not None:
        body.append(_utterances(listed, unit))
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


def _section(section: Section, drawn: Mapping[str, str]) -> str:
    parts = [f"<section>\n<h2>{escape(section.title)}</h2>"]
    if section.text:
        parts.append(f"<p>{escape(section.text.replace('`', ''))}</p>")
    parts += map(html_table, section.printed(published=False))
    figures = []
    for figure in section.figures:
        if figure.name in drawn:
            data = base64.b64encode(drawn[figure.name].encode("utf-8")).decode("ascii")
            caption = escape(figure.caption)
            figures.append(
                f'<figure><img src="data:image/svg+xml;base64,{data}" alt="{caption}">'
                f"<figcaption>{caption}</figcaption></figure>"
            )
    if len(figures) > 2:
        rest = "".join(figures[1:])
        figures = [
            figures[0],
            f"<details><summary>{len(figures) - 1} more figures</summary>{rest}</details>",
        ]
    return "\n".join([*parts, *figures, *map(html_table, section.printed(published=True)), "</section>"])


def html_table(table: Table) -> str:
    """A table with its title and note; published ones are set apart."""
    kind = ' class="published"' if table.published else ""
    head = "".join(f'<th scope="col">{escape(c.header)}</th>' for c in table.columns)
    rows = "\n".join(
        f"<tr{kind}>" + "".join(f'<td dir="auto">{escape(cell)}</td>' for cell in cells) + "</tr>"
        for cells in table.cells()
    )
    note = f'\n<p class="note">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<h3>{escape(table.title)}</h3>\n<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>{note}"
    )


def _utterances(listed: Listing, unit: str) -> str:
    left = listed.total - len(listed.rows)
    changed = sum(row.errors[0] != row.errors[1] for row in listed.rows)
    note = (
        f"{listed.tag} beside the frozen model: {len(listed.rows):,} of {listed.total:,} utterances, "
        f"those whose errors change most first; {left:,} left out, of which {listed.changed - changed:,} "
        f"change. {sum(row.audio is None for row in listed.rows):,} of the listed have no audio here. "
        f"Counts are {unit.upper()} errors; underlined: substituted or inserted, struck through: deleted."
    )
    reach = max((abs(v) for row in listed.rows for v in row.values), default=0.0)
    heads = "".join(
        f'<span><button type="button" data-key="{key}" data-kind="{kind}">{label}</button></span>'
        for key, label, kind in HEADS
    )
    sets = sorted({row.test_set for row in listed.rows}, key=str.encode)
    steps = sorted({row.steps for row in listed.rows})
    controls = (
        '<label>find <input id="find" type="search"></label>'
        + _select("set", sets) + _select("change", ["better", "worse", "same"])
        + _select("k", list(map(str, steps)), "K")
        + '<output id="shown"></output>'
    )  # fmt: skip
    rows = "\n".join(_row(row, unit, reach) for row in listed.rows)
    return (
        f'<section>\n<h2>Utterances</h2>\n<p class="note">{escape(note)}</p>\n'
        f'<div id="controls" hidden>{controls}</div>\n<div id="heads" class="grid">{heads}</div>\n'
        f'<div id="utterances">\n{rows}\n</div>\n</section>'
    )


def _select(name: str, options: Sequence[str], label: str | None = None) -> str:
    entries = "".join(f'<option value="{escape(o)}">{escape(o)}</option>' for o in options)
    entries = f'<option value="">all</option>{entries}'
    return f'<label>{label or name} <select name="{name}">{entries}</select></label>'


def _row(row: Row, unit: str, reach: float) -> str:
    saved = row.errors[0] - row.errors[1]
    change = "better" if saved > 0 else "worse" if saved < 0 else "same"
    v0 = f"{row.values[0]:.4f}" if row.values else ""
    data = {
        "set": row.test_set, "id": row.utt, "seconds": f"{row.seconds:.3f}", "tokens": row.length,
        "frozen": row.errors[0], "latent": row.errors[1], "saved": saved, "k": row.steps,
        "v0": v0 or "nan", "change": change,
    }  # fmt: skip
    attributes = " ".join(f'data-{key}="{escape(str(value))}"' for key, value in data.items())
    cells = (f"{row.seconds:.2f}", row.length, *row.errors)
    player = ""
    if row.audio is not None:
        player = f'<audio controls preload="none" src="{escape(row.audio)}"></audio>'
    reference = escape(_joined(row.reference.split(), unit))
    depths = ""
    if row.by_depth is not None:
        depths = (
            f"<div>errors by depth 0..{len(row.by_depth) - 1}: {' '.join(map(str, row.by_depth))}</div>"
        )
    return (
        f'<details class="utt" {attributes}><summary class="grid"><span>{escape(row.test_set)}</span>'
        f'<span class="id">{escape(row.utt)}</span>' + "".join(f"<span>{c}</span>" for c in cells)
        + f'<span class="{change}">{saved:+d}</span><span>{row.steps}</span><span>{v0}</span></summary>'
        f'<div class="detail">{player}'
        f'<span class="side" dir="auto"><b>reference</b> {reference}</span>'
        + aligned("frozen", row.reference, row.frozen, unit)
        + aligned("latent", row.reference, row.latent, unit)
        + f"{depths}{_trace(row, reach)}</div></details>"
    )  # fmt: skip


def _joined(tokens: Sequence[str], unit: str) -> str:
    # Character units write a blank as a token of its own.
    return " ".join(tokens) if unit in ("wer", "mer") else "".join(tokens).replace("<space>", " ")


def aligned(who: str, reference: str, hypothesis: str, unit: str) -> str:
    """One hypothesis with its errors marked: substituted, inserted and deleted tokens."""
    parts = []
    for operation, ref, hyp in align(reference.split(), hypothesis.split()).columns():
        word = escape(" " if (hyp or ref) == "<space>" else hyp or ref)
        if operation == "S":
            word = f'<span class="sub" title="reference: {escape(ref)}">{word}</span>'
        elif operation == "I":
            word = f"<ins>{word}</ins>"
        elif operation == "D":
            word = f"<del>{word}</del>"
        parts.append(word)
    joint = " " if unit in ("wer", "mer") else ""
    return f'<span class="side" dir="auto"><b>{escape(who)}</b> {joint.join(parts)}</span>'


def _trace(row: Row, reach: float) -> str:
    """v_0.. as a small curve around zero, and as numbers; the state of K is marked."""
    if not row.values or reach == 0:
        return ""
    width, height = 16 * len(row.values), 28
    points = [
        (8 + 16 * k, height / 2 - value / reach * (height / 2 - 3)) for k, value in enumerate(row.values)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(
        f'<circle class="{"kept" if k == row.steps else "dot"}" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>'
        for k, (x, y) in enumerate(points)
    )
    numbers = " ".join(f"{value:+.4f}" for value in row.values)
    return (
        f'<div><svg class="trace" width="{width}" height="{height}" role="img" aria-label="values">'
        f'<line class="axis" x1="0" x2="{width}" y1="{height / 2}" y2="{height / 2}"/>'
        f'<polyline class="line" points="{line}"/>{dots}</svg> value {numbers}, K = {row.steps}, '
        f"stopped: {escape(row.stopped)}</div>"
    )
