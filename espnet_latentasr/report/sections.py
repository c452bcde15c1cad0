"""Sections about decodings as they are: seeds, examples, overlap of training and test sets."""

from __future__ import annotations

from collections.abc import Sequence

from espnet_latentasr.analysis.corrections import RULE, Example, corrections
from espnet_latentasr.analysis.overlap import overlap, read_material
from espnet_latentasr.errors import DataError
from espnet_latentasr.report.document import Section
from espnet_latentasr.report.experiment import Experiment, Key, training_sets
from espnet_latentasr.report.tables import Column, Table, seed_table
from espnet_latentasr.text.normalize import get_normalizer


def seeds_section(experiments: Sequence[Experiment], keys: Sequence[Key]) -> Section | None:
    """Mean and standard deviation over experiments that differ in their seed; None for one alone.

    Args:
        keys: tag and set of each row; the frozen decoding of each set is its baseline.

    Raises:
        DataError: experiments that did not decode the same sets under the same configurations.
    """
    if len(experiments) < 2:
        return None
    frozen_tag = experiments[0].options.frozen_tag
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
        rows += [(key[1], kind, *_example(e, latent.thinks)) for kind, es in
                 (("correction", best), ("regression", worst)) for e in es]  # fmt: skip
    columns = (
        *map(Column, ("set", "kind", "utterance")),
        Column("errors saved", "{:+d}"),
        *map(Column, ("K", "reference", "frozen", "latent")),
    )
    table = Table("corrections", f"Examples, {tag}", columns, tuple(rows), RULE)
    return Section("What changes", "", (table,))


def _example(e: Example, thinks: bool) -> tuple:
    return e.utt, e.saved, e.steps if thinks else None, e.reference, e.frozen, e.latent


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
