"""Report of sequence-level training: oracle gaps, outcomes, trajectories; computes nothing itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from espnet_latentasr.analysis.sequence_runs import (
    Grid,
    control_rows,
    mean_trajectory,
    outcome_rows,
    read_grid,
    trajectory_rows,
)
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.fileio import atomic_write_text
from espnet_latentasr.reading import parse_number, read_csv
from espnet_latentasr.report.oracle_gap import rows_table
from espnet_latentasr.report.plots import COLOURS, MARKERS, Figure, save_figure
from espnet_latentasr.report.tables import DIFFERENCE, PERCENT, Column, Table, difference_cells
from espnet_latentasr.stats.comparisons import Row, caption
from espnet_latentasr.text.normalize import Normalizer

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RATES = ("greedy", "oracle", "gap", "low", "high", "greedy macro", "oracle macro", "usable", "better")


def read_gaps(path: Path) -> list[dict[str, Any]]:
    """Read the rows that `gap_table` wrote as CSV; rates become fractions again.

    Raises:
        DataError: another file.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file; bin.sequence_gap writes it")
    rows = []
    columns = ("checkpoint", "G", "utterances", "candidates", *RATES)
    for where, row in read_csv(path, columns, "a table of bin.sequence_gap"):
        whole = {key: parse_number(where, row, key, int) for key in ("G", "utterances")}
        rates = {key: parse_number(where, row, key) / 100 if row[key] else None for key in RATES}
        candidates = parse_number(where, row, "candidates")
        rows.append({**row, **whole, "candidates": candidates, **rates})
    return rows


def gap_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The oracle gap on training utterances."""
    note = (
        "WER in %; greedy, oracle and gap are pooled over the set, macro columns are means of the "
        "utterances' own rates. low, high: 95 % interval of the gap over utterances. usable: utterances "
        "whose candidates differ in errors; better: with a candidate better than greedy."
    )
    return rows_table("training_gap", "Oracle gap on training utterances", rows, note, RATES)


def outcome_table(rows: Sequence[Mapping[str, Any]], found: Sequence[Row]) -> Table:
    """WER of the test set before and after, with paired differences."""
    columns = (
        Column("checkpoint"),
        Column("method"),
        Column("seeds"),
        Column("before", PERCENT),
        Column("after", PERCENT),
        Column("sd", PERCENT),
        Column("macro before", PERCENT),
        Column("macro after", PERCENT),
        Column("macro sd", PERCENT),
        *DIFFERENCE,
    )
    cells = []
    for row, comparison in zip(rows, found, strict=True):
        pairs = [[100 * v for v in row[name]] for name in ("after", "macro after")]
        before = 100 * row["before"], 100 * row["macro before"]
        named = row["checkpoint"], row["method"], row["seeds"]
        values = before[0], *pairs[0], before[1], *pairs[1]
        cells.append((*named, *values, *difference_cells(comparison)))
    note = (
        "WER in % after the last epoch, mean and standard deviation over seeds; before and after are "
        "pooled over the set, macro is the mean of the utterances' own rates. Δ: pooled, paired "
        f"over utterances with the errors of all seeds added up. {caption(len(rows))}"
    )
    return Table("outcomes", "Sequence training against its starting point", columns, tuple(cells), note)


def control_table(rows: Sequence[Mapping[str, Any]], found: Sequence[Row]) -> Table:
    """Paired differences of WER from the control's."""
    columns = (Column("checkpoint"), Column("method"), Column("control"), *DIFFERENCE)
    cells = tuple((*row.values(), *difference_cells(c)) for row, c in zip(rows, found, strict=True))
    note = (
        "The control is trained on the same utterances as often, by CTC towards the reference. Δ: WER in "
        "percent points, pooled, paired over utterances, errors of all seeds added up. "
        f"{caption(len(rows))}"
    )
    return Table("against_control", "Against the control", columns, cells, note)


def trajectory_figure(rows: Sequence[Mapping[str, Any]], checkpoint: str) -> Figure:
    """Corpus WER of the valid set by epoch, one line per method, from one checkpoint.

    Args:
        rows: of `mean_trajectory`.
    """
    own = [row for row in rows if row["checkpoint"] == checkpoint]
    methods: dict[str, list[Mapping[str, Any]]] = {}
    for row in own:
        methods.setdefault(row["method"], []).append(row)

    def draw(axes: Axes) -> None:
        for (method, line), colour, marker in zip(methods.items(), COLOURS, MARKERS):
            x, y = [row["epoch"] for row in line], [row["wer_corpus"] for row in line]
            axes.plot(x, y, marker=marker, color=colour, label=method)
            low, high = ([row[f"wer_corpus {end}"] for row in line] for end in ("low", "high"))
            axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
            axes.plot(x, [row["wer_macro"] for row in line], ":", color=colour)
        axes.set_xticks(sorted({row["epoch"] for row in own}))
        axes.set_xlabel("epoch")
        axes.set_ylabel("WER of the valid set (%)")
        axes.figure.legend(loc="outside upper center", ncols=3)

    text = (
        f"WER by epoch from checkpoint '{checkpoint}'; epoch 0 is the checkpoint. Solid: corpus, mean "
        "over seeds, band from least to largest; dotted: macro."
    )
    table = rows_table(f"trajectory_{checkpoint}", text, own)
    return Figure(f"trajectory_{checkpoint}", text, table, draw)


def write_report(
    grid: Grid,
    test_set: str,
    references: Mapping[str, str],
    normalizer: Normalizer,
    gaps: Sequence[Mapping[str, Any]],
    output: Path,
    *,
    control: str | None = None,
    figures: bool = True,
) -> Path:
    """Write ``sequence.md``, a CSV per table, and figures below ``output``; return the Markdown file.

    Args:
        control: the method that the others are also compared with.

    Raises:
        ConfigError: it is none of the grid's.
    """
    if control is not None and control not in grid.methods:
        raise ConfigError(f"--control {control}: none of --methods {' '.join(grid.methods)}")
    scored = read_grid(grid, test_set, references, normalizer)
    tables = [gap_table(gaps)] if gaps else []
    tables.append(outcome_table(*outcome_rows(grid, scored)))
    if control is not None and len(grid.methods) > 1:
        tables.append(control_table(*control_rows(grid, scored, control)))
    trajectories = trajectory_rows(grid)
    means = mean_trajectory(trajectories)
    hidden = rows_table("trajectories", "Every epoch of every training (valid set, %)", trajectories)
    for table in (*tables, hidden):
        atomic_write_text(output / f"{table.name}.csv", table.csv())
    text = f"# Sequence-level training, {test_set}\n"
    for table in tables:
        text += f"\n## {table.title}\n\n{table.markdown()}\n{table.note}\n"
    text += "\n## Trajectories\n"
    for checkpoint in grid.checkpoints:
        figure = trajectory_figure(means, checkpoint)
        text += f"\n{figure.caption} Rows: {figure.name}.csv\n"
        if figures:
            save_figure(figure, output)
            text += f"\n![{figure.name}]({figure.name}.svg)\n"
        else:
            atomic_write_text(output / f"{figure.name}.csv", figure.table.csv())
    atomic_write_text(output / "sequence.md", text)
    return output / "sequence.md"
