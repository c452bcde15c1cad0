"""Learned rerankers: training one into a folder, and adding its score to files of lists.

    reranker.json          kind, configuration, what lists it was trained on, training log
    reranker.safetensors   its tensors (masked: the score's linear map; the language model is beside it)
    utterances.txt         training utterances: their scores would say nothing about new ones

A score says how few errors are expected: the higher, the better, as log-probabilities are.  The models
are imported when they are asked for.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.fileio import atomic_write_text
from espnet_latentasr.reading import read_json, read_text
from espnet_latentasr.rescoring.nbest_list import Meta, NBest, read_nbest, write_nbest
from espnet_latentasr.rescoring.rerankers_acoustics import Acoustics
from espnet_latentasr.rescoring.rerankers_config import RerankerConfig, reranker_config
from espnet_latentasr.rescoring.rerankers_data import Judged, chosen_rate, greedy_rate, split_lists

RECORD, TENSORS, UTTERANCES, MODEL = "reranker.json", "reranker.safetensors", "utterances.txt", "model"


class Reranker(Protocol):
    """Scores the candidates of a list."""

    def score(self, nbest: NBest) -> list[float]: ...


@dataclass(frozen=True)
class Loaded:
    """A trained reranker, its identity, and what it was trained on."""

    reranker: Reranker
    identity: Mapping[str, Any]
    lists: Mapping[str, Any]
    utterances: frozenset[str]


def generated_by(meta: Meta) -> dict[str, Any]:
    """What made a list, without seed and scorers: where a reranker may be used."""
    row = {f.name: getattr(meta, f.name) for f in dataclasses.fields(meta) if f.name != "extra"}
    row |= dict(meta.extra)
    return {key: value for key, value in row.items() if key not in ("scorers", "seed")}


def train_reranker(
    nbest: Path,
    refs: Mapping[str, str] | None,
    config: RerankerConfig,
    output: Path,
    *,
    model: str | None = None,
    revision: str | None = None,
    acoustics: Acoustics | None = None,
) -> dict[str, Any]:
    """Train on lists of training utterances and write the folder; returns its record.

    Args:
        model: the masked language model to start from (kind ``masked``).
        acoustics: encoder states and posteriors of the utterances (kind ``value``).

    Raises:
        ConfigError: what the kind needs is missing, or has no use for is given.
    """
    needs = {"masked": "model", "value": "acoustics"}.get(config.kind)
    for name, given in (("model", model), ("acoustics", acoustics)):
        if (given is not None) != (name == needs):
            what = "needs" if name == needs else "has no use for"
            told = "--model" if name == "model" else "--embeddings and --posteriors"
            raise ConfigError(f"kind: {config.kind} {what} {told}")
    size = None if config.kind == "features" else config.candidates
    training, held_out = split_lists(nbest, refs, config.unit, size, config.held_out, config.seed)
    partial = output.with_name(output.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    trained, log = _train(training, held_out, config, partial, model, revision, acoustics)
    utterances = sorted({j.nbest.utt_id for j in training + held_out}, key=str.encode)
    record = {
        "config": {
            key: value
            for key, value in dataclasses.asdict(config).items()
            if key not in {"features", "value", "masked"} - {config.kind}
            and not (key == "candidates" and config.kind == "features")
        },
        "lists": generated_by(training[0].nbest.meta),
        "nbest_sha256": hashlib.sha256(nbest.read_bytes()).hexdigest(),
        "model": getattr(trained, "fingerprint", None),
        "training_lists": len(training),
        "held_out_lists": len(held_out),
        "held_out": {
            "greedy": greedy_rate(held_out),
            "oracle": chosen_rate(held_out, [-j.errors for j in held_out]),
            "reranker": chosen_rate(held_out, [trained.score(j.nbest) for j in held_out]),
        },
        "log": log,
        "sha256": hashlib.sha256((partial / TENSORS).read_bytes()).hexdigest(),
    }
    atomic_write_text(partial / UTTERANCES, "".join(f"{utt_id}\n" for utt_id in utterances))
    # Last: it marks the folder complete.
    atomic_write_text(partial / RECORD, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    shutil.rmtree(output, ignore_errors=True)
    partial.rename(output)
    return record


def _train(
    training: list[Judged],
    held_out: list[Judged],
    config: RerankerConfig,
    folder: Path,
    model: str | None,
    revision: str | None,
    acoustics: Acoustics | None,
) -> tuple[Reranker, list[dict]]:
    if config.kind == "features":
        from safetensors.numpy import save_file

        from espnet_latentasr.rescoring.rerankers_features import FeatureReranker, train_features

        arrays = train_features(training, config.features, config.seed)
        save_file(arrays, folder / TENSORS)
        return FeatureReranker(arrays), []
    from safetensors.torch import save_file

    if config.kind == "value":
        from espnet_latentasr.rescoring.rerankers_value import ValueReranker, train_value

        tensors, log = train_value(training, held_out, acoustics, config.value, config.seed)
        save_file(tensors, folder / TENSORS)
        return ValueReranker(tensors, config.value, acoustics), log
    from espnet_latentasr.rescoring.rerankers_masked import train_masked

    reranker, log = train_masked(training, held_out, model, config.masked, config.seed, revision)
    reranker.save(folder / MODEL)
    save_file(reranker.head.state_dict(), folder / TENSORS)
    return reranker, log


def load_reranker(folder: Path, acoustics: Acoustics | None = None) -> Loaded:
    """Read a folder of `train_reranker`; weights only, never code.

    Raises:
        ConfigError: no finished folder, or ``acoustics`` are missing or without use.
        DataError: damaged tensors.
    """
    try:
        record = read_json(folder / RECORD, "its record")
        data = (folder / TENSORS).read_bytes()
        utterances = frozenset(read_text(folder / UTTERANCES, "its utterances").split())
        config, wanted, lists = record["config"], str(record["sha256"]), record["lists"]
        if not isinstance(config, dict) or not isinstance(lists, dict):
            raise ValueError("config and lists: objects expected")
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(
            f"{folder}: no finished reranker ({error!r}); bin.train_reranker makes one"
        ) from None
    if (found := hashlib.sha256(data).hexdigest()) != wanted:
        raise DataError(
            f"{folder / TENSORS}: SHA-256 {found[:16]}, {wanted[:16]} recorded: damaged or exchanged; "
            "train the reranker again"
        )
    settings = reranker_config(config, str(folder / RECORD))
    if (acoustics is not None) != (settings.kind == "value"):
        what = "needs" if settings.kind == "value" else "has no use for"
        raise ConfigError(f"{folder}: kind: {settings.kind} {what} --embeddings and --posteriors")
    identity = {"reranker": settings.kind, "tensors": wanted}
    if settings.kind == "features":
        from safetensors.numpy import load

        from espnet_latentasr.rescoring.rerankers_features import FeatureReranker

        return Loaded(FeatureReranker(load(data)), identity, lists, utterances)
    from safetensors.torch import load

    if settings.kind == "value":
        from espnet_latentasr.rescoring.rerankers_value import ValueReranker

        return Loaded(
            ValueReranker(load(data), settings.value, acoustics), identity, lists, utterances
        )
    from espnet_latentasr.rescoring.rerankers_masked import MaskedReranker

    reranker = MaskedReranker(str(folder / MODEL), settings.masked).load_head(load(data))
    identity |= {"model": reranker.fingerprint}
    return Loaded(reranker.eval(), identity, lists, utterances)


def _check(path: Path, nbest: NBest, name: str, loaded: Loaded, other_lists: bool) -> None:
    where = f"{path}: utterance '{nbest.utt_id}'"
    if any(name in c.scores for c in nbest.hyps):
        raise DataError(
            f"{where}: its candidates have a score '{name}' already; name the new one otherwise"
        )
    if nbest.utt_id in loaded.utterances:
        raise DataError(
            f"{where}: the reranker was trained on this utterance, its score would flatter; score other "
            "sets, or train on other lists"
        )
    made = generated_by(nbest.meta)
    if not other_lists and made != dict(loaded.lists):
        keys = sorted(made.keys() | loaded.lists.keys())
        odd = next(key for key in keys if made.get(key) != loaded.lists.get(key))
        raise DataError(
            f"{where}: lists with {odd} {made.get(odd)!r}, the reranker was trained on "
            f"{loaded.lists.get(odd)!r}; make the lists alike, or accept it with --other_lists true"
        )


def rerank_file(
    nbest: Path, output: Path, name: str, loaded: Loaded, other_lists: bool = False
) -> tuple[int, int]:
    """Write the lists of ``nbest`` to ``output`` with ``scores[name]`` in every candidate.

    The reranker's key goes into each list's ``meta``, its identity into ``<output>.<name>.json``.

    Args:
        other_lists: accept lists that were generated in another way than the training lists.

    Returns:
        Numbers of lists and of candidates.

    Raises:
        DataError: such a score is there already, a training utterance, or lists of another kind.
    """
    text = json.dumps(loaded.identity, sort_keys=True)
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    candidates = 0

    def scored():
        nonlocal candidates
        for row in read_nbest(nbest):
            _check(nbest, row, name, loaded, other_lists)
            values = loaded.reranker.score(row)
            hyps = [
                replace(c, scores={**c.scores, name: value})
                for c, value in zip(row.hyps, values, strict=True)
            ]
            known = row.meta.extra.get("scorers", {})
            extra = {**row.meta.extra, "scorers": {**known, name: [key]}}
            candidates += len(hyps)
            yield replace(row, hyps=tuple(hyps), meta=replace(row.meta, extra=extra))

    lists = write_nbest(output, scored())
    record = output.with_name(f"{output.name}.{name}.json")
    atomic_write_text(record, json.dumps({key: dict(loaded.identity)}, indent=1) + "\n")
    return lists, candidates
