"""Candidate lists as JSONL, one utterance a line: knows the schema and merging; scores nothing.

A row is ``{"utt_id", "ref", "meta", "greedy_idx": 0, "hyps": [...]}`` with the fields of `Meta` and
`Candidate`; keys that are not declared here are kept as they are.  Candidate 0 is always the greedy
hypothesis.  ``text`` is what errors and distances are counted on, ``surface`` what a language model
reads.  All log-probabilities are natural logarithms.

Lists are read and written one at a time, in C-locale order of the ids, and lists that were generated in
different ways (another ``meta``) are never mixed: their scores and their oracle are not comparable.

One file on purpose: what a field means, how it is checked and how two candidates merge must agree.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from espnet_latentasr.errors import DataError
from espnet_latentasr.fileio import atomic_path
from espnet_latentasr.reading import parse_json, read_lines
from espnet_latentasr.text.normalize import Normalizer, get_normalizer

GENERATORS = ("sys", "iid", "prefix", "kbest", "ar-sample", "ar-beam", "latent-depth")
UNKNOWN_MARKS = ("<unk>", "⁇")  # as ESPnet's token lists and sentencepiece write an unknown token
# One event under two log-probabilities: rounding of a batched model explains this much (nats), no more.
SAME_EVENT = 0.1
LARGEST = 1 << 62


@dataclass(frozen=True)
class Meta:
    """How a list was generated. ``G``: candidates asked for; ``norm``: identity of the normaliser.

    ``num_paths``: alignments drawn; ``nbest_scale``, ``output_beam``: scale and pruning of the lattice.
    """

    gen: str
    G: int
    norm: str
    model: str
    seed: int | None = None
    num_paths: int | None = None
    nbest_scale: float | None = None
    output_beam: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.gen not in GENERATORS:
            raise DataError(f"meta.gen {self.gen!r}: expected one of {', '.join(GENERATORS)}")
        _check_integer("meta.G", self.G, 1)
        _check_text("meta.norm", self.norm)
        _check_text("meta.model", self.model)
        for name, low in (("seed", 0), ("num_paths", 1)):
            if getattr(self, name) is not None:
                _check_integer(f"meta.{name}", getattr(self, name), low)
        for name in ("nbest_scale", "output_beam"):
            if (value := getattr(self, name)) is not None:
                _check_number(f"meta.{name}", value)
                if value <= 0:
                    raise DataError(f"meta.{name} {value!r}: a number above 0 expected")


@dataclass(frozen=True)
class Candidate:
    """One hypothesis.

    ``count``: paths or samples that gave it.  ``am_logp``: exact log P(text | audio) (all alignments of
    CTC, teacher-forced for an autoregressive model).  ``path_logp``: of one alignment.  ``scores``: by
    scorer.  ``depth``: latent steps.  After merging, ``merged`` has the rows of the list that became
    this one and ``depths`` all depths that gave this text.
    """

    text: str
    surface: str
    tokens: tuple[int, ...]
    am_logp: float
    count: int = 1
    path_logp: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    depth: int | None = None
    depths: tuple[int, ...] = ()
    merged: tuple[int, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("text", "surface"):
            _check_text(name, getattr(self, name))
        _check_integer("count", self.count, 0)  # 0: found otherwise than by sampling
        if self.depth is not None:
            _check_integer("depth", self.depth, 0)
        for name in ("am_logp", "path_logp"):
            value = getattr(self, name)
            if value is None and name == "path_logp":
                continue
            _check_number(name, value)
            # A float32 model may exceed log 1 by its rounding.
            if value > 1e-3:
                raise DataError(f"{name} {value!r}: a log-probability is at most 0; is the sign turned?")
        for scorer, value in self.scores.items():
            _check_number(f"score '{scorer}'", value)

    @property
    def n_tok(self) -> int:
        return len(self.tokens)

    @property
    def n_char(self) -> int:
        return len(self.text)


@dataclass(frozen=True)
class NBest:
    """The candidates of one utterance, greedy first; a list by latent depth is in order of depth.

    Raises:
        DataError: no candidate, depths missing or out of order.
    """

    utt_id: str
    meta: Meta
    hyps: tuple[Candidate, ...]
    ref: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.hyps:
            raise DataError(
                "hyps: no candidate; the greedy hypothesis at least is expected, even if empty"
            )
        if self.meta.gen == "latent-depth":
            depths = [c.depth for c in self.hyps]
            if None in depths or any(a >= b for a, b in zip(depths, depths[1:])):
                raise DataError(f"hyps: depths {depths}, growing depths expected in a latent-depth list")

    def __len__(self) -> int:
        return len(self.hyps)

    @property
    def texts(self) -> list[str]:
        return [c.text for c in self.hyps]


def _check_text(name: str, value: Any) -> None:
    if not isinstance(value, str) or "\n" in value or "\r" in value:
        raise DataError(f"{name} {value!r}: one line of text expected")


def _check_integer(name: str, value: Any, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= LARGEST:
        raise DataError(f"{name} {value!r:.200}: a whole number from {low} expected")


def _check_number(name: str, value: Any) -> None:
    # Integers have no limit in JSON, and none beyond this has a logarithm or an array to go into.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < LARGEST:
        raise DataError(f"{name} {value!r:.200}: a finite number expected; score the list again")


@cache
def _keys(cls: type) -> tuple[frozenset[str], frozenset[str]]:
    """Return the keys that ``cls`` declares, and those it cannot do without."""
    fields = [f for f in dataclasses.fields(cls) if f.name != "extra"]
    needed = (f for f in fields if f.default is f.default_factory is dataclasses.MISSING)
    return frozenset(f.name for f in fields), frozenset(f.name for f in needed)


def _take(cls: type, row: Any, what: str) -> dict[str, Any]:
    """Split a JSON object into the declared fields of ``cls`` and ``extra``."""
    if not isinstance(row, dict):
        raise DataError(f"{what} {row!r}: an object expected")
    declared, required = _keys(cls)
    if missing := sorted(required - row.keys()):
        raise DataError(f"{what}: key '{missing[0]}' is missing")
    known = {key: row[key] for key in row.keys() & declared}
    return known | {"extra": {key: row[key] for key in row if key not in declared}}


def _candidate(row: Any, index: int) -> Candidate:
    where = f"candidate {index}"
    fields = _take(Candidate, row, where)
    for name in ("tokens", "depths", "merged"):
        value = fields.get(name, [])
        whole = isinstance(value, list) and {int}.issuperset(map(type, value))
        if not whole or max(value, default=0) > LARGEST or min(value, default=0) < 0:
            raise DataError(f"{where}: {name} {value!r}: a list of whole numbers from 0 expected")
        fields[name] = tuple(value)
    scores = fields.get("scores", {})
    if not isinstance(scores, dict):
        raise DataError(f"{where}: scores {scores!r}: an object 'scorer: number' expected")
    # null: the scorer had nothing to say, as about an empty text; wherever it is needed, it is missing.
    fields["scores"] = {scorer: value for scorer, value in scores.items() if value is not None}
    extra = fields["extra"]
    sizes = {"n_tok": extra.pop("n_tok", None), "n_char": extra.pop("n_char", None)}
    try:
        candidate = Candidate(**fields)
    except DataError as error:
        raise DataError(f"{where} {fields['text']!r}: {error}") from None
    for name, value in sizes.items():
        if value is not None and value != getattr(candidate, name):
            raise DataError(
                f"{where} {candidate.text!r}: {name} {value!r}, but its "
                f"{'tokens' if name == 'n_tok' else 'text'} has {getattr(candidate, name)}"
            )
    return candidate


def parse_row(row: Any) -> NBest:
    """Build a list from a decoded JSON row.

    Raises:
        DataError: saying which candidate and field, but neither file nor utterance.
    """
    fields = _take(NBest, row, "row")
    if fields["extra"].pop("greedy_idx", 0) != 0:
        raise DataError("greedy_idx is not 0: candidate 0 must be the greedy hypothesis")
    if fields.get("ref") is not None:
        _check_text("ref", fields["ref"])
    if not isinstance(fields["hyps"], list):
        raise DataError(f"hyps {fields['hyps']!r}: a list of candidates expected")
    fields["meta"] = Meta(**_take(Meta, fields["meta"], "meta"))
    fields["hyps"] = tuple(_candidate(hyp, index) for index, hyp in enumerate(fields["hyps"]))
    return NBest(**fields)


def to_row(nbest: NBest) -> dict[str, Any]:
    """Return the JSON row of a list; the inverse of `parse_row`."""

    def plain(thing: Any, *leave_out: str) -> dict[str, Any]:
        names = [f.name for f in dataclasses.fields(thing) if f.name not in ("extra", *leave_out)]
        return {name: getattr(thing, name) for name in names}

    hyps = []
    for c in nbest.hyps:
        row = plain(c, "depths", "merged") | {"n_tok": c.n_tok, "n_char": c.n_char}
        if c.merged:
            row |= {"depths": c.depths, "merged": c.merged}
        hyps.append(row | dict(c.extra))
    meta = plain(nbest.meta) | dict(nbest.meta.extra)
    head = {"utt_id": nbest.utt_id, "ref": nbest.ref, "meta": meta, "greedy_idx": 0}
    return head | {"hyps": hyps} | dict(nbest.extra)


class _Sequence:
    """What holds from list to list: one ``meta``, ids in order and each once."""

    def __init__(self) -> None:
        self.first: NBest | None = None
        self.last = ""

    def check(self, nbest: NBest) -> None:
        utt = nbest.utt_id
        if not isinstance(utt, str) or len(utt.split()) != 1 or utt != utt.strip():
            raise DataError("utt_id: one word expected")
        if self.first is None:
            self.first = nbest
        elif nbest.meta != self.first.meta:
            ours, theirs = to_row(nbest)["meta"], to_row(self.first)["meta"]
            differ = {k: (ours.get(k), theirs.get(k)) for k in ours.keys() | theirs.keys()}
            told = [f"{k} {a!r} against {b!r}" for k, (a, b) in sorted(differ.items()) if a != b]
            raise DataError(
                f"other meta than utterance '{self.first.utt_id}': {', '.join(told)}; lists generated "
                "differently cannot be mixed, generate them alike or use two files"
            )
        elif utt.encode() <= self.last.encode():
            why = "is a duplicate of" if utt == self.last else "comes after"
            raise DataError(f"{why} '{self.last}'; sort the file by utterance (C locale), each once")
        self.last = utt


def read_nbest(path: str | Path) -> Iterator[NBest]:
    """Read lists one at a time.

    Raises:
        DataError: naming file, line and utterance, for anything that is not such a list, ids out of
            order or twice, a ``meta`` unlike the first one's, or no list at all.
    """
    sequence = _Sequence()
    for number, line in read_lines(path, "a JSONL of candidate lists"):
        utt = "?"
        row = parse_json(line, f"{path}:{number}: not a JSON object", "a list of candidates")
        try:
            utt = row.get("utt_id", "?") if isinstance(row, dict) else "?"
            nbest = parse_row(row)
            sequence.check(nbest)
        except DataError as error:
            raise DataError(f"{path}:{number}: utterance {utt!r:.200}: {error}") from None
        yield nbest
    if sequence.first is None:
        raise DataError(f"{path}: no list in it; generate the candidates again")


def write_nbest(path: str | Path, lists: Iterable[NBest]) -> int:
    """Write lists as they come, whole or not at all; return how many.

    Raises:
        DataError: ids out of order or twice, or a ``meta`` unlike the first one's.
    """
    sequence, count = _Sequence(), 0
    with atomic_path(path) as temporary:
        with open(temporary, "w", encoding="utf-8", newline="\n") as file:
            for nbest in lists:
                try:
                    sequence.check(nbest)
                except DataError as error:
                    raise DataError(f"{path}: utterance '{nbest.utt_id}': {error}") from None
                file.write(json.dumps(to_row(nbest), ensure_ascii=False, allow_nan=False) + "\n")
                count += 1
    return count


def normalizer_id(normalizer: Normalizer) -> str:
    """Return what ``meta.norm`` holds: the name, and the version unless nothing is done."""
    return normalizer.name if normalizer.name == "none" else f"{normalizer.name} {normalizer.version}"


def normalizer_of(meta: Meta) -> Normalizer:
    """Return the normaliser that made ``text``; references need the very same one.

    Raises:
        DataError: it is not known or installed in another version.
    """
    normalizer = get_normalizer(meta.norm.split(" ")[0])
    if normalizer_id(normalizer) != meta.norm:
        raise DataError(
            f"lists were normalised by '{meta.norm}', '{normalizer_id(normalizer)}' is installed; "
            "install that version, or normalise the lists again (normalizer of the configuration)"
        )
    return normalizer


def renormalize(nbest: NBest, normalizer: Normalizer) -> NBest:
    """Make ``text`` anew from ``surface``; candidates that became alike are not merged."""
    if normalizer_id(normalizer) == nbest.meta.norm:
        return nbest
    hyps = tuple(replace(c, text=normalizer(c.surface)) for c in nbest.hyps)
    return replace(nbest, hyps=hyps, meta=replace(nbest.meta, norm=normalizer_id(normalizer)))


def head(nbest: NBest, size: int | None) -> NBest:
    """Return the list's first ``size`` candidates (None: all); lists of different sizes are nested."""
    return nbest if size is None or size >= len(nbest) else replace(nbest, hyps=nbest.hyps[:size])


