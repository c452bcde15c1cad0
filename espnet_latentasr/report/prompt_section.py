"""The section about prompts: error rate under each, and latent against frozen under the same one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from espnet_latentasr.analysis.decoded import Decoded, check_same_utterances
from espnet_latentasr.analysis.prompts import (
    Detected,
    PromptSet,
    changed_texts,
    describe,
    detected,
    prompt_sets,
)
from espnet_latentasr.data.kaldi_dir import read_kaldi_table
from espnet_latentasr.report.document import Section
from espnet_latentasr.report.experiment import Experiment
from espnet_latentasr.report.tables import DIFFERENCE, PERCENT, Column, Table, difference_cells
from espnet_latentasr.stats.comparisons import REPLICATES, Contest, caption, compare_family

TITLE = "What the prompt does"


def prompt_section(exp: Experiment) -> Section | None:
    """Prompt check of the test sets; None where nothing was decoded under two prompts."""
    tests = {key: exp.decoded[key] for key in exp.test_keys()}
    sets = [s for s in prompt_sets(tests) if next(iter(s.decoded.values())).lengths.sum()]
    if not sets:
        return None
    spoken = {}
    for name in {found.test_set for found in sets}:
        path = exp.options.data_root / name / "utt2lang"
        spoken[name] = read_kaldi_table(path) if path.is_file() else None
    tables = [_prompts(sets, spoken, exp.unit)]
    if beside := _beside(sets, exp.options.frozen_tag):
        tables.append(_latent(beside, exp.unit))
    return Section(TITLE, "", tuple(tables))


def _prompts(
    sets: Sequence[PromptSet], spoken: Mapping[str, Mapping[str, str] | None], unit: str
) -> Table:
    columns = (
        *map(Column, ("dataset", "prompt")),
        Column(unit.upper(), PERCENT),
        *DIFFERENCE,
        Column("text changes %", "{:.1f}"),
        Column("language written"),
        Column("right %", "{:.1f}"),
    )
    contests = []
    for found in sets:
        first, *others = found.decoded.values()
        contests.append(Contest(first.errors, [d.errors for d in others], first.lengths))
    differences = iter(compare_family(contests))
    rows = []
    for found in sets:
        first = found.decoded[found.reference]
        for tag, decoded in found.decoded.items():
            row, changed = None, None
            if tag != found.reference:
                row, changed = next(differences), 100 * changed_texts(first, decoded)
            rows.append(
                (
                    f"{tag}/{found.test_set}", describe(decoded.prompt), 100 * decoded.rate,
                    *difference_cells(row), changed,
                    *_language(detected(decoded, spoken[found.test_set])),
                )
            )  # fmt: skip
    tests = sum(len(contest.systems) for contest in contests)
    note = (
        f"{unit.upper()} in %; Δ in percentage points to the first row of the same system and set, with "
        "the 95 % interval and two-sided p of a paired bootstrap over utterances "
        f"({REPLICATES:,} draws). {caption(tests)} Systems differ in the prompt only. Text changes: "
        "utterances whose normalised text is another one; language written: by the recogniser itself, "
        "where it was not told; right: the spoken one."
    )
    return Table("prompts", f"Prompts ({unit.upper()})", columns, tuple(rows), note)


def _language(found: Detected | None) -> tuple[str | None, float | None]:
    if found is None:
        return None, None
    counts = ", ".join(f"{code} {count}" for code, count in found.counts.items())
    return counts, None if found.right is None else 100 * found.right


def _beside(sets: Sequence[PromptSet], frozen_tag: str) -> list[tuple[str, str, Decoded, Decoded]]:
    """(tag, set, frozen, system) of every system beside the frozen recogniser under the same prompt."""
    frozen = {
        (found.test_set, decoded.prompt): decoded
        for found in sets
        if frozen_tag in found.decoded
        for decoded in found.decoded.values()
    }
    rows = []
    for found in sets:
        for tag, decoded in found.decoded.items() if frozen_tag not in found.decoded else ():
            base = frozen.get((found.test_set, decoded.prompt))
            if base is not None:
                check_same_utterances(base, decoded)
                rows.append((tag, found.test_set, base, decoded))
    return rows


def _latent(beside: Sequence[tuple[str, str, Decoded, Decoded]], unit: str) -> Table:
    columns = (
        *map(Column, ("dataset", "prompt")),
        Column("frozen", PERCENT),
        Column("latent", PERCENT),
        *DIFFERENCE,
    )
    found = compare_family(
        Contest(base.errors, [decoded.errors], base.lengths) for _, _, base, decoded in beside
    )
    rows = tuple(
        (f"{tag}/{name}", describe(decoded.prompt), 100 * base.rate, 100 * decoded.rate,
         *difference_cells(row))
        for (tag, name, base, decoded), row in zip(beside, found, strict=True)
    )  # fmt: skip
    note = (
        f"{unit.upper()} in %; both sides read the prompt of the row; Δ latent minus frozen, otherwise "
        f"as above. {caption(len(rows))}"
    )
    title = f"Latent against frozen under the same prompt ({unit.upper()})"
    return Table("prompts_latent", title, columns, rows, note)
