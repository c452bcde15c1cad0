"""What ``hub_corpora.yaml`` says of a corpus: knows names, terms and layouts, reads no corpus.

A corpus has parts (configurations of the hub, locales, releases), each in one language, and splits
(`SPLITS`).  A set is one split of one part, and its name is ``<corpus>_<part>_<split>``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple

import yaml

from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.text.languages import get_language, load_languages

SPLITS = ("train", "dev", "test")
AUTO = "auto"  # a language that the recogniser has to tell by itself
Splits = Mapping[str, Any]  # our split -> published names, or part -> published names


@dataclass(frozen=True)
class Hub:
    """A corpus on the Hugging Face hub; ``revision`` is a commit, None: not known here."""

    id: str
    revision: str | None
    columns: dict[str, str]
    splits: Splits
    config: str | dict[str, str] | None = None

    def config_of(self, part: str, split: str) -> str:
        """Return the name of a set's configuration."""
        config = self.config.get(split) if isinstance(self.config, dict) else self.config
        return config or part


@dataclass(frozen=True)
class Layout:
    """One published layout of a local copy; ``reader`` is a function of `data.layouts`."""

    reader: str
    files: tuple[str, ...]
    audio: tuple[str, ...] = ()
    splits: Splits = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()


@dataclass(frozen=True)
class PublishedCorpus:
    """A row of ``hub_corpora.yaml``, which explains the fields."""

    name: str
    page: str
    licence: str
    citation: str
    prefix: str
    hub: Hub
    local: tuple[Layout, ...]
    parts: dict[str, str]
    case: Literal["published", "sentence", "lower"] = "published"
    open: bool = False
    part_in_id: bool = False
    tiers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    languages: dict[str, str] = field(default_factory=dict)
    score: str | None = None

    def language(self, part: str, unknown: str = AUTO) -> str:
        """Return the code of a part, or `AUTO`; it is never guessed.

        Args:
            unknown: "error" refuses what would be `AUTO`.

        Raises:
            DataError: no such part.  ConfigError: ``unknown`` is error, and the part is `AUTO`.
        """
        if part not in self.parts and not self.open:
            near = difflib.get_close_matches(part, self.parts, n=1)
            hint = f"did you mean '{near[0]}'? " if near else ""
            raise DataError(f"{self.name}: no part '{part}'; {hint}there are: {' '.join(self.parts)}")
        if unknown not in (AUTO, "error"):
            raise ConfigError(f"unknown languages '{unknown}': auto or error expected")
        code = self.parts.get(part, AUTO)
        if code == AUTO and unknown == "error":
            raise ConfigError(
                f"{self.name}: part '{part}' has no language of text/languages.yaml: no recogniser can "
                "be told it and nothing says how it is scored; add it there and in "
                "data/hub_corpora.yaml, or leave the part out"
            )
        return code

    def row_language(self, published: str) -> str:
        """Return the code of an utterance whose row names its language."""
        if published not in self.languages:
            raise DataError(
                f"{self.name}: an utterance is in '{published}', one of "
                f"{', '.join(self.languages)} expected"
            )
        return self.languages[published]

    def score_language(self, part: str) -> str:
        """Return the code that a set of the part is scored as, which decides WER, CER or MER."""
        return self.score or self.language(part)

    def units(self, part: str) -> tuple[str, ...]:
        """Return the error rates to report, the main one first; none is known for `AUTO`."""
        code = self.score_language(part)
        return () if code == AUTO else get_language(code).units

    def expand(self, parts: Iterable[str]) -> list[str]:
        """Replace tiers and ``all`` by their parts, each once, in the order given."""
        tiers = {**self.tiers, "all": tuple(self.parts)}
        found = [name for part in parts for name in tiers.get(part, (part,))]
        for part in found:
            self.language(part)
        return list(dict.fromkeys(found))


class SetName(NamedTuple):
    """Which set a name means."""

    corpus: PublishedCorpus
    part: str
    split: str

    def __str__(self) -> str:
        return f"{self.corpus.name}_{self.part}_{self.split}"


def published_names(splits: Splits, part: str, split: str) -> tuple[str, ...]:
    """Return what a split of ours is called, () if it is not published."""
    names = splits.get(split, ())
    return tuple(names.get(part, ()) if isinstance(names, dict) else names)


@cache
def load_published() -> Mapping[str, PublishedCorpus]:
    """Return every corpus by name.

    Raises:
        ConfigError: a language that ``text/languages.yaml`` does not know, or a tier without its part.
    """
    text = (files(__package__) / "hub_corpora.yaml").read_text(encoding="utf-8")
    if hasattr(yaml, "CSafeLoader"):  # half a second less for every command that names a corpus
        table = yaml.load(text, yaml.CSafeLoader)
    else:
        table = yaml.safe_load(text)
    corpora = {}
    for name, row in table.items():
        layouts = tuple(Layout(**one | _tuples(one)) for one in row.pop("local"))
        tiers = {tier: tuple(parts) for tier, parts in row.pop("tiers", {}).items()}
        corpus = PublishedCorpus(name, hub=Hub(**row.pop("hub")), local=layouts, tiers=tiers, **row)
        codes = [*corpus.parts.values(), *corpus.languages.values(), corpus.score or AUTO]
        if unknown := [c for c in codes if c != AUTO and c not in load_languages()]:
            raise ConfigError(f"hub_corpora.yaml: {name}: unknown language {unknown[0]!r}")
        for tier in tiers:
            corpus.expand([tier])
        corpora[name] = corpus
    return corpora


def _tuples(layout: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    return {key: tuple(layout.get(key, ())) for key in ("files", "audio", "names", "archives")}


def get_published(name: str) -> PublishedCorpus:
    """Return what is known of a corpus."""
    if name not in load_published():
        near = difflib.get_close_matches(name, load_published(), n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise DataError(f"no corpus '{name}'; {hint}there are: {' '.join(load_published())}")
    return load_published()[name]


def parse_set_name(name: str) -> SetName:
    """Read ``<corpus>_<part>_<split>``, as in ``fleurs_en_us_test``.

    Raises:
        DataError: no such corpus, part or split.
    """
    for corpus in load_published().values():
        rest, _, split = name.removeprefix(f"{corpus.name}_").rpartition("_")
        if name.startswith(f"{corpus.name}_") and rest and split in SPLITS:
            corpus.language(rest)
            return SetName(corpus, rest, split)
    raise DataError(
        f"set '{name}': <corpus>_<part>_<split> expected, with a corpus of {', '.join(load_published())} "
        f"and a split of {', '.join(SPLITS)}, as in fleurs_en_us_test"
    )
