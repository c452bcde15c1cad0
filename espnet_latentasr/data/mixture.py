"""Which utterances a training set is made of: knows ids and seeds only."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from espnet_latentasr.data.kaldi_dir import c_sorted
from espnet_latentasr.errors import DataError


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
