"""Adding a language model's score to every candidate of a file of lists; runs the model it is given."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from espnet_latentasr.config import build
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.fileio import atomic_write_text
from espnet_latentasr.rescoring.lm_text import Scorer, refuse_unknown
from espnet_latentasr.rescoring.nbest_list import Candidate, NBest, read_nbest, write_nbest
from espnet_latentasr.rescoring.score_cache import cache_key, cached_scores

# Arguments that some kinds have no use for.
_UNUSED = {
    "pll": ("data_dir",),
    "ll": ("data_dir",),
    "ngram": ("revision", "dtype", "token_budget", "data_dir"),
    "ilm": ("revision", "text", "dtype", "token_budget"),
}


def refuse_unused(kind: str, given: Mapping[str, Any]) -> None:
    """Refuse arguments that are set (not None) though this kind of scorer has no use for them."""
    if odd := [name for name in _UNUSED[kind] if given.get(name) is not None]:
        raise ConfigError(f"--{odd[0]} is without effect on --scorer {kind}; leave it out")


@dataclass(frozen=True)
class ScoreCounts:
    """What was done; ``unscored``: candidates without a score (an empty text has no PLL)."""

    lists: int = 0
    candidates: int = 0
    texts: int = 0
    computed: int = 0
    unscored: int = 0

    def __str__(self) -> str:
        return (
            f"{self.lists} lists, {self.candidates} candidates, {self.texts} different texts, "
            f"{self.computed} scored now, {self.unscored} candidates without a score"
        )


def load_scorer(
    kind: str,
    model: str,
    revision: str | None = None,
    options: Mapping[str, Any] | None = None,
    dtype: str = "float32",
    device: str = "cpu",
    token_budget: int | None = None,
) -> Scorer:
    """Load a text scorer.

    Args:
        kind: ``pll`` (masked model), ``ll`` (causal model) or ``ngram`` (ARPA file).
        options: keys of ``PLLOptions``, ``LLOptions`` or ``NGramOptions``.

    Raises:
        ConfigError: an unknown key, or one that this kind has no use for.
    """
    keys = dict(options or {})
    if kind == "ngram":
        from espnet_latentasr.rescoring import ngram

        if revision is not None:
            raise ConfigError("revision: an n-gram model is a file, it has no revision")
        found = build(ngram.NGramOptions, keys, "ngram")
        return ngram.NGramScorer(ngram.read_arpa(model), ngram.file_fingerprint(model), found)
    from espnet_latentasr.rescoring import lm, lm_loading

    budget = {} if token_budget is None else {"token_budget": token_budget}
    if kind == "pll":
        found = build(lm.PLLOptions, keys, "pll")
        return lm_loading.load_masked_lm(model, revision, found, dtype, device, **budget)
    if kind == "ll":
        found = build(lm.LLOptions, keys, "ll")
        return lm_loading.load_causal_lm(model, revision, found, dtype, device, **budget)
    raise ConfigError(f"scorer: '{kind}' is none of pll, ll, ngram")


def score_file(
    nbest: Path,
    output: Path,
    name: str,
    scorer_of: Callable[[NBest], Scorer],
    read: Callable[[NBest, Candidate], str],
    cache_root: Path | None = None,
    max_unknown: float = 0.5,
) -> ScoreCounts:
    """Write the lists of ``nbest`` to ``output`` with ``scores[name]`` in every candidate.

    A candidate that the model has nothing to say of (an empty text) gets no such key.  The scorer's cache
    key goes into each list's ``meta`` (lists scored by different models are not mixed) and its identity
    into ``<output>.<name>.json``.

    Args:
        scorer_of: the scorer of a list; lists may share one.
        read: what it reads of a candidate.

    Raises:
        DataError: candidates have such a score already.
    """
    texts: dict[str, dict[str, str]] = {}
    scorers: dict[str, Scorer] = {}
    lists = candidates = unscored = 0
    for row in read_nbest(nbest):
        scorer = scorer_of(row)
        key = cache_key(scorer.identity)
        scorers[key] = scorer
        for candidate in row.hyps:
            if name in candidate.scores:
                raise DataError(
                    f"{nbest}: utterance '{row.utt_id}': its candidates have a score '{name}' already; "
                    "name the new one otherwise"
                )
            texts.setdefault(key, {}).setdefault(read(row, candidate), row.utt_id)
        lists, candidates = lists + 1, candidates + len(row)
    found: dict[str, dict[str, float | None]] = {}
    computed = 0
    for key, scorer in scorers.items():
        refuse_unknown(scorer, texts[key], max_unknown)
        found[key], fresh = cached_scores(scorer, texts[key], cache_root)
        computed += fresh

    def scored() -> Any:
        nonlocal unscored
        for row in read_nbest(nbest):
            values = found[cache_key(scorer_of(row).identity)]
            hyps = []
            for candidate in row.hyps:
                value = values[read(row, candidate)]
                unscored += value is None
                new = {} if value is None else {name: value}
                hyps.append(replace(candidate, scores={**candidate.scores, **new}))
            known = row.meta.extra.get("scorers", {})
            extra = {**row.meta.extra, "scorers": {**known, name: sorted(scorers)}}
            yield replace(row, hyps=tuple(hyps), meta=replace(row.meta, extra=extra))

    write_nbest(output, scored())
    identities = {key: dict(scorer.identity) for key, scorer in scorers.items()}
    record = output.with_name(f"{output.name}.{name}.json")
    atomic_write_text(record, json.dumps(identities, indent=1, ensure_ascii=False) + "\n")
    return ScoreCounts(lists, candidates, sum(map(len, texts.values())), computed, unscored)
