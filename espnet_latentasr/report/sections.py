"""Sections about decodings as they are: difference, seeds, examples, latency, overlap."""

from __future__ import annotations

from collections.abc import Sequence

from espnet_latentasr.analysis.corrections import RULE, Example, corrections
from espnet_latentasr.analysis.decoded import Decoded
from espnet_latentasr.analysis.latency import Latency, latency
from espnet_latentasr.analysis.overlap import overlap, read_material
from espnet_latentasr.errors import DataError
from espnet_latentasr.report.document import Section
from espnet_latentasr.report.experiment import Experiment, training_sets
from espnet_latentasr.report.figures import forest, latency_bars
from espnet_latentasr.report.published import published_table
from espnet_latentasr.report.tables import Column, Table, compare_all, paired_table, seed_table
from espnet_latentasr.text.normalize import get_normalizer


def paired_section(exp: Experiment) -> Section:
    """Every decoding of every test set against the frozen one."""
    keys = exp.test_keys()
    tests = {key: exp.decoded[key] for key in keys}
    pairs = compare_all(tests, exp.options.frozen_tag, exp.depths)
    alone = sorted({name for _, name in keys} - {pair.test_set for pair in pairs})
    text = ""
    if alone:
        text = (
            f"Without a comparison, since `{exp.options.frozen_tag}` or a latent decoding of them is "
            f"missing: {', '.join(alone)}."
        )
    figures = []
    for tag in dict.fromkeys(pair.tag for pair in pairs):
        rows = [
            (p.test_set, 100 * d.delta, 100 * d.low, 100 * d.high)
            for p in pairs
            if p.tag == tag and (d := p.difference)
        ]
        caption = f"{tag}: {exp.unit.upper()}, latent minus frozen, per test set (95 % CI)."
        figures.append(forest(f"difference_{tag}", rows, caption))
    tables = (paired_table(pairs, exp.unit), published_table("main"))
    return Section("Latent against frozen", text, tables, tuple(figures))


def seeds_section(experiments: Sequence[Experiment]) -> Section | None:
    """Mean and standard deviation over experiments that differ in their seed; None for one alone.

    Raises:
        DataError: experiments that did not decode the same sets under the same configurations.
    """
    if len(experiments) < 2:
        return None
    frozen_tag = experiments[0].options.frozen_tag
    keys = [
        key
        for key in experiments[0].test_keys()
        if key[0] != frozen_tag and (frozen_tag, key[1]) in experiments[0].decoded
    ]
    results: dict[str, dict[str, tuple[float, float]]] = {}
    for tag, name in keys:
        rates: dict[str, tuple[float, float]] = {}
        for exp in experiments:
            pair = [exp.decoded.get(key) for key in ((frozen_tag, name), (tag, name))]
            if None in pair:
                raise DataError(
                    f"{exp.path}: {tag}/{name} or {frozen_tag}/{name} is not scored, but "
                    f"{experiments[0].path} has both; decode all seeds alike"
                )
            rates[str(exp.path)] = (pair[0].rate, pair[1].rate)
        results[f"{tag}/{name}"] = rates
    return Section("Over seeds", "", (seed_table(results, experiments[0].unit),))


def corrections_section(exp: Experiment, tag: str, count: int = 3) -> Section:
    """Examples of one decoding, from all test sets together."""
    rows: list[tuple] = []
    for key in exp.test_keys():
        frozen = exp.decoded.get((exp.options.frozen_tag, key[1]))
        if key[0] != tag or frozen is None:
            continue
        latent = exp.decoded[key]
        texts = (latent.references, frozen.hypotheses, latent.hypotheses)
        errors = (frozen.errors, latent.errors)
        best, worst = corrections(latent.utts, texts, errors, latent.lengths, latent.steps, count)
        rows += [(key[1], kind, *_example(e)) for kind, es in
                 (("correction", best), ("regression", worst)) for e in es]  # fmt: skip
    columns = (
        *map(Column, ("set", "kind", "utterance")),
        Column("errors saved", "{:+d}"),
        *map(Column, ("K", "reference", "frozen", "latent")),
    )
    table = Table("corrections", f"Examples, {tag}", columns, tuple(rows), RULE)
    return Section("What changes", "", (table,))


