"""Candidate lists judged by their references, and what rules choose from them; one pass over a file.

Texts do not stay in memory: of each list its errors and scores are kept, of each rule its choices.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tqdm import tqdm

from espnet_latentasr.data.kaldi_dir import c_sorted
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.rescoring.config import RescoreConfig, ScoreNames, ScoreWeights
from espnet_latentasr.rescoring.nbest_list import Meta, NBest, normalizer_of, read_nbest
from espnet_latentasr.rescoring.risk import PairwiseLosses
from espnet_latentasr.rescoring.select import TIE, Selection, Shared, prepare, select, set_unit
from espnet_latentasr.text.edit_distance import align
from espnet_latentasr.text.normalize import Normalizer, get_normalizer
from espnet_latentasr.text.units import tokenize

# In which units two candidates are compared where errors are counted in ...
DISTANCE = {"wer": "wer", "cer": "cer", "cer_nospace": "cer_nospace", "mer": "cer_nospace"}


@dataclass(frozen=True)
class Judged:
    """One list of G distinct texts and its errors.

    errors: (G,) int64 against the reference, as sclite counts.  length: reference tokens.  scores: by
    name (G,), NaN where a scorer says nothing of an empty text.  drawn: paths or samples in the list.
    pairwise: mean distance between two candidates (NaN for one).  by_depth: errors (N + 1,) at each
    latent depth, of a list by depth.
    """

    utt_id: str
    length: int
    errors: np.ndarray
    scores: Mapping[str, np.ndarray]
    drawn: int
    pairwise: float
    by_depth: np.ndarray | None = None

    @property
    def greedy(self) -> int:
        return int(self.errors[0])

    def oracle(self, size: int | None = None) -> int:
        """Fewest errors among the first ``size`` candidates."""
        return int(self.errors[:size].min())


@dataclass
class Choices:
    """What one rule chose, per utterance.

    errors: of the choice.  oracle: fewest errors among the candidates it had.  changed: whether its
    text is not the greedy one.  near: distance, in units of ``distance``, to the nearest candidate with
    the oracle's errors.  rank: place of the best such candidate in the rule's own order (1: chosen).
    fallback: greedy, for want of a text.  variance: of the loss under Q, of the choice and of greedy
    (NaN without Q).
    """

    config: RescoreConfig
    distance: str
    errors: list[int] = field(default_factory=list)
    oracle: list[int] = field(default_factory=list)
    changed: list[bool] = field(default_factory=list)
    near: list[int] = field(default_factory=list)
    rank: list[int] = field(default_factory=list)
    fallback: list[bool] = field(default_factory=list)
    variance: list[tuple[float, float]] = field(default_factory=list)

    def add(self, found: Selection, errors: np.ndarray, losses: PairwiseLosses) -> None:
        """Record a choice from the first candidates of a list with these errors (G,)."""
        size = len(found.criterion)
        errors = errors[:size]
        best = np.flatnonzero(errors == errors.min())
        self.errors.append(int(errors[found.index]))
        self.oracle.append(int(errors.min()))
        distances = losses.distances(self.distance)[0][found.index]
        self.changed.append(bool(distances[0]))
        self.near.append(int(distances[best].min()))
        least = found.criterion[best].min()
        ahead = found.criterion < least - TIE * max(1.0, abs(least)) if np.isfinite(least) else None
        self.rank.append(size if ahead is None else 1 + int(ahead.sum()))
        self.fallback.append(found.fallback)
        self.variance.append(_variances(found, losses, self.config))


def _variances(found: Selection, losses: PairwiseLosses, config: RescoreConfig) -> tuple[float, float]:
    """Return Var_Q L(choice, .) and Var_Q L(greedy, .)."""
    if found.weights is None or found.fallback:
        return float("nan"), float("nan")
    size = len(found.weights)
    rows = losses(config.loss, config.denominator)[[found.index, 0], :size]
    mean = rows @ found.weights
    one, two = ((rows - mean[:, None]) ** 2) @ found.weights
    return float(one), float(two)


@dataclass(frozen=True)
class Study:
    """All lists of a set in C order of the ids, and the choices of every rule in the same order."""

    meta: Meta
    unit: str
    lists: list[Judged]
    choices: dict[str, Choices]

    @property
    def lengths(self) -> np.ndarray:
        return np.array([judged.length for judged in self.lists], dtype=np.int64)

    @property
    def greedy(self) -> np.ndarray:
        return np.array([judged.greedy for judged in self.lists], dtype=np.int64)

    def oracle(self, size: int | None = None) -> np.ndarray:
        """Fewest errors (U,) among the first ``size`` candidates of each list."""
        return np.array([judged.oracle(size) for judged in self.lists], dtype=np.int64)


def study_file(
    path: Path,
    refs: Mapping[str, str] | None,
    rules: Mapping[str, RescoreConfig],
    *,
    normalizer: str = "list",
    unit: str = "wer",
) -> Study:
    """Judge every list of a file and let every rule choose; pairwise distances are computed once.

    References and candidates go through one normaliser: ``normalizer``, or for ``list`` the one that
    made the lists.

    Args:
        refs: by utterance, exactly the lists' ones; None takes the references in the file.

    Raises:
        ConfigError: a rule normalises in another way.
        DataError: a list without reference or a reference without list, and all that reading refuses.
    """
    for name, config in rules.items():
        if config.normalizer not in ("list", normalizer):
            raise ConfigError(
                f"{name}: normalizer: {config.normalizer}, but everything is judged with {normalizer}; "
                f"use --normalizer {config.normalizer}"
            )
    base = RescoreConfig(normalizer=normalizer)
    aligned = {name: dataclasses.replace(c, normalizer=normalizer) for name, c in rules.items()}
    units = {name: _unit(path, config) for name, config in aligned.items()}
    lists: list[Judged] = []
    choices = {name: Choices(config, DISTANCE[unit]) for name, config in aligned.items()}
    meta: Meta | None = None
    scorers: set[str] | None = None
    ids = set()
    for nbest in tqdm(read_nbest(path), desc=path.name, disable=None):
        merged = prepare(nbest, base)
        if meta is None:
            meta = merged.meta
            function = normalizer_of(meta) if normalizer == "list" else get_normalizer(normalizer)
        shared = Shared(merged)
        scorers = _check_scorers(shared, scorers, path)
        reference = _reference(nbest, refs, path)
        ids.add(nbest.utt_id)
        judged = judge(nbest, reference, function, unit, shared)
        lists.append(judged)
        views = {True: (merged, shared, judged.errors)}
        for name, config in aligned.items():
            if config.dedup not in views:
                apart = prepare(nbest, config)
                texts = dict(zip(merged.texts, judged.errors))
                views[False] = apart, Shared(apart), np.array([texts[t] for t in apart.texts])
            own, own_shared, errors = views[config.dedup]
            found = select(own, config, own_shared, units[name])
            choices[name].add(found, errors, own_shared.losses)
    if refs is not None and (left := c_sorted(refs.keys() - ids)):
        raise DataError(
            f"{path}: {len(lists)} lists, {len(refs)} references; {len(left)} references have no list, "
            f"first '{left[0]}'; name the references of this very set"
        )
    return Study(meta, unit, lists, choices)


def _unit(path: Path, config: RescoreConfig) -> float | None:
    return set_unit((prepare(nbest, config) for nbest in read_nbest(path)), config)


def _reference(nbest: NBest, refs: Mapping[str, str] | None, path: Path) -> str:
    reference = nbest.ref if refs is None else refs.get(nbest.utt_id)
    if reference is None:
        where = "in the file (give --ref)" if refs is None else f"among {len(refs)}"
        raise DataError(f"{path}: utterance '{nbest.utt_id}': no reference {where}")
    return reference


def _check_scorers(shared: Shared, known: set[str] | None, path: Path) -> set[str] | None:
    """Refuse a set in which a scorer has scored some candidates with text only."""
    nbest = shared.terms.nbest
    for index in np.flatnonzero(shared.terms.values("has_text")):
        own = set(nbest.hyps[index].scores)
        if known is not None and own != known:
            raise DataError(
                f"{path}: utterance '{nbest.utt_id}': candidate {index} {nbest.hyps[index].text!r} has "
                f"scores {sorted(own)}, others {sorted(known)}; score the whole file with every scorer"
            )
        known = own
    return known


def judge(nbest: NBest, reference: str, normalizer: Normalizer, unit: str, shared: Shared) -> Judged:
    """Count the errors of a list; ``nbest`` is as read, ``shared`` of it as prepared."""
    merged, terms = shared.terms.nbest, shared.terms
    tokens = tokenize(normalizer(reference), unit)
    counted: dict[str, int] = {}

    def errors(text: str) -> int:
        if text not in counted:
            counted[text] = align(tokens, tokenize(text, unit)).counts.errors
        return counted[text]

    scores = {"am": terms.values("am_logp"), "path": terms.values("path_logp")}
    if not np.isfinite(scores["path"]).all():
        del scores["path"]
    for name in sorted(set().union(*(c.scores for c in merged.hyps))):
        scores[name] = np.where(terms.values("has_text"), terms.values(f"score:{name}"), np.nan)
    size, by_depth = len(merged), None
    if nbest.meta.gen == "latent-depth" and not any(c.merged for c in nbest.hyps):
        texts = {row: c.text for c in merged.hyps for row in c.merged}
        by_depth = np.array([errors(texts[row]) for row in range(len(nbest))], dtype=np.int64)
    distances = shared.losses.distances(DISTANCE[unit])[0]
    return Judged(
        nbest.utt_id,
        len(tokens),
        np.array([errors(text) for text in merged.texts], dtype=np.int64),
        scores,
        sum(c.count for c in nbest.hyps),
        float(distances.sum() / (size * (size - 1))) if size > 1 else float("nan"),
        by_depth,
    )


def sweep_rules(
    rules: Mapping[str, RescoreConfig],
    sizes: Sequence[int],
    taus: Sequence[float],
    alphas: Sequence[float],
    scorers: Sequence[str],
) -> dict[str, RescoreConfig]:
    """Return the rules and their variants: each at each size, each MBR rule at each tau, interpolations.

    Names are ``rule``, ``rule@size``, ``rule tau=1`` and ``scorer alpha=0.7@size``.
    """
    found = dict(rules)
    for name, config in rules.items():
        found |= {f"{name}@{n}": dataclasses.replace(config, candidates=n) for n in sizes}
        if config.expects and config.posterior.kind == "loglinear":
            for tau in taus:
                warm = dataclasses.replace(config.posterior, tau=tau)
                found[f"{name} tau={tau:g}"] = dataclasses.replace(config, posterior=warm)
    for scorer in scorers:
        for alpha in alphas:
            weights = ScoreWeights(am=alpha, pll=1 - alpha)
            config = RescoreConfig("argmax", score=weights, names=ScoreNames(pll=scorer))
            for n in sizes:
                found[f"{scorer} alpha={alpha:g}@{n}"] = dataclasses.replace(config, candidates=n)
    return found
