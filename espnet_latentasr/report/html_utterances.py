"""The page's list of utterances: alignments in colour, value traces, players; everything is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from urllib.parse import quote

from espnet_latentasr.report.listing import Listing, Row
from espnet_latentasr.text.edit_distance import align

HEADS = (
    ("set", "set", "text"), ("id", "utterance", "text"), ("seconds", "seconds", "number"),
    ("tokens", "tokens", "number"), ("frozen", "frozen", "number"), ("latent", "latent", "number"),
    ("saved", "saved", "number"), ("k", "K", "number"), ("v0", "v0", "number"),
)  # fmt: skip


def utterances(listed: Listing, unit: str, anchor: str) -> str:
    """The section with the list; without its script it can be read and opened, but not sorted."""
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
    steps = sorted({row.steps for row in listed.rows if row.values})
    controls = (
        '<label>find <input id="find" type="search"></label>'
        + _select("set", sets) + _select("change", ["better", "worse", "same"])
        + _select("k", list(map(str, steps)), "K")
        + '<output id="shown"></output>'
    )  # fmt: skip
    rows = "\n".join(_row(row, unit, reach) for row in listed.rows)
    return (
        f'<section id="{anchor}">\n<h2>Utterances</h2>\n<p class="note">{escape(note)}</p>\n'
        f"{_alignments(listed)}"
        f'<div id="controls" hidden>{controls}</div>\n<div id="heads" class="grid">{heads}</div>\n'
        f'<div id="utterances">\n{rows}\n</div>\n</section>'
    )


def _alignments(listed: Listing) -> str:
    """Links to the scored alignments of every set, of both systems."""
    rows = (
        f"<li>{escape(name)}: " + ", ".join(
            f'<a href="{escape(quote(path))}">{escape(who)}</a>' for who, path in files) + "</li>"
        for name, files in listed.files
    )  # fmt: skip
    found = "".join(rows)
    if not found:
        return ""
    return f"<details><summary>Alignments of whole sets</summary><ul>{found}</ul></details>\n"


def _select(name: str, options: Sequence[str], label: str | None = None) -> str:
    entries = "".join(f'<option value="{escape(o)}">{escape(o)}</option>' for o in options)
    entries = f'<option value="">all</option>{entries}'
    return f'<label>{label or name} <select name="{name}">{entries}</select></label>'


def _row(row: Row, unit: str, reach: float) -> str:
    saved = row.errors[0] - row.errors[1]
    change = "better" if saved > 0 else "worse" if saved < 0 else "same"
    v0 = f"{row.values[0]:.4f}" if row.values else ""
    steps = str(row.steps) if row.values else ""
    known = row.seconds == row.seconds
    data = {
        "set": row.test_set, "id": row.utt, "seconds": f"{row.seconds:.3f}" if known else "nan",
        "tokens": row.length, "frozen": row.errors[0], "latent": row.errors[1], "saved": saved,
        "k": steps or "nan", "v0": v0 or "nan", "change": change,
    }  # fmt: skip
    attributes = " ".join(f'data-{key}="{escape(str(value))}"' for key, value in data.items())
    cells = (f"{row.seconds:.2f}" if known else "", row.length, *row.errors)
    place = f"{row.test_set}/{row.utt}"
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
        f'<details class="utt" id="{escape(place)}" {attributes}>'
        f'<summary class="grid"><span>{escape(row.test_set)}</span>'
        f'<span class="id">{escape(row.utt)}</span>' + "".join(f"<span>{c}</span>" for c in cells)
        + f'<span class="{change}">{saved:+d}</span><span>{steps}</span><span>{v0}</span></summary>'
        f'<div class="detail">{player}<a href="#{escape(quote(place))}">link</a>'
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
