"""Stage 3: knows how a data directory becomes 16 kHz mono PCM16 below ``dump/raw``; no model.

A bad utterance of a training set is skipped by name and counted; a test set never loses one, so
there it is an error.  A journal keeps finished utterances: a rerun after a kill does the rest only.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from espnet_latentasr.data import audio, kaldi_dir
from espnet_latentasr.data.audio import AudioProblem
from espnet_latentasr.data.kaldi_dir import AudioSource, KaldiDir
from espnet_latentasr.errors import DataError
from espnet_latentasr.fileio import atomic_write_text

JOURNAL = ".format_journal.jsonl"
KINDS = ("train", "valid", "test")
MapFunction = Callable[..., Iterable[Any]]


@dataclass(frozen=True)
class FormatJob:
    """One utterance to format; the fields are all that its result depends on."""

    utt_id: str
    source: AudioSource
    target: str
    channel: int | str | None
    limits: tuple[float, float]

    def fingerprint(self) -> str:
        """Hash the job and the identity (size, time of change) of its source file."""
        identity = [asdict(self), audio.SAMPLE_RATE, file_identity(self.source.path)]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()


@dataclass(frozen=True)
class FormatResult:
    """Where an utterance's audio is now, its length, saturated samples, or what is wrong."""

    utt_id: str
    fingerprint: str
    path: str = ""
    num_samples: int = 0
    clipped: int = 0
    problem: AudioProblem | None = None


@dataclass(frozen=True)
class FormatReport:
    """Counts of one run of stage 3; ``problems`` are the skipped utterances."""

    entries: int
    reused: int
    kept_path: int
    clipped: int
    problems: list[AudioProblem]

    def __str__(self) -> str:
        reasons = count_reasons((p.reason for p in self.problems), audio.REMEDIES)
        return (
            f"{self.entries} utterances in, {self.entries - len(self.problems)} out "
            f"({self.reused} reused, {self.kept_path} with their own file, {self.clipped} "
            f"saturated), skipped {reasons}"
        )


def format_data_dir(
    source: str | Path,
    output: str | Path,
    kind: str,
    *,
    channel: int | str | None = None,
    limits: tuple[float, float] = (audio.MIN_SECONDS, audio.MAX_SECONDS),
    map_fn: MapFunction = map,
) -> FormatReport:
    """Write ``output`` as a Kaldi directory of 16 kHz mono PCM16 files, one per utterance.

    A whole file that already is such a WAV or FLAC keeps its path; others go to ``output/wavs``.
    ``kind`` is train, valid or test; ``limits`` are seconds; ``map_fn`` may run in parallel.

    Raises:
        DataError: an invalid directory, or, after all utterances were tried, a list of the bad
            utterances of a test set.
    """
    data, output = load_for_kind(source, output, kind), Path(output)
    jobs = [
        FormatJob(utt, data.source(utt), str(output / "wavs" / f"{utt}.wav"), channel, limits)
        for utt in data.utts
    ]
    refuse_overwriting((job.source.path, job.target) for job in jobs)
    (output / "wav.scp").unlink(missing_ok=True)
    results, reused = _run_jobs(jobs, output / JOURNAL, map_fn)
    problems = [result.problem for result in results if result.problem]
    good = {result.utt_id: result for result in results if not result.problem}
    if problems and (kind == "test" or not good):
        rule = "a test set never loses one" if kind == "test" else "none is left"
        raise DataError(
            f"{source}: {len(problems)} of {len(jobs)} utterances are unusable, and {rule}; the "
            "finished ones are kept: repair these and rerun: " + " | ".join(map(str, problems))
        )
    write_skipped(output / "skipped.tsv", ((p.utt_id, p.reason, p.detail) for p in problems))
    lengths = {utt: str(result.num_samples) for utt, result in good.items()}
    kaldi_dir.write_kaldi_table(output / "utt2num_samples", lengths)
    atomic_write_text(output / "feats_type", "raw\n")
    wav = {utt: result.path for utt, result in good.items()}
    replace(data.subset(good), wav=wav, segments=None).save(output)
    kept = sum(path == data.source(utt).path for utt, path in wav.items())
    return FormatReport(len(jobs), reused, kept, sum(r.clipped > 0 for r in results), problems)


