"""Scoring of one or several systems, from texts to folders; knows no Kaldi file and no process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.stats.bootstrap import LEAST_REPLICATES
from espnet_latentasr.text.error_rate import check_same_ids, score
from espnet_latentasr.text.languages import Language
from espnet_latentasr.text.normalize import WORTH_JOBS, Normalizer, prepare
from espnet_latentasr.text.score_dir import score_dir_name, write_score_dir
from espnet_latentasr.text.systems import FILES, Bootstrap, Scored, compare_systems, write_comparison

LOG = logging.getLogger(__name__)
NO_SPEAKERS = "none given: every utterance is its own"


class System(NamedTuple):
    """One system's hypotheses by utterance id, what to call it and the file they come from."""

    name: str
    source: Path
    texts: Mapping[str, str]


def score_systems(
    refs: tuple[Path, Mapping[str, str]],
    systems: Sequence[System],
    language: Language,
    normalizer: Normalizer,
    out: Path,
    *,
    units: Sequence[str] | None = None,
    utt2spk: Mapping[str, str] | None = None,
    resample: Literal["utterances", "speakers"] = "utterances",
    replicates: int = 10_000,
    seed: int = 0,
    run: Callable = map,
) -> None:
    """Write the score folders of each system and, of several, their comparison with the first.

    Args:
        refs: the references' file and texts.
        units: error rates to count; None: those of the language.
        utt2spk: None: every utterance is its own speaker.
        resample, replicates, seed: of the paired bootstrap.
        run: a `map` over jobs; many texts are normalised through it.

    Raises:
        DataError: other utterances in a hypothesis file than in the references, no speaker of an
            utterance, markup in a reference.  ConfigError: speakers to be drawn, but none given.
    """
    source, ref_texts = refs
    if resample == "speakers" and utt2spk is None:
        raise ConfigError("--resample speakers needs --utt2spk, which names them")
    if replicates < LEAST_REPLICATES:
        raise ConfigError(f"--replicates {replicates}: at least {LEAST_REPLICATES} expected")
    for system in systems:
        with _naming(source, system):
            check_same_ids(ref_texts, system.texts)
    for name in FILES:
        (out / name).unlink(missing_ok=True)
    extra = {"language": language.code}
    if utt2spk is None:
        LOG.info("no utt2spk: every utterance is its own speaker")
        extra["speakers"] = NO_SPEAKERS
    sides = [ref_texts, *(system.texts for system in systems)]
    normalizer = prepare(normalizer, (text for side in sides for text in side.values()), run)
    speakers = {utt: utt for utt in ref_texts} if utt2spk is None else utt2spk
    identity = replace(normalizer, function=str)  # by its name only: texts are normalised already
    done_refs = {utt: normalizer(text) for utt, text in ref_texts.items()}
    jobs = [
        _Job(
            source,
            system._replace(texts={utt: normalizer(text) for utt, text in system.texts.items()}),
            done_refs, identity, language.unit(unit), speakers, extra,
            (out / system.name if len(systems) > 1 else out) / score_dir_name(unit),
        )
        for unit in units or language.units
        for system in systems
    ]  # fmt: skip
    # One call each: a map over processes starts its jobs at once, but gives several to a process.
    run = run if len(ref_texts) >= WORTH_JOBS else map
    pending = [run(_score, [job]) for job in jobs]
    scored: dict[str, dict[str, Scored]] = {}
    for job, [(found, headline)] in zip(jobs, pending, strict=True):
        LOG.info("%s: %s", job.directory, headline)
        scored.setdefault(job.unit, {})[job.system.name] = found
    if len(systems) > 1:
        drawn = None if resample == "utterances" else speakers
        bootstrap = Bootstrap(drawn, replicates, seed)
        with _naming(source, systems[0]):
            rows = compare_systems(list(scored.values()), bootstrap)
        write_comparison(out, rows, bootstrap)
        LOG.info("%s: %d systems against %s", out / FILES[1], len(systems) - 1, systems[0].name)


class _Job(NamedTuple):
    """One system scored in one unit; texts are normalised, by what ``normalizer`` names."""

    source: Path
    system: System
    refs: Mapping[str, str]
    normalizer: Normalizer
    unit: str
    speakers: Mapping[str, str]
    extra: Mapping[str, str]
    directory: Path


def _score(job: _Job) -> tuple[Scored, str]:
    with _naming(job.source, job.system):
        result = score(job.refs, job.system.texts, job.unit, job.normalizer)
        write_score_dir(job.directory, result, job.speakers, **job.extra)
    return Scored.of(result), result.headline()


@contextmanager
def _naming(source: Path, system: System) -> Iterator[None]:
    try:
        yield
    except DataError as error:
        raise DataError(f"{source}, {system.source}: {error}") from error


def system_names(paths: Sequence[Path]) -> list[str]:
    """Name each hypothesis file by the shortest end of its path that tells it from the others.

    >>> system_names([Path("exp/base/test/text"), Path("exp/new/test/text")])
    ['base', 'new']

    Raises:
        DataError: the same file twice.
    """
    parts = [path.absolute().parts for path in paths]
    if len(set(parts)) < len(parts):
        twice = next(path for path, own in zip(paths, parts, strict=True) if parts.count(own) > 1)
        raise DataError(f"{twice}: given twice; each hypothesis file once expected")
    while len(parts) > 1 and len({own[-1] for own in parts}) == 1:
        parts = [own[:-1] for own in parts]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["_".join(own[-length:]) for own in parts]
        if len(set(names)) == len(names):
            break
    short = [name.removesuffix(".txt") for name in names]
    return short if len(set(short)) == len(short) else names
