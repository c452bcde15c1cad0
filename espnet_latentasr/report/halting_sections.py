"""Sections about halting rules: threshold, fixed depth, confidence, random, oracle; one pass decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from espnet_latentasr.analysis.decoded import error_rate
from espnet_latentasr.analysis.depths import Depths, errors_at
from espnet_latentasr.analysis.oracle import depth_oracle
from espnet_latentasr.analysis.policies import (
    Rule,
    choose_confidence,
    choose_fixed,
    choose_theta,
    outcome,
    quantile_grid,
    random_gate,
    select_confidence,
    select_fixed,
)
from espnet_latentasr.analysis.sweep import PAPER_THETAS, captured, knee, pareto_front, sweep
from espnet_latentasr.report.depth_sections import Pass
from espnet_latentasr.report.document import Section
from espnet_latentasr.report.figures import pareto
from espnet_latentasr.report.plots import Figure
from espnet_latentasr.report.published import published_table
from espnet_latentasr.report.tables import (
    DIFFERENCE,
    PERCENT,
    Column,
    Table,
    difference_cells,
)
from espnet_latentasr.stats.comparisons import Contest, Row, caption, compare_family


@dataclass(frozen=True)
class Tuned:
    """Rules whose number was chosen on the development set, by the name they have in tables."""

    dev: Depths
    rules: dict[str, Rule]


def tune(dev: Depths, on_halt: str) -> Tuned:
    """Choose threshold, fixed depth and confidence limit on the development set."""
    chosen = (choose_theta(dev, on_halt), choose_fixed(dev), choose_confidence(dev))
    return Tuned(dev, {f"{rule.name}, dev": rule for rule in chosen})


def halting_section(data: Pass, tuned: Tuned | None, dev_name: str) -> Section:
    """Error rate of every rule on every test set, with the controls that give a number its meaning."""
    deployed = f"θ = {data.theta:g}"
    names = [deployed, *(tuned.rules if tuned else ())]
    shown, rules, results, contests = [], [], [], []
    for name, depths in data.sets.items():
        chosen = {deployed: data.depth(name)}
        chosen |= {rule: found.apply(depths) for rule, found in (tuned.rules.items() if tuned else ())}
        fixed = {f"fixed {k}": select_fixed(len(depths.utts), k) for k in range(1, data.steps + 1)}
        best = depth_oracle(depths.errors, depths.lengths, chosen | fixed)
        every = {"frozen": select_fixed(len(depths.utts), 0), **chosen, **fixed, "oracle": best.depth}
        rates = {
            rule: error_rate(errors_at(depths.errors, k), depths.lengths) for rule, k in every.items()
        }
        gate = random_gate(depths.errors, depths.lengths, chosen[deployed])
        shown.append(
            (
                name, 100 * rates["frozen"], *(100 * rates[rule] for rule in names),
                (100 * gate.rate, 100 * gate.low, 100 * gate.high), gate.p, 100 * rates["oracle"],
                *(_percent(best.closure[rule]) for rule in names),
                (100 * depths.distinct, best.recoverable),
            )
        )  # fmt: skip
        for rule, depth in every.items():
            found = outcome(depths, depth)
            rules.append(
                (name, rule, 100 * found.rate, found.mean_steps, 100 * found.skip_rate,
                 _percent(best.closure.get(rule)), best.picked.get(rule), best.recoverable)
            )  # fmt: skip
        systems = [errors_at(depths.errors, chosen[rule]) for rule in names]
        contests.append(Contest(depths.errors[:, 0], systems, depths.lengths))
        results += [(name, rule, rates, chosen[rule]) for rule in names]
    tables = (
        _rates_table(data, names, shown),
        _differences(data, results, compare_family(contests)),
        *((_chosen(data, tuned, dev_name),) if tuned else ()),
        _all_rules(data, rules),
    )
    text = ""
    if tuned is None:
        text = (
            f"No threshold was chosen: `{data.tag}` has no set `{dev_name}` (`--dev`). A threshold taken "
            "from a test set would be no result."
        )
    return Section("Halting rules", text, tables)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _rates_table(data: Pass, names: list[str], rows: list[tuple]) -> Table:
    columns = (
        Column("dataset"),
        Column("frozen", PERCENT),
        *(Column(name, PERCENT) for name in names),
        Column("same depths at random", "{:.2f} [{:.2f}, {:.2f}]", ("mean", "low", "high")),
        Column("p, not random", "{:.3f}"),
        Column("oracle depth", PERCENT),
        *(Column(f"gap closed, {name} %", "{:.1f}") for name in names),
        Column("depths differ %", "{:.1f} ({} better)", ("share", "recoverable")),
    )
    note = (
        f"Same depths at random: the depths of θ = {data.theta:g} dealt to utterances by chance, middle "
        "95 % of 1,000 deals; p: one-sided, deals at least as good as the rule, not corrected. The "
        "oracle reads the reference: it is the ceiling of any halting rule, and the best of several "
        "texts is better also when they differ by chance. Gap closed: 0 frozen, 100 oracle. Depths "
        "differ: utterances with "
        "more than one text, and how many have a depth better than 0."
    )
    return Table(
        f"halting_{data.tag}", f"Error rate by halting rule, {data.tag}", columns, tuple(rows), note
    )


def _differences(data: Pass, results: list[tuple], differences: list[Row]) -> Table:
    columns = (
        Column("dataset"), Column("rule"), Column("frozen", PERCENT), Column("rule's", PERCENT),
        *DIFFERENCE, Column("mean K", "{:.2f}"), Column("skip %", "{:.1f}"),
    )  # fmt: skip
    rows = tuple(
        (name, rule, 100 * rates["frozen"], 100 * rates[rule], *difference_cells(found),
         float(np.mean(depth)), 100 * float(np.mean(depth == 0)))
        for (name, rule, rates, depth), found in zip(results, differences, strict=True)
    )  # fmt: skip
    note = f"Against depth 0 of the same pass. {caption(len(rows))}"
    return Table(
        f"halting_differences_{data.tag}", f"Rules against frozen, {data.tag}", columns, rows, note
    )


def _chosen(data: Pass, tuned: Tuned, dev_name: str) -> Table:
    frozen = 100 * error_rate(tuned.dev.errors[:, 0], tuned.dev.lengths)
    rows = []
    for name, rule in tuned.rules.items():
        found = outcome(tuned.dev, rule.apply(tuned.dev))
        rows.append(
            (name, rule.threshold, frozen, 100 * found.rate, found.mean_steps, 100 * found.skip_rate)
        )
    columns = (
        Column("rule"), Column("its number", "{:.4g}"), Column("frozen on dev", PERCENT),
        Column("rule on dev", PERCENT), Column("mean K", "{:.2f}"), Column("skip %", "{:.1f}"),
    )  # fmt: skip
    note = (
        f"Chosen on {dev_name} ({len(tuned.dev.utts)} utterances) for its fewest errors, among equals "
        "for the fewest steps; its error rate there is optimistic. Threshold: of v; fixed: K; "
        "confidence: mean log-probability per token below which all N steps are run."
    )
    return Table(f"halting_chosen_{data.tag}", f"Chosen on dev, {data.tag}", columns, tuple(rows), note)


def _all_rules(data: Pass, rows: list[tuple[Any, ...]]) -> Table:
    headers = ("dataset", "rule", "error rate %", "mean K", "skip %", "gap closed %", "picked best",
               "recoverable")  # fmt: skip
    return Table(f"halting_rules_{data.tag}", "", tuple(map(Column, headers)), tuple(rows), shown=False)


def sweep_section(data: Pass) -> Section:
    """The threshold's whole range on every test set, from the one pass."""
    rows, full, figures = [], [], []
    for name, depths in data.sets.items():
        grid = quantile_grid(depths.values)
        points = sweep(depths.values, depths.errors, depths.lengths, grid, data.on_halt)
        named = sweep(depths.values, depths.errors, depths.lengths, PAPER_THETAS, data.on_halt)
        here = sweep(depths.values, depths.errors, depths.lengths, [data.theta], data.on_halt)[0]
        front = pareto_front(points)
        bend, best = knee(front), front[-1]
        rows.append(
            (
                name, (here.steps, 100 * here.delta), _percent(captured(here, [*points, here])),
                None if bend is None else (bend.theta, bend.steps, 100 * bend.delta),
                (best.theta, best.steps, 100 * best.delta),
            )
        )  # fmt: skip
        full += [
            (name, p.theta, 100 * p.rate, 100 * p.delta, p.steps, p.kept, 100 * p.skip_rate, p in front)
            for p in [*points, *named]
        ]
        figures.append(_pareto_figure(data, name, points, front, [*named[:1], here]))
    columns = (
        Column("dataset"),
        Column(f"θ = {data.theta:g}: steps, Δ", "{:.2f}, {:+.2f}", ("steps", "delta")),
        Column("of the best Δ %", "{:.0f}"),
        Column("knee: θ, steps, Δ", "{:.3g}, {:.2f}, {:+.2f}", ("theta", "steps", "delta")),
        Column("best: θ, steps, Δ", "{:.3g}, {:.2f}, {:+.2f}", ("theta", "steps", "delta")),
    )
    note = (
        "Steps computed per utterance and Δ in percentage points, read off one pass. Knee and best are "
        "found on the test set itself: they describe the curve and are no results."
    )
    shown = Table(f"sweep_{data.tag}", f"Threshold sweep, {data.tag}", columns, tuple(rows), note)
    headers = ("dataset", "theta", "error rate %", "delta", "steps", "kept", "skip %", "on the front")
    csv = Table(f"sweep_points_{data.tag}", "", tuple(map(Column, headers)), tuple(full), shown=False)
    return Section(
        "Error rate against compute", "", (shown, csv, published_table("sweep")), tuple(figures)
    )


def _pareto_figure(data: Pass, name: str, points: list, front: list, labelled: list) -> Figure:
    depths = data.sets[name]
    frozen = error_rate(depths.errors[:, 0], depths.lengths)

    def delta(depth: np.ndarray) -> float:
        return error_rate(errors_at(depths.errors, depth), depths.lengths) - frozen

    fixed = [(float(k), delta(select_fixed(len(depths.utts), k))) for k in range(data.steps + 1)]
    gates = [select_confidence(depths.log_probs, c) for c in quantile_grid(depths.log_probs[:, 0])]
    confidence = [(float(depth.mean()), delta(depth)) for depth in gates]
    best = depth_oracle(depths.errors, depths.lengths, {})
    caption = (
        f"{name}: difference to the frozen model against latent steps. Oracle depth: "
        f"{100 * (best.rate - best.frozen):+.2f} points at {best.depth.mean():.2f} steps."
    )
    place, bend = f"pareto_{data.tag}_{name}", knee(front)
    return pareto(place, points, fixed, confidence, front, bend, labelled, caption)
