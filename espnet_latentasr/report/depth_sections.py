"""Sections read off one pass over all depths: allocation, quartiles, counterfactual, value, path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from espnet_latentasr.analysis.allocation import allocation
from espnet_latentasr.analysis.calibration import calibration, within_utterances
from espnet_latentasr.analysis.counterfactual import counterfactual
from espnet_latentasr.analysis.decoded import Decoded
from espnet_latentasr.analysis.depths import Depths, errors_at, select_threshold, steps_run
from espnet_latentasr.analysis.quartiles import (
    FROZEN_RATE,
    REGRESSION_TO_THE_MEAN,
    difficulties,
    expected_by_chance,
    quartiles,
)
from espnet_latentasr.analysis.refinement import Spread, refinement
from espnet_latentasr.errors import DataError
from espnet_latentasr.report.document import Section
from espnet_latentasr.report.figures import (
    allocation_bars,
    calibration_curve,
    quartile_bars,
    refinement_path,
)
from espnet_latentasr.report.published import published_table
from espnet_latentasr.report.tables import DIFFERENCE, Column, Table, difference_cells
from espnet_latentasr.stats.comparisons import caption, correct


@dataclass(frozen=True)
class Pass:
    """All depths of every test set under one configuration, and its threshold."""

    tag: str
    sets: Mapping[str, Depths]
    records: Mapping[str, Decoded]
    theta: float
    on_halt: str

    @cached_property
    def steps(self) -> int:
        """N, which all sets share."""
        found = {name: depths.steps for name, depths in self.sets.items()}
        if len(set(found.values())) != 1:
            raise DataError(f"{self.tag}: sets with different numbers of latent steps: {found}")
        return next(iter(found.values()))

    def depth(self, name: str) -> np.ndarray:
        """K (U,) of the threshold rule."""
        return select_threshold(self.sets[name].values, self.theta, self.on_halt)

    def entered(self, name: str) -> np.ndarray:
        """Whether the entry gate let an utterance in (U,)."""
        return steps_run(self.sets[name].values, self.theta) > 0


def allocation_section(data: Pass) -> Section:
    """How the threshold spends its steps."""
    columns = (
        Column("dataset"),
        Column("skipped at entry %", "{:.1f}"),
        *(Column(f"stopped at {k} %", "{:.1f}") for k in range(1, data.steps + 1)),
        Column("all steps %", "{:.1f}"),
        Column("mean kept", "{:.2f}"),
        Column("mean computed", "{:.2f}"),
    )
    found = {name: allocation(d.values, data.theta, data.on_halt) for name, d in data.sets.items()}
    rows = tuple(
        (
            name,
            *(100 * n / a.utterances for n in (a.entry, *a.stopped, a.budget)),
            a.mean_kept,
            a.mean_run,
        )
        for name, a in found.items()
    )
    note = (
        f"Threshold θ = {data.theta:g}, on_halt {data.on_halt}. Skipped at entry: v0 < θ, no step is "
        "computed; stopped at k: vk < θ after k steps."
    )
    table = Table(f"allocation_{data.tag}", f"Compute allocation, {data.tag}", columns, rows, note)
    figure = allocation_bars(
        f"allocation_{data.tag}", found, f"Steps per utterance at θ = {data.theta:g}."
    )
    return Section("Where the steps go", "", (table, published_table("allocation")), (figure,))


def quartile_section(data: Pass) -> Section:
    """Difference by difficulty, under three notions of it."""
    rows, full, figures = [], [], []
    for name, depths in data.sets.items():
        system = errors_at(depths.errors, data.depth(name))
        notions = difficulties(depths.errors[:, 0], system, depths.lengths, depths.log_probs[:, 0])
        if len(depths.utts) < 4:
            continue
        bins = {
            notion: quartiles(values, depths.errors[:, 0], system, depths.lengths, ~data.entered(name))
            for notion, values in notions.items()
        }
        chance = expected_by_chance(depths.errors[:, 0], system, depths.lengths)
        for notion, found in bins.items():
            rows.append((name, notion, *(100 * b.delta for b in found)))
            if notion == FROZEN_RATE:
                rows.append((name, f"{notion}, two equal systems", *(100 * delta for delta in chance)))
            full += [
                (name, notion, f"Q{q}", b.utterances, b.low, b.high, 100 * b.baseline, 100 * b.system,
                 100 * b.delta, 100 * b.skip_rate)
                for q, b in enumerate(found, start=1)
            ]  # fmt: skip
        caption = f"{name}: difference by quartile of difficulty, θ = {data.theta:g}."
        figures.append(quartile_bars(f"quartiles_{data.tag}_{name}", bins, caption))
    columns = (
        Column("dataset"),
        Column("difficulty"),
        *(Column(f"Δ Q{q}", "{:+.2f}") for q in range(1, 5)),
    )
    shown = Table(f"quartile_deltas_{data.tag}", f"Difference by quartile (Q1 easiest), {data.tag}",
                  columns, tuple(rows), REGRESSION_TO_THE_MEAN)  # fmt: skip
    headers = ("dataset", "difficulty", "quartile", "utterances", "low", "high")
    headers += ("frozen", "latent", "delta", "skip %")
    csv = Table(f"quartiles_{data.tag}", "", tuple(map(Column, headers)), tuple(full), shown=False)
    return Section("Who gains", "", (shown, csv, published_table("quartiles")), tuple(figures))


def counterfactual_section(data: Pass) -> Section:
    """Skipped and processed utterances at the chosen depth and at full depth."""
    columns = (
        *map(Column, ("dataset", "group", "utterances")),
        Column("frozen", "{:.2f}"),
        *DIFFERENCE,
        *(Column(f"forced {c.header}", c.form, c.parts) for c in DIFFERENCE),
    )
    groups = [
        (name, group)
        for name, depths in data.sets.items()
        for group in counterfactual(depths.errors, depths.lengths, data.depth(name), ~data.entered(name))
    ]
    # At the chosen depth nothing of the skipped is changed, so nothing is tested.
    sides = [d for _, g in groups for d in (None if g.name == "skipped" else g.actual, g.forced)]
    tested = [d for d in sides if d is not None]
    corrected = iter(correct(tested))
    cells = [difference_cells(None if d is None else next(corrected)) for d in sides]
    rows = []
    for (name, group), actual, forced in zip(groups, cells[::2], cells[1::2], strict=True):
        if group.name == "skipped" and group.utterances:
            actual = (0.0, *actual[1:-1], (0, 0, group.utterances))
        rows.append((name, group.name, group.utterances, 100 * group.baseline, *actual, *forced))
    note = (
        f"Δ at θ = {data.theta:g}, forced Δ at N = {data.steps}, both against the frozen model on the "
        "same utterances, in percentage points. A gate that is right loses nothing by skipping (forced Δ "
        "of the skipped is not negative) and does better than full depth on the processed. "
        f"{caption(len(tested))}"
    )
    table = Table(
        f"counterfactual_{data.tag}", f"Gate counterfactual, {data.tag}", columns, tuple(rows), note
    )
    return Section("Was the gate right", "", (table, published_table("counterfactual")))


def calibration_section(data: Pass) -> Section:
    """Predicted value against realised gain."""
    columns = (
        Column("dataset"),
        *(Column(f"ρ(v{k}, gain)", "{:+.3f} (p {:.3f})", ("rho", "p")) for k in range(data.steps + 1)),
        Column("sign right, v0 %", "{:.1f} of {}", ("share", "changed")),
        Column("ρ within utterances", "{:+.3f}"),
        Column("anti-correlated %", "{:.1f} of {}", ("share", "defined")),
    )
    rows, figures = [], []
    for name, depths in data.sets.items():
        states = [
            calibration(depths.values, depths.errors, depths.lengths, k) for k in range(data.steps + 1)
        ]
        within = within_utterances(depths.values, depths.errors)
        sign, anti = states[0].sign_agreement, within.anti_correlated
        rows.append(
            (
                name,
                *((s.rho, s.p) for s in states),
                (None if sign is None else 100 * sign, states[0].changed),
                within.mean_rho,
                (None if anti is None else 100 * anti, within.defined),
            )
        )
        caption = f"{name}: errors saved (95 % CI) against the value that promised them."
        figures.append(calibration_curve(f"calibration_{data.tag}_{name}", states, caption))
    note = (
        "Spearman's ρ over utterances of vk and the errors saved per token at depth k; v0: mean over "
        "depths 1..N. Positive is right. Sign right: of utterances whose errors change, those where v0 "
        "has the sign of the gain. Within utterances: ρ of vk and errors over depths 0..N, where "
        "negative is right; anti-correlated: share with a positive one. p values are not corrected."
    )
    table = Table(f"calibration_{data.tag}", f"Value and gain, {data.tag}", columns, tuple(rows), note)
    return Section("Does the value predict the gain", "", (table,), tuple(figures))


def refinement_section(data: Pass) -> Section:
    """Update norms and directions of the forced full path, over processed utterances."""
    columns = (
        Column("dataset"), Column("utterances"),
        *(Column(f"norm {k}", "{:.3f} ± {:.3f}", ("mean", "sd")) for k in range(1, data.steps + 1)),
        Column("cosine", "{:.3f} ± {:.3f}", ("mean", "sd")),
        Column("norm of difference", "{:.3f} ± {:.3f}", ("mean", "sd")),
    )  # fmt: skip
    rows, figures = [], []
    for name in data.sets:
        chosen = np.flatnonzero(data.entered(name))
        if not chosen.size:
            continue
        records = data.records[name]
        try:
            found = refinement(*_paths(records, chosen, data.steps))
        except ValueError as error:
            utterances = f"the {len(chosen)} utterances that the entry gate lets in"
            raise DataError(
                f"{records.folder}/latent.jsonl, {utterances}: {error}; decode again"
            ) from error
        pairs = [_mean_sd(s) for s in (*found.norms, found.path_cosine, found.path_jump)]
        rows.append((name, len(chosen), *pairs))
        caption = f"{name}: length of each update and of the change to the next (mean, middle 90 %)."
        figures.append(refinement_path(f"refinement_{data.tag}_{name}", found, caption))
    note = (
        "Utterances that the entry gate lets in, all N steps forced; mean ± standard deviation over "
        "utterances of |gₖδₖ| and of each utterance's mean cosine and difference of consecutive updates. "
        "The published path is of δₖ without its gate."
    )
    table = Table(f"refinement_{data.tag}", f"Refinement path, {data.tag}", columns, tuple(rows), note)
    text = "" if rows else "The entry gate lets no utterance in: there is no path."
    return Section("What the steps do", text, (table, published_table("refinement")), tuple(figures))


def _paths(records: Decoded, rows: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """norms (U, N), cosines and jumps (U, N - 1) of some utterances, whose paths must be whole."""
    widths = {"norms": steps, "cosines": steps - 1, "jumps": steps - 1}
    for row in rows:
        lengths = {kind: len(records.updates[row][kind]) for kind in widths}
        if lengths != widths:
            raise DataError(
                f"{records.folder}/latent.jsonl: utterance '{records.utts[row]}': {lengths} update "
                f"entries, {widths} expected; decode with 'depths: all'"
            )
    return tuple(
        np.array([records.updates[row][kind] for row in rows]).reshape(len(rows), width)
        for kind, width in widths.items()
    )


def _mean_sd(found: Spread | None) -> tuple[Any, Any] | None:
    return None if found is None else (found.mean, found.sd)
