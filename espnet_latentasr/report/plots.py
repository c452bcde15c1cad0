"""How a figure looks and is written: PNG, SVG and the CSV it was drawn from; knows no analysis.

Column width, 8 pt, a palette that colour-blind readers can tell apart, and a marker or line style beside
every colour.  No global state of the plotting library is touched.  The figures are in ``figures.py``.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from espnet_latentasr.errors import ConfigError
from espnet_latentasr.fileio import atomic_path, atomic_write_text
from espnet_latentasr.report.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette, darkest first where order carries meaning.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
WIDTH = 3.4  # inches: a column of a two-column page
STYLE = {
    "font.size": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.5,
    "svg.fonttype": "none",
    "figure.dpi": 200,
}


@dataclass(frozen=True)
class Figure:
    """One figure; ``table`` holds what is drawn, ``height`` is in inches."""

    name: str
    caption: str
    table: Table
    draw: Callable[[Axes], None]
    height: float = 2.4


def render(figure: Figure) -> dict[str, bytes]:
    """Draw a figure as ``png`` and ``svg``; equal input gives equal bytes."""
    try:
        import matplotlib
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        raise ConfigError(
            f"figures need matplotlib ({error}); pip install matplotlib, or leave them out with "
            "--figures false"
        ) from error
    drawn = {}
    with matplotlib.rc_context(STYLE | {"svg.hashsalt": figure.name}):
        canvas = Canvas(figsize=(WIDTH, figure.height), layout="constrained")
        figure.draw(canvas.subplots())
        for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
            buffer = io.BytesIO()
            canvas.savefig(buffer, format=kind, metadata=metadata)
            drawn[kind] = buffer.getvalue()
            # The layout found for the first format is the second's too.
            canvas.set_layout_engine("none")
    return drawn


def save_figure(figure: Figure, folder: str | Path) -> str:
    """Write ``<name>.png``, ``.svg`` and ``.csv`` below ``folder``; return the SVG."""
    folder = Path(folder)
    drawn = render(figure)
    svg = drawn["svg"].decode("utf-8")
    with atomic_path(folder / f"{figure.name}.png") as temporary:
        temporary.write_bytes(drawn["png"])
    atomic_write_text(folder / f"{figure.name}.svg", svg)
    atomic_write_text(folder / f"{figure.name}.csv", figure.table.csv())
    return svg