def _example(e: Example) -> tuple:
    return e.utt, e.saved, e.steps, e.reference, e.frozen, e.latent


def latency_section(exp: Experiment) -> Section:
    """Seconds per stage of every configuration that decoded one depth per utterance."""
    columns = (
        Column("dataset"),
        *(Column(f"{stage} (ms)", "{:.2f}") for stage in ("encode", "prefill", "loop", "decode")),
        Column("median total (ms)", "{:.2f}"),
        Column("RTF", "{:.4f}"),
        Column("overhead %", "{:+.1f}"),
        Column("paired ratio", "{1:.3f} [{0:.3f}, {2:.3f}]", ("p10", "median", "p90")),
    )
    rows, by_tag = [], {}
    for key in exp.test_keys():
        if key in exp.depths:
            continue
        found = exp.decoded[key]
        cost = _cost(found, exp.decoded.get((exp.options.frozen_tag, key[1])))
        stages = [1000 * value for value in cost.stages.values()]
        overhead = None if cost.overhead is None else 100 * cost.overhead
        rows.append(("/".join(key), *stages, 1000 * cost.median, cost.rtf, overhead, cost.paired))
        by_tag.setdefault(key[0], {})[key[1]] = cost
    note = (
        "Wall seconds of a batch shared among its utterances; configurations that ran in one job share "
        "encoding and prefill. Overhead: total seconds over the frozen decoding's; paired ratio: median "
        "[10 %, 90 %] over utterances. Encoder states that were read from a cache count as reading."
    )
    table = Table("latency", "Latency", columns, tuple(rows), note)
    name = max((n for sets in by_tag.values() for n in sets), default=None,
               key=lambda n: (sum(n in sets for sets in by_tag.values()), n.encode()))  # fmt: skip
    bars = {tag: sets[name] for tag, sets in by_tag.items() if name in sets}
    figures = (
        (latency_bars("latency", bars, f"Milliseconds per utterance by stage, {name}."),) if bars else ()
    )
    return Section("What it costs", "", (table, published_table("latency")), figures)


def _cost(found: Decoded, frozen: Decoded | None) -> Latency:
    if frozen is found or (frozen is not None and frozen.utts != found.utts):
        frozen = None
    return latency(found.seconds, found.audio_seconds, None if frozen is None else frozen.seconds)


def overlap_section(exp: Experiment) -> Section:
    """What the test sets share with the sets the adapter was trained and tuned on."""
    title, root = "Overlap of training and test sets", exp.options.data_root
    asked = exp.options.train
    if asked is None and (asked := training_sets(exp.path)):
        asked = list(dict.fromkeys([*asked, exp.options.dev]))
    if not asked:
        return Section(title, "Not checked: name the training sets with `--train`.")
    names = [*asked, *dict.fromkeys(name for _, name in exp.test_keys())]
    missing = [name for name in names if not (root / name / "wav.scp").is_file()]
    normalizer = get_normalizer(next(iter(exp.decoded.values())).summary["normalizer"])
    found = {n: read_material(root / n, normalizer) for n in dict.fromkeys(names) if n not in missing}
    rows = []
    for train in (name for name in asked if name in found):
        for name in (name for name in names[len(asked) :] if name in found):
            shared = overlap(found[train], found[name])
            parts = (shared.ids, shared.speakers, shared.texts, shared.audio)
            rows.append((train, name, shared.utterances, *map(len, parts)))
    headers = (
        "training set",
        "test set",
        "utterances",
        "same id",
        "same speaker",
        "same text",
        "same audio",
    )
    note = (
        "Test utterances whose id, speaker, normalised text or audio samples (SHA-256) occur in the "
        "training set."
    )
    text = f"Not found below `{root}`: {', '.join(missing)}." if missing else ""
    table = Table("overlap", "Overlap", tuple(map(Column, headers)), tuple(rows), note)
    return Section(title, text, (table,))