def deduplicate(nbest: NBest) -> NBest:
    """Merge candidates of equal ``text``; the order of first occurrence stays.

    Counts add up.  ``am_logp`` is the log-sum-exp over distinct token sequences: segmentations of one
    text are disjoint events, a repeated one is the same event.  Depths are different models of one
    utterance; a list by depth becomes their uniform mixture, in which a depth counts for the text it
    gave only (a lower bound).  ``path_logp`` is the best.  Surface, tokens and scores come together from
    the member with the highest ``am_logp``, in the greedy hypothesis' class from that.

    Raises:
        DataError: one token sequence has two log-probabilities.
    """
    groups: dict[str, list[int]] = {}
    for index, candidate in enumerate(nbest.hyps):
        groups.setdefault(candidate.text, []).append(index)
    by_depth = all(c.depth is not None and not c.merged for c in nbest.hyps)
    offset = math.log(len({c.depth for c in nbest.hyps})) if by_depth else 0.0
    hyps = []
    for members in groups.values():
        events: dict[tuple, float] = {}
        for index in members:
            c = nbest.hyps[index]
            known = events.setdefault((c.tokens, c.depth), c.am_logp)
            if abs(known - c.am_logp) > SAME_EVENT:
                raise DataError(
                    f"utterance '{nbest.utt_id}': candidate {index} {c.text!r}: am_logp {c.am_logp!r}, "
                    f"but {known!r} for the same tokens before; score the list exactly first"
                )
        best = 0 if members[0] == 0 else max(members, key=lambda i: (nbest.hyps[i].am_logp, -i))
        group = [nbest.hyps[i] for i in members]
        paths = [c.path_logp for c in group if c.path_logp is not None]
        depths = {d for c in group for d in (c.depths or (() if c.depth is None else (c.depth,)))}
        merged = (m for i, c in zip(members, group) for m in (c.merged or (i,)))
        masses = list(events.values())
        mass = (masses[0] if len(masses) == 1 else float(np.logaddexp.reduce(masses))) - offset
        if mass > SAME_EVENT:
            raise DataError(
                f"utterance '{nbest.utt_id}': candidate {members[0]}: the probabilities of the "
                f"{len(events)} token sequences of {nbest.hyps[best].text!r} sum to "
                f"{math.exp(mass):.3g}, at most 1 expected; score the list exactly first"
            )
        hyps.append(
            replace(
                nbest.hyps[best],
                am_logp=min(mass, 0.0),
                count=sum(c.count for c in group),
                path_logp=max(paths, default=None),
                depth=min(depths, default=None),
                depths=tuple(sorted(depths)),
                merged=tuple(merged),
            )
        )
    return replace(nbest, hyps=tuple(hyps))


def unknown_words(nbest: NBest) -> tuple[int, int]:
    """Return (words with an unknown mark, words) of the greedy surface.

    Improbable candidates of a sound recogniser may well hold unknown tokens, its greedy text does not.
    """
    words = nbest.hyps[0].surface.split()
    return sum(any(mark in word for mark in UNKNOWN_MARKS) for word in words), len(words)


def check_unknown(unknown: int, words: int, limit: float, where: str | Path) -> None:
    """Refuse lists in which more than the share ``limit`` of the words is unknown.

    Text fed back to a tokenizer in the wrong case, or a wrong token list, looks like this.
    """
    if unknown > limit * words:
        raise DataError(
            f"{where}: {unknown} of {words} words are unknown ({unknown / words:.1%}; at most "
            f"{limit:.1%} expected); check token list and letter case, or raise max_unk_rate"
        )
