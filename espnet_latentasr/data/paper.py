"""All data of the paper from a folder of corpora: knows what is made, drawn and compared in which order.

<out>/<corpus>_<part>_<split>   the published sets: test sets, and what the pools are drawn from
<out>/paper_pool                811 utterances, in an order whose prefixes are the activation sets
<out>/paper_dev                 chooses checkpoint and threshold
<out>/paper_overlap             proof that neither shares anything with a test set, nor with the other
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from espnet_latentasr.data.activation import make_pool
from espnet_latentasr.data.corpora import PREPARE, THREADS
from espnet_latentasr.data.kaldi_dir import KaldiDir
from espnet_latentasr.data.mixture import MixtureSpec, load_mixture
from espnet_latentasr.data.overlap import Checksums, Overlap, find_overlap, write_overlap
from espnet_latentasr.data.published import SetName, get_published, parse_set_name
from espnet_latentasr.errors import ConfigError, DataError

POOLS = {"paper_pool": "paper", "paper_dev": "paper_dev"}  # folder -> mixture
HUB_LIMIT = 500  # utterances of a part that are read from the hub to draw from
TRIES = 5


def prepare_paper(
    out: Path,
    src: Path | None,
    test_sets: Sequence[str],
    *,
    mixtures: Path | None = None,
    caps: Mapping[str, int] | None = None,
    revisions: Mapping[str, str] | None = None,
    languages: str = "named",
    hub_limit: int = HUB_LIMIT,
    downloads: Path = Path("downloads"),
    threads: int = THREADS,
    map_fn: Callable[..., Iterable[Any]] = map,
) -> dict[str, int]:
    """Make everything that the module's docstring lists; what is finished is left as it is.

    Args:
        src: holds a local copy of each corpus under its name (``src/fleurs``); one that is not there is
            read from the hub, of which only the first ``hub_limit`` utterances of a part are drawn from.
        test_sets: ``<corpus>_<part>_test``, or ``.._test_500`` for its first 500 utterances.
        mixtures: another file of the form of ``mixtures.yaml``; caps: corpus -> cap instead of its.
        revisions: corpus -> commit of the hub.
        languages: which are drawn, a key of `activation.LANGUAGES`; "all" as the paper.
        map_fn: a `map` that reads audio; may run in parallel.

    Returns:
        Utterances of each set.

    Raises:
        DataError: incomplete test sets, too little to draw from, or sets that share something still.
        ConfigError: a test set in a language without a code, which nothing could be told or scored by.
    """
    named = [_parse_test(name) for name in test_sets]
    common = {"downloads": downloads, "threads": threads}
    local = {name: src / name for name in PREPARE if src and (src / name).is_dir()}
    revisions = revisions or {}
    if unknown := sorted(revisions.keys() - PREPARE.keys()):
        raise ConfigError(f"revision of '{unknown[0]}': one of {', '.join(PREPARE)} expected")
    tests: dict[str, KaldiDir] = {}
    for name, (where, limit) in zip(test_sets, named, strict=True):
        PREPARE[where.corpus.name](
            out, local.get(where.corpus.name), parts=[where.part], splits=["test"], limit=limit,
            revision=revisions.get(where.corpus.name), **common,
        )  # fmt: skip
        tests[name] = KaldiDir.load(out / name)
    checksums: Checksums = {}
    for folder, mixture in POOLS.items():
        spec = load_mixture(mixture, mixtures)
        spec = spec.with_caps({n: cap for n, cap in (caps or {}).items() if n in spec.shares})
        sources = []
        for name, share in spec.shares.items():
            reports = PREPARE[name](
                out, local.get(name), parts=share.parts, splits=[spec.split],
                limit=None if name in local else hub_limit, revision=revisions.get(name), **common,
            )  # fmt: skip
            sources += [out / name for name in reports]
        compare = partial(find_overlap, tests=tests, map_fn=map_fn, known=checksums)
        _draw(out / folder, spec, sources, languages, out / "paper_overlap" / folder, compare)
        # What the next pool, and every later one, must not share either.
        tests[folder] = KaldiDir.load(out / folder)
    return {name: len(data.utts) for name, data in tests.items()}


def _parse_test(name: str) -> tuple[SetName, int | None]:
    """Read the name of a test set and, behind it, how many of its first utterances are meant.

    Raises:
        DataError: no such name.  ConfigError: a part whose language has no code.
    """
    match = re.fullmatch(r"(.+?_test)(?:_(\d+))?", name)
    if match is None:
        raise DataError(f"set '{name}': <corpus>_<part>_test, or .._test_<number>, expected")
    where = parse_set_name(match[1])
    where.corpus.language(where.part, "error")
    return where, int(match[2]) if match[2] else None


def _draw(
    folder: Path,
    spec: MixtureSpec,
    sources: Sequence[Path],
    languages: str,
    report: Path,
    compare: Callable[..., Overlap],
) -> None:
    """Draw a pool, and draw again without what its recordings share, until nothing is shared.

    Args:
        compare: `find_overlap` with the test sets.
    """
    candidates = [KaldiDir.load(source) for source in sources]
    exclude = compare(candidates, audio=False).excluded()
    for _ in range(TRIES):
        make_pool(sources, folder, spec, exclude=exclude, languages=languages)
        found = compare([KaldiDir.load(folder)])
        write_overlap(found, report)
        if not found.excluded():
            return
        logging.warning("%s: %d utterances drawn again", folder, len(found.excluded()))
        exclude |= found.excluded()
    raise DataError(
        f"{report}/overlap.md: after {TRIES} draws {folder} still shares {len(found.excluded())} "
        "utterances with a test set; look at the recordings it names"
    )


def test_set_names(corpus: str, parts: Iterable[str]) -> list[str]:
    """Return the names of test sets of parts or tiers: ``fleurs`` and ``core12`` give twelve."""
    return [f"{corpus}_{part}_test" for part in get_published(corpus).expand(parts)]
