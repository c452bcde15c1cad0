"""The report of a set's oracle gap: tables as CSV and Markdown, and the figures; computes nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from espnet_latentasr.analysis import oracle_gap as gap
from espnet_latentasr.analysis.decoded import error_rate
from espnet_latentasr.analysis.oracle_lists import Study, study_file, sweep_rules
from espnet_latentasr.errors import DataError
from espnet_latentasr.fileio import atomic_write_text
from espnet_latentasr.reading import parse_number, read_csv
from espnet_latentasr.report import oracle_figures as figures
from espnet_latentasr.report.plots import Figure, save_figure
from espnet_latentasr.report.tables import Column, Table
from espnet_latentasr.rescoring.config import RescoreConfig
from espnet_latentasr.rescoring.nbest_list import deduplicate, read_nbest

Rows = Sequence[Mapping[str, Any]]
RATES = {"greedy", "oracle", "gap", "error rate", "macro", "delta"}
DIFFERENCES = RATES | {"low", "high"}
SHARES = figures.FRAMES
NUMBERS = (*SHARES, "entropy", "frames_per_token")


def rows_table(name: str, title: str, rows: Rows, note: str = "", percent: Collection[str] = ()) -> Table:
    """Make a table of rows; ``percent``: columns that are fractions and are shown in percent."""
    keys = list(dict.fromkeys(key for row in rows for key in row))

    def value(row: Mapping[str, Any], key: str) -> Any:
        number = row.get(key)
        return 100 * number if key in percent and number is not None else number

    def form(key: str) -> str:
        kinds = {type(row.get(key)) for row in rows} - {type(None)}
        digits = 2 if key in percent else 4 if key in ("p", "Holm p") else 3
        return f"{{:.{digits}f}}" if kinds == {float} else "{}"

    columns = tuple(Column(key, form(key)) for key in keys)
    cells = tuple(tuple(value(row, key) for key in keys) for row in rows)
    return Table(name, title, columns, cells, note)


def _shown(table: Table) -> list[dict[str, Any]]:
    """Return a table's rows as mappings again, as printed (percent)."""
    return [dict(zip((c.header for c in table.columns), row)) for row in table.rows]


@dataclass(frozen=True)
class Plan:
    """What a report compares: rules by name, list sizes (None: powers of two) and the sweeps.

    taus: of every MBR rule.  alphas: interpolation of log P(y|x) with each of ``scorers``.
    """

    rules: Mapping[str, RescoreConfig]
    sizes: Sequence[int] | None = None
    taus: Sequence[float] = ()
    alphas: Sequence[float] = ()
    scorers: Sequence[str] = ()


def report_file(
    nbest: Path,
    refs: Mapping[str, str] | None,
    plan: Plan,
    folder: Path,
    *,
    normalizer: str = "list",
    unit: str = "wer",
    **options: Any,
) -> Path:
    """Judge a file of lists under a plan and write its report; options go to `write_oracle_gap`."""
    if plan.sizes is None:
        longest = max(len(deduplicate(lists)) for lists in read_nbest(nbest))
        plan = replace(plan, sizes=gap.nested_sizes(longest))
    variants = sweep_rules(plan.rules, plan.sizes, plan.taus, plan.alphas, plan.scorers)
    study = study_file(nbest, refs, variants, normalizer=normalizer, unit=unit)
    return write_oracle_gap(study, plan, folder, **options)


