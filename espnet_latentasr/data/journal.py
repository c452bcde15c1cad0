"""Work that a killed command need not do again: knows finished results by id, not what they are.

A journal holds one finished result a line; a bad utterance is no line, so that it is tried again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

from espnet_latentasr.data.audio import AudioProblem
from espnet_latentasr.data.sound_files import file_of
from espnet_latentasr.fileio import atomic_write_text, naming

MapFunction = Callable[..., Iterable[Any]]


class Job(Protocol):
    """Work on one utterance; ``fingerprint`` hashes all that its result depends on."""

    utt_id: str

    def fingerprint(self) -> str: ...


class Result(Protocol):
    """A dataclass of JSON values: what a job gave, the file it is in, or what is wrong."""

    utt_id: str
    fingerprint: str
    path: str
    problem: AudioProblem | None


R = TypeVar("R", bound=Result)


def run_jobs(
    function: Callable[[Any], R],
    jobs: list[Any],
    journal: Path,
    result_type: type[R],
    map_fn: MapFunction,
) -> tuple[list[R], int]:
    """Do the jobs that the journal does not hold yet; return results in order and the reused count."""
    old = {result.utt_id: result for result in finished(journal, result_type)}
    done = {job.utt_id: old[job.utt_id] for job in jobs if _is_done(job, old.get(job.utt_id))}
    todo = [job for job in jobs if job.utt_id not in done]
    # Rewritten before it is appended to, since a kill may have left half a row at its end.
    atomic_write_text(journal, "".join(map(_row, done.values())))
    with naming(journal), open(journal, "a", encoding="utf-8") as file:
        for result in map_fn(function, todo):
            done[result.utt_id] = result
            print(_row(result), end="", file=file, flush=True)
    results = [done[job.utt_id] for job in jobs]
    atomic_write_text(journal, "".join(map(_row, results)))
    return results, len(jobs) - len(todo)


def _is_done(job: Job, old: Result | None) -> bool:
    return old is not None and old.fingerprint == job.fingerprint() and os.path.isfile(old.path)


def _row(result: Result) -> str:
    return "" if result.problem else json.dumps(vars(result)) + "\n"


def finished(journal: Path, result_type: type[R]) -> Iterator[R]:
    """Read finished results; a row cut by a kill, or of an older version, is not one."""
    for line in journal.read_bytes().split(b"\n") if journal.exists() else ():
        try:
            result = result_type(**json.loads(line))
        except (ValueError, TypeError, RecursionError):
            continue
        if all(isinstance(value, str) for value in (result.utt_id, result.fingerprint, result.path)):
            yield result


def file_identity(path: str) -> list[int]:
    """Return size and time of change (ns) of a file or an entry's archive, [] if there is none."""
    path = file_of(path)
    return [os.stat(path).st_size, os.stat(path).st_mtime_ns] if os.path.isfile(path) else []
