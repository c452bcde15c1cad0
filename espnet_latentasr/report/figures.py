"""The report's figures, one function each: analyses in, `Figure` out; computes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from espnet_latentasr.analysis.allocation import Allocation
from espnet_latentasr.analysis.calibration import Calibration
from espnet_latentasr.analysis.decoded import STAGES
from espnet_latentasr.analysis.latency import Latency
from espnet_latentasr.analysis.quartiles import Bin
from espnet_latentasr.analysis.refinement import Refinement
from espnet_latentasr.analysis.sweep import Point
from espnet_latentasr.report.plots import COLOURS, MARKERS, Figure
from espnet_latentasr.report.tables import Column, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def _table(name: str, headers: Sequence[str], rows: Sequence[tuple]) -> Table:
    return Table(name, name, tuple(Column(header) for header in headers), tuple(rows), shown=False)


def forest(name: str, rows: Sequence[tuple[str, float, float, float]], caption: str) -> Figure:
    """Differences with intervals, one line per (label, delta, low, high), in percentage points."""

    def draw(axes: Axes) -> None:
        for y, (_, delta, low, high) in enumerate(rows):
            clear = low > 0 or high < 0
            colour = COLOURS[1] if clear and low > 0 else COLOURS[0] if clear else COLOURS[7]
            axes.plot([low, high], [y, y], color=colour)
            axes.plot([delta], [y], "o" if clear else "d", color=colour)
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set_yticks(range(len(rows)), [label for label, *_ in rows])
        axes.invert_yaxis()
        axes.set_xlabel("Δ (percentage points), 95 % CI")

    table = _table(name, ("label", "delta", "low", "high"), rows)
    return Figure(name, caption, table, draw, 0.9 + 0.19 * max(len(rows), 3))


def pareto(
    name: str,
    thresholds: Sequence[Point],
    fixed: Sequence[tuple[float, float]],
    confidence: Sequence[tuple[float, float]],
    front: Sequence[Point],
    knee: Point | None,
    labelled: Sequence[Point],
    caption: str,
) -> Figure:
    """Difference against compute: the value threshold, fixed depths and a confidence gate.

    Args:
        fixed, confidence: (steps per utterance, difference as a fraction).  front, knee: of the
            thresholds.  labelled: points of the sweep whose theta is written beside them.
    """
    curve = sorted({(p.steps, 100 * p.delta) for p in thresholds})
    best = [(p.steps, 100 * p.delta) for p in front]
    other = sorted({(steps, 100 * delta) for steps, delta in confidence})
    depths = [(steps, 100 * delta) for steps, delta in fixed]

    def draw(axes: Axes) -> None:
        axes.plot(*zip(*curve), "-", color=COLOURS[0], label="value threshold")
        axes.plot(
            *zip(*best), "-.", color=COLOURS[5], drawstyle="steps-post", label="its Pareto front"
        )
        axes.plot(*zip(*other), "--", color=COLOURS[2], label="confidence gate")
        axes.plot(*zip(*depths), "s", color=COLOURS[1], label="fixed depth")
        ends = (depths[0], depths[-1])
        axes.plot(*zip(*ends), ":", color=COLOURS[7], label="all steps for a random share")
        for point in labelled:
            place = (point.steps, 100 * point.delta)
            axes.plot(*place, "o", color=COLOURS[0], markersize=3)
            right = point.steps > 0.8 * depths[-1][0]
            axes.annotate(
                f"θ = {point.theta:g}".replace("-", "−"), place, (-3 if right else 3, 4),
                textcoords="offset points", fontsize=6, ha="right" if right else "left",
                bbox={"facecolor": "white", "alpha": 0.6, "edgecolor": "none", "pad": 0.2},
            )  # fmt: skip
        if knee is not None:
            axes.plot(knee.steps, 100 * knee.delta, "*", color=COLOURS[3], markersize=9, label="knee")
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set_xlabel("latent steps per utterance")
        axes.set_ylabel("Δ (percentage points)")
        axes.figure.legend(loc="outside upper center", ncols=2)

    rows = [
        *(("threshold", p.theta, p.steps, 100 * p.delta) for p in thresholds),
        *(("Pareto front", p.theta, p.steps, 100 * p.delta) for p in front),
        *(("confidence", None, steps, delta) for steps, delta in other),
        *(("fixed", None, steps, delta) for steps, delta in depths),
        *([("knee", knee.theta, knee.steps, 100 * knee.delta)] if knee else []),
    ]
    table = _table(name, ("rule", "theta", "steps", "delta"), rows)
    return Figure(name, caption, table, draw, 2.9)


def allocation_bars(name: str, sets: Mapping[str, Allocation], caption: str) -> Figure:
    """Shares of utterances: skipped, stopped after each step, whole budget."""
    steps = max(len(found.stopped) for found in sets.values())
    parts = ("skipped", *(f"stopped at {k}" for k in range(1, steps + 1)), "all steps")
    shares = {
        label: [100 * n / found.utterances for n in (found.entry, *found.stopped, found.budget)]
        for label, found in sets.items()
    }

    def draw(axes: Axes) -> None:
        left = [0.0] * len(shares)
        palette = (COLOURS[7], *COLOURS[2:7], *COLOURS[:2])
        for index, part in enumerate(parts):
            widths = [row[index] for row in shares.values()]
            last = index == len(parts) - 1
            axes.barh(
                range(len(shares)), widths, left=left, label=part, edgecolor="white", linewidth=0.3,
                color=COLOURS[0] if last else palette[index % len(palette)],
            )  # fmt: skip
            left = [a + b for a, b in zip(left, widths)]
        axes.set_yticks(range(len(shares)), list(shares))
        axes.invert_yaxis()
        axes.set_xlim(0, 100)
        axes.set_xlabel("utterances (%)")
        axes.figure.legend(loc="outside upper center", ncols=3)

    rows = [(label, part, value) for label, row in shares.items() for part, value in zip(parts, row)]
    table = _table(name, ("dataset", "part", "percent"), rows)
    return Figure(name, caption, table, draw, 1.3 + 0.2 * max(len(shares), 3))


def quartile_bars(name: str, notions: Mapping[str, Sequence[Bin]], caption: str) -> Figure:
    """Difference in each quartile under every notion of difficulty, easiest quartile first."""

    def draw(axes: Axes) -> None:
        width = 0.8 / len(notions)
        for index, (notion, bins) in enumerate(notions.items()):
            places = [place + (index - (len(notions) - 1) / 2) * width for place in range(len(bins))]
            heights = [100 * found.delta for found in bins]
            axes.bar(places, heights, width, color=COLOURS[index], label=f"by {notion}",
                     edgecolor="white", linewidth=0.3)  # fmt: skip
        axes.axhline(0, color="black", linewidth=0.8)
        count = max(len(bins) for bins in notions.values())
        axes.set_xticks(range(count), [f"Q{place + 1}" for place in range(count)])
        axes.set_xlabel("quartile of difficulty (Q1 easiest)")
        axes.set_ylabel("Δ (percentage points)")
        axes.legend(loc="best")

    rows = [
        (notion, place + 1, b.utterances, b.low, b.high, 100 * b.baseline, 100 * b.system, 100 * b.delta,
         100 * b.skip_rate)
        for notion, bins in notions.items() for place, b in enumerate(bins)
    ]  # fmt: skip
    headers = ("difficulty", "quartile", "utterances", "low", "high", "frozen", "latent", "delta", "skip")
    return Figure(name, caption, _table(name, headers, rows), draw)


def calibration_curve(name: str, states: Sequence[Calibration], caption: str) -> Figure:
    """Realised gain of utterances binned by value, one line per state v_0..v_N."""

    def draw(axes: Axes) -> None:
        for index, found in enumerate(states):
            style = {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)]}
            label = "v0, entry" if found.state == 0 else f"v{found.state}"
            gains, errors = ([100 * v for v in side] for side in
                             zip(*((b.gain, 1.96 * b.error) for b in found.bins)))  # fmt: skip
            if found.state == 0:  # with one step v0 and v1 are one value: both must be seen
                style |= {"markersize": 6, "markerfacecolor": "none", "linewidth": 2.4}
            axes.errorbar([b.mean_value for b in found.bins], gains, errors, label=label,
                          elinewidth=0.5, **({"markersize": 3} | style))  # fmt: skip
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set_xlabel("value v (mean of a bin)")
        axes.set_ylabel("errors saved per 100 tokens")
        axes.figure.legend(loc="outside upper center", ncols=3)

    rows = [
        (found.state, b.utterances, b.low, b.high, b.mean_value, 100 * b.gain, 100 * b.error)
        for found in states for b in found.bins
    ]  # fmt: skip
    headers = ("state", "utterances", "low", "high", "mean value", "errors saved per 100 tokens", "se")
    return Figure(name, caption, _table(name, headers, rows), draw)


def refinement_path(name: str, path: Refinement, caption: str) -> Figure:
    """Mean and middle 90 % of update norms per step, and of differences between steps."""

    def draw(axes: Axes) -> None:
        for index, (label, first, spreads) in enumerate(
            (("|gₖδₖ|", 1, path.norms), ("|gₖδₖ − gₖ₋₁δₖ₋₁|", 2, path.jumps))
        ):
            if not spreads:  # a single step has no change to a next one
                continue
            at = [first + k for k in range(len(spreads))]
            means = [s.mean for s in spreads]
            # The mean of a skewed sample may lie outside its middle 90 %.
            reach = [
                [max(s.mean - s.quantiles[0], 0) for s in spreads],
                [max(s.quantiles[-1] - s.mean, 0) for s in spreads],
            ]
            axes.errorbar(at, means, reach, label=label, capsize=2, color=COLOURS[index],
                          marker=MARKERS[index])  # fmt: skip
        axes.set_xticks(range(1, len(path.norms) + 1))
        axes.set_ylim(bottom=0)
        axes.set_xlabel("step k")
        axes.set_ylabel("norm (units of the embedding)")
        axes.legend(loc="best")

    parts = (("norm", 1, path.norms), ("cosine", 2, path.cosines), ("jump", 2, path.jumps))
    rows = [
        (kind, first + k, s.count, s.mean, s.sd, *s.quantiles)
        for kind, first, spreads in parts
        for k, s in enumerate(spreads)
    ]
    headers = ("quantity", "step", "utterances", "mean", "sd", "q05", "q25", "q50", "q75", "q95")
    return Figure(name, caption, _table(name, headers, rows), draw)


def latency_bars(name: str, tags: Mapping[str, Latency], caption: str) -> Figure:
    """Milliseconds per utterance by stage, one bar per decoding configuration."""

    def draw(axes: Axes) -> None:
        left = [0.0] * len(tags)
        for index, stage in enumerate(STAGES):
            widths = [1000 * found.stages[stage] for found in tags.values()]
            axes.barh(range(len(tags)), widths, left=left, label=stage, color=COLOURS[index],
                     edgecolor="white", linewidth=0.3)  # fmt: skip
            left = [a + b for a, b in zip(left, widths)]
        axes.set_yticks(range(len(tags)), list(tags))
        axes.invert_yaxis()
        axes.set_xlabel("milliseconds per utterance")
        axes.figure.legend(loc="outside upper center", ncols=4)

    rows = [(tag, stage, 1000 * found.stages[stage]) for tag, found in tags.items() for stage in STAGES]
    table = _table(name, ("configuration", "stage", "milliseconds"), rows)
    return Figure(name, caption, table, draw, 1.1 + 0.2 * max(len(tags), 3))