def write_oracle_gap(
    study: Study,
    plan: Plan,
    folder: Path,
    *,
    frames: Rows = (),
    others: Mapping[str, Path] | None = None,
    conditions: Mapping[str, str] | None = None,
    figures_too: bool = True,
    replicates: int = gap.REPLICATES,
) -> Path:
    """Write ``oracle_gap.md``, a CSV per table and PNG, SVG and CSV per figure below ``folder``.

    Args:
        study: of the variants that `sweep_rules` makes of the plan.
        frames: rows of `read_frames`.
        others: folders of other reports by condition; their rules are drawn beside this one's.
        conditions: by utterance, as its noise level; rules are also judged within each.
    """
    rules, sizes, taus = list(plan.rules), list(plan.sizes), plan.taus
    unit, drawn = study.unit, []
    by_size = gap.oracle_by_size(study, sizes)
    tables = [
        rows_table(
            "oracle",
            f"Oracle over nested lists ({unit.upper()})",
            by_size,
            "In %. recoverable: utterances with a candidate better than greedy; coverage: their share of "
            "those recoverable with the largest list; not covered: greedy wrong and nothing better.",
            RATES | {"relative gap", "coverage"},
        ),
        rows_table("diversity", "Candidates", [gap.diversity(study)], "", {"full", "one candidate"}),
    ]
    if rules:
        ruled = rows_table(
            "rules",
            f"Rules against greedy ({unit.upper()})",
            gap.rule_rows(study, rules, replicates),
            f"In %; delta in percentage points with a paired bootstrap over utterances ({replicates:,} "
            "draws, two-sided p; Holm p: corrected for the rows of this table). macro: mean of the "
            "utterances' own rates. closure: share of the oracle gap; picked, within one and rank: of "
            "recoverable utterances; P1 violated: of utterances where MBR left greedy.",
            DIFFERENCES | {"closure", "picked", "within one", "rank > 50", "P1 violated"},
        )
        tables.append(ruled)
        if conditions is not None:
            tables.append(_condition_table(study, plan, conditions, replicates))
        drawn.append(_conditions_figure(ruled, others or {}))
    tables.append(
        rows_table(
            "ranking",
            "Ranking within lists",
            gap.ranking_rows(study, replicates),
            "rho: Spearman's, of score and errors, mean over the N utterances where it is defined (three "
            "candidates, not all alike), with its 95 % interval; a good score is negative. anti: share "
            "with rho > 0. am: exact log P(y|x); path: one alignment's.",
            {"anti", "P(top is best)"},
        )
    )
    ranked = rows_table(
        "ranking_by_size",
        "Ranking by list size",
        gap.ranking_by_size(study, sizes, replicates),
        "Columns as above.",
        {"anti", "P(top is best)"},
    )
    tables.append(ranked)
    drawn += [
        figures.ranking("figure_1_ranking", _shown(ranked), ranked, intervals=False),
        figures.ranking("figure_6_ranking", _shown(ranked), ranked, intervals=True),
    ]
    sized = _size_table(study, plan, by_size)
    tables.append(sized)
    drawn.append(figures.rates_by_size("figure_5_sizes", _shown(sized), sized, unit))
    for rule in rules:
        if taus and f"{rule} tau={taus[0]:g}" in study.choices:
            warm = _tau_table(study, rule, taus, replicates)
            tables.append(warm)
            tau = study.choices[rule].config.posterior.tau
            drawn.append(figures.temperature(f"figure_7_{rule}", _shown(warm), warm, unit, tau))
    if depths := gap.depth_rows(study):
        note = "A ceiling for any halting rule; fixed depths beside it."
        tables.append(rows_table("depths", "Depth oracle", depths, note, RATES | {"closure"}))
    if frames:
        table = frame_table(frames)
        tables.append(table)
        drawn.append(figures.frame_shares("figure_2_frames", _shown(table), table))
    return _write(study, folder, tables, drawn if figures_too else [])


def _write(study: Study, folder: Path, tables: Sequence[Table], drawn: Sequence[Figure]) -> Path:
    parts = [f"# Oracle gap\n\n{len(study.lists)} utterances, unit {study.unit}, {study.meta}\n"]
    for table in tables:
        atomic_write_text(folder / f"{table.name}.csv", table.csv())
        parts.append(f"## {table.title}\n\n{table.note}\n\n{table.markdown()}")
    for figure in drawn:
        save_figure(figure, folder)
        parts.append(f"![{figure.name}]({figure.name}.svg)\n\n{figure.caption}\n")
    atomic_write_text(folder / "oracle_gap.md", "\n".join(parts))
    return folder / "oracle_gap.md"


