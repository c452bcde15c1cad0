"""What a model card says of scored decodings: one decoding beside the frozen one; decodes nothing."""

from __future__ import annotations

from pathlib import Path

from espnet_latentasr.analysis.depths import has_all_depths
from espnet_latentasr.errors import DataError
from espnet_latentasr.report.comparison import compare_decoded, paired_table
from espnet_latentasr.report.experiment import FROZEN_TAG, main_units, read_sets


def card_results(
    path: Path, tag: str, model: str, dev: str | None = None, frozen_tag: str = FROZEN_TAG
) -> str:
    """Markdown of an experiment's test sets under one decoding configuration.

    Args:
        path: the experiment, decoded and scored.
        tag: the configuration that the pack is used with.
        model: the packed model, as ``identity.json`` of its decodings calls it: a hash of the
            configuration, a dash, and one of the weights, which is what must be the same (a later version
            of the package has more keys to hash).
        dev: the set that settings are chosen on; it is no row.

    Raises:
        DataError: no scored set of these two configurations, or one that another model decoded.
    """
    parts = []
    for unit, folders in main_units(path).items():
        wanted = {folder.parts[-2:] for folder in folders}
        sets = {
            key: found
            for key, found in read_sets(path, unit).items()
            if key in wanted and key[0] in (tag, frozen_tag) and key[1] != dev
        }
        for (name, test_set), found in sets.items():
            decoded_by = None if found.system is None else found.system[1]
            # The frozen recogniser alone is decoded with any model at hand, or with none.
            if name == tag and _weights(decoded_by) != _weights(model):
                raise DataError(
                    f"{path}/{tag}/{test_set}: decoded by model {decoded_by}, but {model} is packed: "
                    "these are not its results; decode and score it again (stages 12, 13)"
                )
        found = compare_decoded(
            sets, frozen_tag, {key for key, one in sets.items() if has_all_depths(one.folder)}
        )
        if found.pairs:
            table = paired_table(found.pairs, unit)
            normalizers = sorted({pair.latent.summary["normalizer"] for pair in found.pairs})
            note = f"{table.note} Normaliser: {', '.join(normalizers)}. One training run: an interval"
            parts.append(f"{table.markdown()}\n{note} over utterances says nothing about other seeds.\n")
    if not parts:
        raise DataError(
            f"{path}: no test set scored under both {tag} and {frozen_tag}; run stages 12 and 13, or "
            "leave the results out"
        )
    return "\n".join(parts)


def _weights(identity: str | None) -> str | None:
    return None if identity is None else identity.rpartition("-")[2]
