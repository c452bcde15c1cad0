"""Which utterances a training set is made of: knows ids, corpora, locales and seeds only."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from espnet_latentasr.config import load_yaml
from espnet_latentasr.data.kaldi_dir import c_sorted
from espnet_latentasr.errors import ConfigError, DataError

MOST = 1 << 40  # utterances, or a seed


def nested_sample(ids: Iterable[str], num: int, seed: int) -> list[str]:
    """Draw ``num`` ids without replacement; return them in C-locale order.

    Every id has a rank that follows from the seed and the id alone, and the ``num`` lowest are
    taken.  So the order of ``ids`` does not matter, a sample contains every smaller one of the same
    seed, and samples of 100 and 500 utterances differ by size only.

    Raises:
        DataError: fewer than ``num`` ids, a repeated id, or ``num`` below 1.
    """
    pool = c_sorted(ids)
    if num < 1:
        raise DataError(f"{num} utterances asked for; at least 1 expected")
    if len(set(pool)) != len(pool):
        twice = next(a for a, b in zip(pool, pool[1:], strict=False) if a == b)
        raise DataError(f"id '{twice}' is there twice; every id once expected")
    if num > len(pool):
        raise DataError(
            f"{num} utterances asked for, but there are {len(pool)}; ask for fewer or add some"
        )
    return c_sorted(sorted(pool, key=lambda utt: (_rank(seed, utt), utt.encode()))[:num])


def _rank(seed: int, utt: str) -> bytes:
    return hashlib.sha256(f"activation {seed} {utt}".encode()).digest()


class Candidate(NamedTuple):
    """An utterance that may be drawn; ``locale`` is the published configuration or locale."""

    utt: str
    corpus: str
    locale: str


def _whole(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MOST:
        raise ConfigError(f"{name}: {value!r:.200}, a whole number expected")


@dataclass(frozen=True)
class Share:
    """Of one corpus: how many of the first ``size`` utterances, at most how many of one locale, and the
    parts that are to be prepared for it (none: all).
    """

    quota: int
    cap: int | None = None
    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.parts, list | tuple) or not all(isinstance(p, str) for p in self.parts):
            raise ConfigError(f"parts {self.parts!r:.200}: a list of names expected")
        _whole("quota", self.quota)
        if self.cap is not None:
            _whole("cap", self.cap)
        object.__setattr__(self, "parts", tuple(self.parts))


@dataclass(frozen=True)
class MixtureSpec:
    """``pool`` utterances in an order of which the first ``size`` have exactly the quotas.

    ``split`` is the published split that candidates must be of.
    """

    seed: int
    size: int
    pool: int
    split: str
    shares: dict[str, Share]

    def __post_init__(self) -> None:
        for name in ("seed", "size", "pool"):
            _whole(name, getattr(self, name))
        quotas = {name: share.quota for name, share in self.shares.items()}
        if sum(quotas.values()) != self.size or min(quotas.values(), default=0) < 0:
            raise ConfigError(
                f"quotas {quotas} add up to {sum(quotas.values())}; the size, {self.size}, expected"
            )
        if self.pool < self.size or self.split == "test":
            raise ConfigError(
                f"a pool of {self.pool} of split '{self.split}' for {self.size} utterances: at least as "
                "many, and never of test, expected"
            )
        if bad := [
            name for name, share in self.shares.items() if share.cap is not None and share.cap < 1
        ]:
            raise ConfigError(f"{bad[0]}: cap {self.shares[bad[0]].cap}; at least 1 expected")

    def with_caps(self, caps: Mapping[str, int]) -> MixtureSpec:
        """Return a spec with other caps for some corpora."""
        if unknown := sorted(caps.keys() - self.shares.keys()):
            raise ConfigError(f"cap of '{unknown[0]}': one of {', '.join(self.shares)} expected")
        shares = {n: replace(s, cap=caps[n]) if n in caps else s for n, s in self.shares.items()}
        return replace(self, shares=shares)


def load_mixture(name: str, path: Path | None = None) -> MixtureSpec:
    """Read a mixture of ``mixtures.yaml``, ours or another file of that form."""
    if path is None:
        table: Any = yaml.safe_load((files(__package__) / "mixtures.yaml").read_text(encoding="utf-8"))
    else:
        table = load_yaml(path)
    if not isinstance(row := table.get(name), dict):
        there = ", ".join(map(str, table))
        raise ConfigError(f"{path or 'mixtures.yaml'}: no mixture '{name}'; there are: {there}")
    where = f"{path or 'mixtures.yaml'}: mixture '{name}'"
    given = row.get("shares")
    if not isinstance(given, dict) or not all(isinstance(share, dict) for share in given.values()):
        raise ConfigError(f"{where}: 'shares' is {given!r:.200}, 'CORPUS: {{quota: N}}' expected")
    try:
        shares = {str(corpus): Share(**share) for corpus, share in given.items()}
        return MixtureSpec(**row | {"shares": shares})
    except (TypeError, ConfigError) as error:
        raise ConfigError(f"{where}: {error}") from None


def apportion(quotas: Mapping[str, int], total: int) -> dict[str, int]:
    """Divide ``total`` in proportion to the quotas: largest remainders, the first of equal ones.

    >>> apportion({"a": 3, "b": 1, "c": 1}, 8)
    {'a': 5, 'b': 2, 'c': 1}
    """
    exact = {name: Fraction(quota * total, sum(quotas.values())) for name, quota in quotas.items()}
    counts = {name: int(share) for name, share in exact.items()}
    by_remainder = sorted(exact, key=lambda name: counts[name] - exact[name])  # stable
    for name in by_remainder[: total - sum(counts.values())]:
        counts[name] += 1
    return counts


def draw_mixture(
    candidates: Iterable[Candidate],
    spec: MixtureSpec,
    usable: Callable[[Candidate], bool] = lambda candidate: True,
) -> list[Candidate]:
    """Draw ``spec.pool`` utterances in an order whose prefixes are the smaller sets.

    The order of ``candidates`` does not matter.  Of a corpus its locales are taken in turn, so that
    many are heard, each up to the cap.  The pool has the quotas' proportions (`apportion`); within the
    first ``spec.size`` places, and behind them, the order is a shuffle that follows from the seed.

    Args:
        usable: asked once for each utterance that is about to be drawn; refused ones are passed over.

    Raises:
        DataError: too few candidates of a corpus; all such corpora are named.
    """
    ranked: dict[str, list[Candidate]] = {name: [] for name in spec.shares}
    for candidate in candidates:
        if candidate.corpus in ranked:
            ranked[candidate.corpus].append(candidate)
    wanted = apportion({name: share.quota for name, share in spec.shares.items()}, spec.pool)
    first, rest, short = [], [], []
    for name, share in spec.shares.items():
        drawn = _in_turn(ranked[name], spec.seed, wanted[name], share.cap, usable)
        if len(drawn) < wanted[name]:
            locales = len({candidate.locale for candidate in ranked[name]})
            cap = "no cap" if share.cap is None else f"at most {share.cap} of each"
            short.append(
                f"{name}: {wanted[name]} wanted, {len(drawn)} of {len(ranked[name])} candidates are "
                f"usable ({locales} locales, {cap})"
            )
        first += drawn[: share.quota]
        rest += drawn[share.quota :]
    if short:
        raise DataError(f"{'; '.join(short)}; prepare more {spec.split} data, or raise the cap")
    return [c for block in (first, rest) for c in sorted(block, key=lambda c: _place(spec.seed, c.utt))]


def _in_turn(
    candidates: list[Candidate], seed: int, num: int, cap: int | None, usable: Callable[[Candidate], bool]
) -> list[Candidate]:
    """Take one utterance of each locale, then a second of each, .. until there are ``num``."""
    locales: dict[str, list[Candidate]] = {}
    for candidate in sorted(candidates, key=lambda c: (_rank(seed, c.utt), c.utt.encode())):
        locales.setdefault(candidate.locale, []).append(candidate)
    queues = [iter(locales[name]) for name in sorted(locales, key=lambda name: _rank(seed, name))]
    drawn: list[Candidate] = []
    for _ in range(num if cap is None else cap):
        for queue in queues:
            if len(drawn) < num and (one := next(filter(usable, queue), None)):
                drawn.append(one)
    return drawn


def _place(seed: int, utt: str) -> bytes:
    """Rank within the mixture; another draw than `_rank`, which decided who is in it."""
    return hashlib.sha256(f"mixture {seed} {utt}".encode()).digest()