def _size_table(study: Study, plan: Plan, by_size: Rows) -> Table:
    """Error rate of every rule, greedy, oracle and the best interpolation at each size."""
    rows = [
        {"rule": name, "G": row["G"], "error rate": row[name]}
        for name in ("greedy", "oracle")
        for row in by_size
    ]
    for rule in plan.rules:
        for size in plan.sizes:
            row = {"rule": rule, "G": size}
            rows.append(row | {"error rate": gap.rate_of(study, f"{rule}@{size}")})
    for scorer in plan.scorers:
        for size in plan.sizes:
            alpha, rate = gap.best_alpha(study, scorer, plan.alphas, size)
            name = f"am + {scorer}, best alpha"
            rows.append({"rule": name, "G": size, "error rate": rate, "alpha": alpha})
    note = "alpha is the one with the lowest error rate on this very set."
    return rows_table("sizes", f"{study.unit.upper()} by list size", rows, note, {"error rate"})


def _condition_table(study: Study, plan: Plan, conditions: Mapping[str, str], replicates: int) -> Table:
    rows = gap.condition_rows(study, list(plan.rules), list(plan.sizes), conditions, replicates)
    note = (
        "In %; delta in percentage points to greedy, paired bootstrap over utterances; Holm p: corrected "
        "for the rows of this table."
    )
    return rows_table("conditions", "Rules by condition", rows, note, DIFFERENCES | {"closure"})


def _tau_table(study: Study, rule: str, taus: Sequence[float], replicates: int) -> Table:
    base = error_rate(study.greedy, study.lengths)
    rows = [
        {"tau": float(tau), "greedy": base} | gap.sweep_row(study, f"{rule} tau={tau:g}", replicates)
        for tau in taus
    ]
    note = "p is two-sided and not corrected: a sweep on the set it is shown for chooses nothing."
    return rows_table(f"tau_{rule}", f"Temperature, {rule}", rows, note, DIFFERENCES | {"closure"})


def _conditions_figure(ruled: Table, others: Mapping[str, Path]) -> Figure:
    """Figure 8 over this report's rules and those of other reports."""
    rows = [{"condition": row["rule"], **_difference(row)} for row in _shown(ruled)]
    for condition, folder in others.items():
        for row in _read_table(folder / "rules.csv", "rule", DIFFERENCE_KEYS, "bin.oracle_gap"):
            rows.append({"condition": f"{condition}: {row['rule']}", **_difference(row)})
    table = rows_table("figure_8_conditions", "Conditions", rows)
    return figures.conditions(table.name, rows, table)


DIFFERENCE_KEYS = ("delta", "low", "high", "Holm p")


def _read_table(path: Path, word: str, numbers: Sequence[str], maker: str) -> list[dict[str, str]]:
    """Read a table that has these columns; a number may be left empty.

    Raises:
        DataError: another file, or a cell that is no number.
    """
    rows = []
    try:
        for where, row in read_csv(path, (word, *numbers), "one with its columns"):
            for key in numbers:
                if row[key] != "":
                    parse_number(where, row, key, finite=False)
            rows.append(row)
    except DataError as error:
        raise DataError(f"{path}: not a table of {maker} ({error}); write it again") from None
    return rows


def _difference(row: Mapping[str, Any]) -> dict[str, float]:
    found = {key: float("nan" if row[key] == "" else row[key]) for key in DIFFERENCE_KEYS}
    return found | {"p": found.pop("Holm p")}


def frame_table(frames: Rows) -> Table:
    """Mean and standard deviation over utterances of each share of frames, in percent."""
    rows = []
    for variant in dict.fromkeys(row["variant"] for row in frames):
        mine = [row for row in frames if row["variant"] == variant]
        row: dict[str, Any] = {"variant": variant, "utterances": len(mine)}
        for key in NUMBERS:
            values = np.array([float(r[key]) if r[key] != "" else np.nan for r in mine])
            some = np.isfinite(values).any()
            scale = 100 if key in SHARES else 1
            row[key] = scale * float(np.nanmean(values)) if some else None
            row[f"{key} sd"] = scale * float(np.nanstd(values)) if some else None
        rows.append(row)
    note = "Shares in %; entropy in nats per frame. gamma is given the greedy hypothesis."
    return rows_table("frames", "Frames", rows, note)


def read_frames(path: Path) -> list[dict[str, str]]:
    """Read the table that ``bin.ctc_nbest --frames`` wrote."""
    rows = _read_table(path, "variant", NUMBERS, "bin.ctc_nbest --frames")
    if not rows:
        raise DataError(f"{path}: no row in it; write it again with bin.ctc_nbest --frames")
    return rows
