"""Every decoding of an experiment against the frozen one: which rows, and their table.

The report and ``RESULTS.md`` print what is made here; differences and corrections are those of
``stats.comparisons``.  Decodes and scores nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from espnet_latentasr.analysis.decoded import Decoded, check_same_utterances, other_prompt
from espnet_latentasr.analysis.depths import has_all_depths
from espnet_latentasr.analysis.latency import latency
from espnet_latentasr.report.document import Section
from espnet_latentasr.report.experiment import FROZEN_TAG, Key, main_units, read_sets
from espnet_latentasr.report.figures import forest
from espnet_latentasr.report.tables import DIFFERENCE, PERCENT, Column, Table, difference_cells
from espnet_latentasr.stats.comparisons import REPLICATES, Contest, Row, caption, compare_family

TITLE = "Latent against frozen"


@dataclass(frozen=True)
class Pair:
    """One decoding of one set beside the frozen model's; ``row``: the difference.

    all_depths: it decoded every depth, so that its seconds are no system's.
    """

    tag: str
    test_set: str
    frozen: Decoded
    latent: Decoded
    row: Row
    all_depths: bool = False


@dataclass(frozen=True)
class Comparison:
    """The rows of a table, and by reason the decodings that have none."""

    pairs: tuple[Pair, ...]
    left_out: Mapping[str, tuple[Key, ...]]

    def remarks(self) -> str:
        """Why which decodings are not among the rows; empty if all are."""
        parts = []
        for reason, keys in self.left_out.items():
            sets: dict[str, list[str]] = {}
            for tag, name in keys:
                sets.setdefault(tag, []).append(name)
            found = (f"{t}/{n[0]}" if len(n) == 1 else f"{t} ({len(n)} sets)" for t, n in sets.items())
            parts.append(f"{', '.join(found)}: {reason}.")
        return "Not among the rows: " + " ".join(parts) if parts else ""


def compare_decoded(
    decoded: Mapping[Key, Decoded],
    frozen_tag: str = FROZEN_TAG,
    all_depths: Collection[Key] = (),
    replicates: int = REPLICATES,
) -> Comparison:
    """Compare every (tag, set) with the frozen decoding of its set, as one family.

    A pass over all depths that gives the very texts of another decoding is no system of its own, and
    another prompt than the frozen decoding's is compared elsewhere.

    Raises:
        DataError: the two hold different utterances or references, or were scored differently.
    """
    left_out: dict[str, list[Key]] = {}
    contests: dict[str, list[Key]] = {}
    for key, system in decoded.items():
        if key[0] == frozen_tag:
            continue
        reason = _no_row(key, system, decoded, frozen_tag, all_depths)
        if reason is not None:
            left_out.setdefault(reason, []).append(key)
            continue
        check_same_utterances(decoded[frozen_tag, key[1]], system)
        contests.setdefault(key[1], []).append(key)
    found = compare_family(
        (
            Contest(
                decoded[frozen_tag, name].errors,
                [decoded[key].errors for key in keys],
                decoded[frozen_tag, name].lengths,
            )
            for name, keys in contests.items()
        ),
        replicates=replicates,
    )
    rows = dict(zip((key for keys in contests.values() for key in keys), found, strict=True))
    pairs = (
        Pair(*key, decoded[frozen_tag, key[1]], system, rows[key], key in all_depths)
        for key, system in decoded.items()
        if key in rows
    )
    return Comparison(tuple(pairs), {reason: tuple(keys) for reason, keys in left_out.items()})


def _no_row(
    key: Key,
    system: Decoded,
    decoded: Mapping[Key, Decoded],
    frozen_tag: str,
    all_depths: Collection[Key],
) -> str | None:
    """Why a decoding is not compared with the frozen one; None: it is."""
    frozen = decoded.get((frozen_tag, key[1]))
    if frozen is None:
        return f"{frozen_tag} of the set is not scored"
    if not frozen.lengths.sum():
        return "no reference token, so no error rate"
    if other_prompt(frozen, system):
        return f"another prompt than {frozen_tag}'s"
    for other, found in decoded.items():
        alike = key in all_depths and other not in all_depths and other != (frozen_tag, key[1])
        same_set = other[1] == key[1] and found.hypotheses == system.hypotheses
        if alike and same_set and found.utts == system.utts:
            return "every depth decoded at once, with the very texts of another row"
    return None


def paired_table(pairs: Iterable[Pair], unit: str) -> Table:
    """The main table: frozen and latent error rate, difference, and what it costs."""
    columns = (
        Column("dataset"),
        Column("frozen", PERCENT),
        Column("latent", PERCENT),
        *DIFFERENCE,
        Column("mean K", "{:.2f}"),
        Column("skip %", "{:.1f}"),
        Column("RTF", "{:.4f}"),
        Column("RTF ratio", "{:.3f}"),
        Column("capped"),
    )
    rows = tuple(
        (
            f"{pair.tag}/{pair.test_set}",
            100 * pair.frozen.rate,
            100 * pair.latent.rate,
            *difference_cells(pair.row),
            *_cost(pair),
        )
        for pair in pairs
    )
    note = (
        f"{unit.upper()} in %; Δ in percentage points, latent minus frozen, with the 95 % interval and "
        f"two-sided p of a paired bootstrap over utterances ({REPLICATES:,} draws). "
        f"{caption(len(rows))} better/worse/same count utterances; skip: refused at entry; RTF: seconds "
        "of compute per second of audio; ratio: over the frozen decoding's (neither where all depths "
        "were decoded at once); capped: hypotheses cut at their longest length."
    )
    return Table("paired", f"{TITLE} ({unit.upper()})", columns, rows, note)


def _cost(pair: Pair) -> tuple[float | None, float | None, float | None, float | None, int | None]:
    """mean K, skip %, RTF, RTF ratio and capped; None where nothing was recorded or looked at."""
    latent, frozen = pair.latent, pair.frozen
    if not latent.recorded:
        return (None,) * 5
    steps = float(latent.steps.mean()) if latent.thinks else None
    skipped = 100 * float((latent.stopped == "entry").mean()) if latent.thinks else None
    rtf = ratio = None
    if not pair.all_depths:
        found = latency(
            latent.seconds, latent.audio_seconds, frozen.seconds if frozen.recorded else None
        )
        rtf, ratio = found.rtf, None if found.overhead is None else 1 + found.overhead
    return steps, skipped, rtf, ratio, int(latent.capped.sum())


def paired_section(comparison: Comparison, unit: str) -> Section:
    """The table with a figure per decoding configuration."""
    figures = []
    for tag in dict.fromkeys(pair.tag for pair in comparison.pairs):
        rows = [
            (pair.test_set, 100 * d.delta, 100 * d.low, 100 * d.high)
            for pair in comparison.pairs
            if pair.tag == tag and (d := pair.row.difference)
        ]
        caption_ = f"{tag}: {unit.upper()}, latent minus frozen, per test set (95 % CI, not corrected)."
        figures.append(forest(f"difference_{tag}", rows, caption_))
    table = paired_table(comparison.pairs, unit)
    return Section(TITLE, comparison.remarks(), (table,), tuple(figures))


def comparison_markdown(path: Path, dev: str | None = None) -> str:
    """What ``RESULTS.md`` prints of one experiment: a table per main unit of its sets; or nothing.

    ``dev``: the set that settings are chosen on; it is no row.
    """
    parts = []
    for unit, folders in main_units(path).items():
        wanted = {folder.parts[-2:] for folder in folders}
        sets = {k: d for k, d in read_sets(path, unit).items() if k in wanted and k[1] != dev}
        passes = {key for key, found in sets.items() if has_all_depths(found.folder)}
        found = compare_decoded(sets, all_depths=passes)
        if found.pairs:
            table = paired_table(found.pairs, unit)
            text = (f"### {table.title}\n", found.remarks(), f"\n{table.markdown()}", f"{table.note}\n")
            parts.append("\n".join(part for part in text if part))
    return "\n".join(parts)
