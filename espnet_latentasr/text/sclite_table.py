"""The summary tables of sclite: knows counts per speaker and column widths; knows no utterance.

The layout is sclite's to the blank, since scripts cut these tables apart.  Two deliberate
differences: a set without any reference token has the rate ``nan`` (sclite prints 0.0), and the
Mean, S.D. and Median rows leave out all speakers without reference tokens (sclite forgets some
when two of them follow each other).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from espnet_latentasr.text.edit_distance import Counts
from espnet_latentasr.text.error_rate import percentages

PAGE_WIDTH = 80
HEADER = (" SPKR", " # Snt", "# Wrd", "Corr", " Sub", " Del", " Ins", " Err", "S.Err")
FOOTNOTE = """
* No Reference words for this/these speaker(s).  Word counts supplied
  rather than percents.
+ Speaker(s) with no reference data is ignored
"""


@dataclass(frozen=True)
class SpeakerScore:
    """Pooled counts of one speaker's utterances."""

    counts: Counts
    sentences: int
    sentence_errors: int

    def __add__(self, other: SpeakerScore) -> SpeakerScore:
        return SpeakerScore(
            self.counts + other.counts,
            self.sentences + other.sentences,
            self.sentence_errors + other.sentence_errors,
        )


def round_half_up(value: float, digits: int = 1) -> float:
    """Round a non-negative number as sclite does: 6.25 becomes 6.3, not 6.2."""
    if math.isnan(value):
        return value
    return math.floor(value * 10**digits + 0.5) / 10**digits


def percent_table(title: str, speakers: Mapping[str, SpeakerScore]) -> str:
    """Return sclite's table of percentages, one row per speaker and the ``Sum/Avg`` row."""
    total = sum(speakers.values(), start=SpeakerScore(Counts(), 0, 0))
    silent = any(not s.counts.reference_length for s in speakers.values())
    rows = [_percent_row(f" {name} ", s) for name, s in speakers.items()]
    columns = [(s.sentences, s.counts.reference_length, *_percents(s)) for s in speakers.values()]
    mark = "+" if silent else " "
    table = _layout(
        title, rows, _row(" Sum/Avg", total, _percents(total), 1), _moments(columns, mark)
    )
    return table + (FOOTNOTE if silent else "")


def count_table(title: str, speakers: Mapping[str, SpeakerScore]) -> str:
    """Return sclite's table of raw counts, one row per speaker and the ``Sum`` row."""
    total = sum(speakers.values(), start=SpeakerScore(Counts(), 0, 0))
    rows = [_row(f" {name} ", s, _raw(s), 0) for name, s in speakers.items()]
    columns = [(s.sentences, s.counts.reference_length, *_raw(s)) for s in speakers.values()]
    return _layout(title, rows, _row(" Sum", total, _raw(total), 0), _moments(columns, " "))


def _percents(score: SpeakerScore) -> list[float]:
    return list(percentages(score.counts, score.sentences, score.sentence_errors).values())


def _raw(score: SpeakerScore) -> list[int]:
    c = score.counts
    parts = [c.correct, c.substitutions, c.deletions, c.insertions, c.errors]
    return [*parts, score.sentence_errors]


def _row(name: str, score: SpeakerScore, values: Sequence[float], digits: int) -> list[str]:
    cells = [f"{round_half_up(value, digits):5.{digits}f} " for value in values]
    return [name, f"{score.sentences:5d}", f"{score.counts.reference_length:5d}", *cells]


def _percent_row(name: str, score: SpeakerScore) -> list[str]:
    if score.counts.reference_length:
        return _row(name, score, _percents(score), 1)
    counts = [f"{count:5d}*" for count in _raw(score)[:-1]]
    return [*_row(name, score, [], 1), *counts, f"{round_half_up(_percents(score)[-1]):5.1f} "]


def _moments(columns: Sequence[Sequence[float]], mark: str) -> list[list[str]]:
    """Return the Mean, S.D. and Median rows over speakers; NaN entries are left out."""

    def row(name: str, function: Callable[[list[float]], float]) -> list[str]:
        cells = [name]
        for index, column in enumerate(zip(*columns, strict=True)):
            values = [value for value in column if not math.isnan(value)]
            rate_of_words = 2 <= index < len(HEADER) - 2
            moment = function(values) if values else float("nan")
            cells.append(f"{round_half_up(moment):5.1f}{mark if rate_of_words else ' '}")
        return cells

    return [
        row(" Mean ", _mean),
        row(" S.D. ", _sample_deviation),
        row("Median", statistics.median),
    ]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _sample_deviation(values: Sequence[float]) -> float:
    mean = _mean(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return math.sqrt(squares / (len(values) - 1)) if len(values) > 1 else 0.0


def _layout(title: str, rows: list[list[str]], total: list[str], moments: list[list[str]]) -> str:
    """Set the rows in columns as wide as their widest cell and centre the table on the page."""
    widths = [max(map(len, column)) for column in zip(HEADER, *rows, total, *moments, strict=True)]
    inner = max(sum(widths) + len(widths) - 1, len(title))
    widths[-1] += inner - (sum(widths) + len(widths) - 1)

    def line(cells: Sequence[str], centre_name: bool = False) -> str:
        name = _centre(cells[0], widths[0]) if centre_name else cells[0].ljust(widths[0])
        numbers = [_centre(cell, width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return f"|{name}|{' '.join(numbers[:2])}|{' '.join(numbers[2:])}|"

    groups = widths[0], widths[1] + widths[2] + 1, sum(widths[3:]) + len(widths) - 4
    rule = "|" + "+".join("-" * width for width in groups) + "|"
    double = f"|{'=' * inner}|"
    lines = [f",{'-' * inner}.", f"|{_centre(title, inner)}|", f"|{'-' * inner}|", line(HEADER)]
    for row in rows:
        lines += [rule, line(row)]
    lines += [double, line(total), double, *(line(row, centre_name=True) for row in moments)]
    lines += [f"`{'-' * inner}'"]
    indent = " " * max(0, (PAGE_WIDTH - inner - 2) // 2)
    heading = _centre("SYSTEM SUMMARY PERCENTAGES by SPEAKER", PAGE_WIDTH)
    return f"\n\n\n{heading}\n\n" + "".join(f"{indent}{text}\n" for text in lines)


def _centre(text: str, width: int) -> str:
    # Not str.center: when one blank is left over sclite puts it behind the text.
    left = (width - len(text)) // 2
    return " " * left + text.ljust(width - left)
