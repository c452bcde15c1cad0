"""Figures of the oracle gap, one function each: rows of a table in, `Figure` out; computes nothing.

Rates and differences in the rows are in percent, as printed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from espnet_latentasr.report.plots import COLOURS, MARKERS, Figure
from espnet_latentasr.report.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Rows = Sequence[Mapping[str, Any]]
FRAMES = ("dead", "active", "ambiguous")
SIGNIFICANT = ((0.001, "***"), (0.01, "**"), (0.05, "*"))


def _sizes(axes: Axes, rows: Rows) -> None:
    sizes = sorted({row["G"] for row in rows})
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel("candidates G")


def _series(rows: Rows, key: str) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row[key], []).append(row)
    return found


def ranking(name: str, rows: Rows, table: Table, intervals: bool) -> Figure:
    """Minus Spearman's rho of (score, errors) against G, one line per score (Figures 1 and 6).

    Args:
        rows: ``score``, ``G``, ``rho``, ``low``, ``high``.
        intervals: draw the 95 % intervals.
    """

    def draw(axes: Axes) -> None:
        known = [row for row in rows if row["rho"] is not None]
        for (score, line), colour, marker in zip(_series(known, "score").items(), COLOURS, MARKERS):
            x, y = [row["G"] for row in line], [-row["rho"] for row in line]
            axes.plot(x, y, marker=marker, color=colour, label=score)
            if intervals:
                low, high = [-row["high"] for row in line], [-row["low"] for row in line]
                axes.vlines(x, low, high, color=colour, linewidth=0.8)
        _sizes(axes, rows)
        axes.set_ylabel("−ρ (score, errors) within lists")
        axes.figure.legend(loc="outside upper center", ncols=3)

    bars = "; bars: 95 % interval over utterances" if intervals else ""
    caption = f"How well a score ranks the candidates of a list: minus Spearman's ρ, mean{bars}."
    return Figure(name, caption, table, draw)


def frame_shares(name: str, rows: Rows, table: Table) -> Figure:
    """Shares of dead, active and ambiguous frames, given the hypothesis and not (Figure 2).

    Args:
        rows: ``variant``, and mean and ``sd`` of each share, as ``dead`` and ``dead sd``.
    """

    def draw(axes: Axes) -> None:
        for place, (row, colour) in enumerate(zip(rows, COLOURS)):
            x = [k + 0.38 * (place - (len(rows) - 1) / 2) for k in range(len(FRAMES))]
            means, sds = [row[f] for f in FRAMES], [row[f"{f} sd"] for f in FRAMES]
            hatch = "//" if place else None
            axes.bar(x, means, 0.36, yerr=sds, color=colour, hatch=hatch, label=row["variant"])
        axes.axhline(100 / 3, color="black", linestyle="--", linewidth=0.8)
        axes.set_xticks(range(len(FRAMES)), FRAMES)
        axes.set_ylabel("frames (%)")
        axes.figure.legend(loc="outside upper center", ncols=3)

    caption = (
        "Frames of the CTC posterior, mean ± standard deviation over utterances; gamma is given the "
        "hypothesis. Dashed: a third."
    )
    return Figure(name, caption, table, draw)


def rates_by_size(name: str, rows: Rows, table: Table, unit: str) -> Figure:
    """Error rate against G, one line per rule (Figure 5). Rows: ``rule``, ``G``, ``error rate``."""

    def draw(axes: Axes) -> None:
        for (rule, line), colour, marker in zip(_series(rows, "rule").items(), COLOURS, MARKERS):
            style = "--" if rule in ("greedy", "oracle") else "-"
            x, y = [row["G"] for row in line], [row["error rate"] for row in line]
            axes.plot(x, y, style, marker=marker, color=colour, label=rule)
        _sizes(axes, rows)
        axes.set_ylabel(f"{unit.upper()} (%)")
        axes.figure.legend(loc="outside upper center", ncols=3)

    caption = (
        "Error rate over nested lists. A best alpha, chosen on this very set, flatters interpolation."
    )
    return Figure(name, caption, table, draw)


def temperature(name: str, rows: Rows, table: Table, unit: str, operational: float) -> Figure:
    """Error rate against tau with the interval of the difference to greedy (Figure 7).

    Args:
        rows: ``tau``, ``error rate``, ``greedy``, ``low``, ``high``; an infinite tau is drawn last.
        operational: tau of the configuration.
    """

    def draw(axes: Axes) -> None:
        finite = [row["tau"] for row in rows if math.isfinite(row["tau"])]
        end = 3 * max(finite, default=1.0)
        x = [row["tau"] if math.isfinite(row["tau"]) else end for row in rows]
        y = [row["error rate"] for row in rows]
        low = [row["greedy"] + row["low"] for row in rows]
        high = [row["greedy"] + row["high"] for row in rows]
        axes.fill_between(x, low, high, color=COLOURS[0], alpha=0.2, linewidth=0)
        axes.plot(x, y, marker=MARKERS[0], color=COLOURS[0], label="MBR")
        best = min(range(len(rows)), key=y.__getitem__)
        axes.plot([x[best]], [y[best]], "*", markersize=9, color=COLOURS[1], label="lowest")
        axes.axhline(rows[0]["greedy"], color="black", linewidth=0.8, label="greedy")
        if math.isfinite(operational):
            axes.axvline(operational, color="black", linestyle="--", linewidth=0.8)
        axes.set_xscale("log")
        ticks = dict(zip(x, (f"{row['tau']:g}".replace("inf", "∞") for row in rows)))
        axes.set_xticks(list(ticks), list(ticks.values()))
        axes.minorticks_off()
        axes.set_xlabel("temperature τ")
        axes.set_ylabel(f"{unit.upper()} (%)")
        axes.figure.legend(loc="outside upper center", ncols=3)

    caption = (
        "Error rate against the temperature of the posterior; band: 95 % interval of the difference to "
        "greedy; dashed: the configuration's τ."
    )
    return Figure(name, caption, table, draw)


def conditions(name: str, rows: Rows, table: Table) -> Figure:
    """Differences to greedy, largest gain first (Figure 8).

    Args:
        rows: ``condition``, ``delta``, ``low``, ``high``, ``p`` (that the table prints).
    """

    def draw(axes: Axes) -> None:
        ordered = sorted(rows, key=lambda row: row["delta"])
        for y, row in enumerate(ordered):
            clear = row["p"] < 0.05
            colour = COLOURS[0] if clear else COLOURS[5]
            axes.barh(y, row["delta"], color=colour, hatch=None if clear else "//")
            axes.hlines(y, row["low"], row["high"], color="black", linewidth=0.8)
            mark = next((mark for limit, mark in SIGNIFICANT if row["p"] < limit), "n.s.")
            axes.annotate(mark, (max(row["high"], 0), y), (3, 0), textcoords="offset points", va="center")
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_yticks(range(len(ordered)), [row["condition"] for row in ordered])
        axes.invert_yaxis()
        axes.set_xlabel("difference to greedy (points)")

    caption = (
        "Difference to greedy with its 95 % interval; * p < 0.05, ** p < 0.01, *** p < 0.001; hatched: "
        "not significant."
    )
    return Figure(name, caption, table, draw, 0.9 + 0.22 * max(len(rows), 3))
