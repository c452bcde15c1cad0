"""Published figures as tables beside ours: reads ``published.yaml``; computes nothing from them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path

import yaml

from espnet_latentasr.report.document import table_markdown
from espnet_latentasr.report.tables import Column, Table

# Families of conf/families.yaml that repeat a table of the paper.
FAMILIES = {
    "components": "components",
    "budget": "budget",
    "budget_paper": "budget",
    "losses": "losses",
    "activation_size": "activation",
    "adaptation": "main",
    "adaptation_paper": "main",
}
ORIGINS = {"paper": "the paper", "release": "records of the authors' release"}


@cache
def _load() -> dict[str, dict]:
    # Everything stays text: 4.900 must not become 4.9.
    text = (files(__package__) / "published.yaml").read_text(encoding="utf-8")
    return yaml.load(text, yaml.BaseLoader)


def published_names() -> tuple[str, ...]:
    """Names of the published tables."""
    return tuple(_load())


def published_table(name: str) -> Table:
    """One published table, labelled so; numbers keep the digits they were printed with.

    Raises:
        KeyError: no such table.
    """
    entry = _load()[name]
    note = (
        f"Published, not measured here ({ORIGINS[entry['origin']]}; Qwen3-ASR-0.6B, one seed, no "
        "interval). " + entry.get("note", "")
    ).strip()
    columns = tuple(Column(header) for header in entry["columns"])
    rows = tuple(tuple(None if v == "null" else v for v in row) for row in entry["rows"])
    title = f"Published: {entry['title']}"
    return Table(f"published_{name}", title, columns, rows, note, published=True)


def family_markdown(path: Path) -> str:
    """A family's ``family_<name>.md`` and, where the paper has the same table, that one beside it."""
    text = path.read_text(encoding="utf-8")
    name = FAMILIES.get(path.stem.removeprefix("family_"))
    return text if name is None else f"{text}\n{table_markdown(published_table(name))}"