def load_for_kind(source: str | Path, output: str | Path, kind: str) -> KaldiDir:
    """Load a stage's input; only a training set may have empty transcripts, to be filtered."""
    if kind not in KINDS:
        raise DataError(f"kind '{kind}': one of {', '.join(KINDS)} expected")
    kaldi_dir.check_other_dir(Path(source), Path(output))
    return KaldiDir.load(source, allow_empty_text=kind != "test")


def format_utterance(job: FormatJob) -> FormatResult:
    """Read, check and if needed write one utterance; a bad one is a result, not an exception."""
    source, span, mark = job.source.path, job.source[1:], job.fingerprint()
    try:
        samples = audio.read_audio(
            source, job.utt_id, channel=job.channel, span=span, limits=job.limits
        )
    except audio.AudioError as error:
        return FormatResult(job.utt_id, mark, problem=error.problem)
    if span == (0.0, None) and audio.is_final_format(source):
        return FormatResult(job.utt_id, mark, source, len(samples))
    clipped = audio.write_wav(job.target, samples)
    return FormatResult(job.utt_id, mark, job.target, len(samples), clipped)


def _run_jobs(
    jobs: list[FormatJob], journal: Path, map_fn: MapFunction
) -> tuple[list[FormatResult], int]:
    """Format what the journal does not hold yet; return results in order and the reused count."""
    old = {result.utt_id: result for result in _journal_results(journal)}
    done = {job.utt_id: old[job.utt_id] for job in jobs if _is_done(job, old.get(job.utt_id))}
    todo = [job for job in jobs if job.utt_id not in done]
    # Rewritten before it is appended to, since a kill may have left half a row at its end.
    atomic_write_text(journal, "".join(map(_journal_row, done.values())))
    with open(journal, "a", encoding="utf-8") as file:
        for result in map_fn(format_utterance, todo):
            done[result.utt_id] = result
            print(_journal_row(result), end="", file=file, flush=True)
    results = [done[job.utt_id] for job in jobs]
    atomic_write_text(journal, "".join(map(_journal_row, results)))
    return results, len(jobs) - len(todo)


def _is_done(job: FormatJob, old: FormatResult | None) -> bool:
    return old is not None and old.fingerprint == job.fingerprint() and Path(old.path).is_file()


def _journal_row(result: FormatResult) -> str:
    """Write a finished utterance as a line of JSON; a bad one is none, so that it is retried."""
    return "" if result.problem else json.dumps(asdict(result)) + "\n"


def _journal_results(journal: Path) -> Iterator[FormatResult]:
    """Read finished utterances; a row cut by a kill is not one."""
    for line in journal.read_text(encoding="utf-8").split("\n") if journal.exists() else ():
        try:
            yield FormatResult(**json.loads(line))
        except json.JSONDecodeError:
            continue


def file_identity(path: str) -> list[int]:
    """Return size and time of change (ns) of a file, [] if there is none."""
    return [os.stat(path).st_size, os.stat(path).st_mtime_ns] if os.path.isfile(path) else []


def refuse_overwriting(pairs: Iterable[tuple[str, str]]) -> None:
    """Raise `DataError` if an output (second of each pair) is its own source (first)."""
    for source, target in pairs:
        if os.path.exists(source) and os.path.exists(target) and os.path.samefile(source, target):
            raise DataError(f"{target}: output would overwrite its source; name another directory")


def count_reasons(reasons: Iterable[str], known: Iterable[str]) -> str:
    """Write how often each known reason occurs, zeros included: ``empty=0 silent=2``."""
    counts = Counter(reasons)
    return " ".join(f"{reason}={counts[reason]}" for reason in known)


def write_skipped(path: Path, rows: Iterable[tuple[str, str, str]]) -> None:
    """Write ``utt reason detail`` rows, tab separated below a header, whole or not at all."""
    lines = ["\t".join(row) + "\n" for row in (("utt", "reason", "detail"), *rows)]
    atomic_write_text(path, "".join(lines))
