"""Stage 3: knows how a data directory becomes 16 kHz mono PCM16 below ``dump/raw``; no model.

A bad utterance of a training set is skipped by name and counted; a test set never loses one, so
there it is an error, unless skipping was asked for.  Transcripts are written in NFC.  A journal
keeps finished utterances: a rerun after a kill does the rest only.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from espnet_latentasr.data import audio, kaldi_dir
from espnet_latentasr.data.audio import AudioProblem
from espnet_latentasr.data.journal import MapFunction, file_identity, run_jobs
from espnet_latentasr.data.kaldi_dir import AudioSource, KaldiDir
from espnet_latentasr.data.skipped import read_skipped, write_skipped
from espnet_latentasr.data.transcripts import folded, mend_transcript
from espnet_latentasr.errors import DataError
from espnet_latentasr.fileio import atomic_write_text

JOURNAL = ".format_journal.jsonl"
KINDS = ("train", "valid", "test")
NAMED = 5  # so many ids are named in a report


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
        identity = [vars(self), audio.SAMPLE_RATE, file_identity(self.source.path)]
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
    """Counts of one run of stage 3; ``problems`` are the skipped utterances.

    ``mended``: ids whose transcript was not one line in NFC.  ``alike``: pairs of ids that differ in
    case only.  ``earlier``: ids that the noisy copy which was read had skipped already.
    """

    entries: int
    reused: int
    kept_path: int
    clipped: int
    problems: list[AudioProblem]
    mended: list[str] = field(default_factory=list)
    alike: list[tuple[str, str]] = field(default_factory=list)
    earlier: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        reasons = count_reasons((p.reason for p in self.problems), audio.REMEDIES)
        return (
            f"{self.entries} utterances in, {self.entries - len(self.problems)} out "
            f"({self.reused} reused, {self.kept_path} with their own file, {self.clipped} "
            f"saturated), skipped {reasons}"
            + _named("skipped before", self.earlier)
            + _named("transcripts brought to one line in NFC", self.mended)
            + _named("pairs of ids alike but for case", ["'/'".join(pair) for pair in self.alike])
        )


def format_data_dir(
    source: str | Path,
    output: str | Path,
    kind: str,
    *,
    channel: int | str | None = None,
    limits: tuple[float, float] = (audio.MIN_SECONDS, audio.MAX_SECONDS),
    map_fn: MapFunction = map,
    skip_unusable: bool = False,
) -> FormatReport:
    """Write ``output`` as a Kaldi directory of 16 kHz mono PCM16 files, one per utterance.

    A whole file that already is such a WAV or FLAC keeps its path; others go to ``output/wavs``.
    ``kind`` is train, valid or test; ``limits`` are seconds; ``map_fn`` may run in parallel;
    ``skip_unusable`` lets a test set lose its bad utterances, to ``output/skipped.tsv`` and the report.

    Raises:
        DataError: an invalid directory, ids that the file system cannot tell apart, or, after all
            utterances were tried, a list of the bad utterances of a test set.
    """
    data, output = load_for_kind(source, output, kind), Path(output)
    text, mended = _mended_texts(data, kind)
    alike = ids_alike(data.utts, output)
    jobs = [
        FormatJob(utt, data.source(utt), str(output / "wavs" / f"{utt}.wav"), channel, limits)
        for utt in data.utts
    ]
    refuse_overwriting((job.source.path, job.target) for job in jobs)
    (output / "wav.scp").unlink(missing_ok=True)
    results, reused = run_jobs(format_utterance, jobs, output / JOURNAL, FormatResult, map_fn)
    problems = [result.problem for result in results if result.problem]
    good = {result.utt_id: result for result in results if not result.problem}
    keep_all = kind == "test" and not skip_unusable
    if problems and (keep_all or not good):
        rule = "a test set never loses one" if keep_all else "none is left"
        raise DataError(
            f"{source}: {len(problems)} of {len(jobs)} utterances are unusable, and {rule}; the "
            "finished ones are kept: repair these and rerun"
            f"{', or skip them on purpose (--skip_unusable true)' if keep_all else ''}: "
            + " | ".join(map(str, problems))
        )
    earlier = read_skipped(Path(source) / "skipped.tsv")
    rows = [*earlier, *((p.utt_id, p.reason, p.detail) for p in problems)]
    write_skipped(output / "skipped.tsv", rows)
    lengths = {utt: str(result.num_samples) for utt, result in good.items()}
    kaldi_dir.write_kaldi_table(output / "utt2num_samples", lengths)
    atomic_write_text(output / "feats_type", "raw\n")
    wav = {utt: result.path for utt, result in good.items()}
    replace(replace(data, text=text).subset(good), wav=wav, segments=None).save(output)
    kept = sum(path == data.source(utt).path for utt, path in wav.items())
    clipped = sum(result.clipped > 0 for result in results)
    lost = [utt for utt, *_ in earlier]
    return FormatReport(len(jobs), reused, kept, clipped, problems, mended, alike, lost)


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
        samples = audio.read_audio(source, job.utt_id, channel=job.channel, span=span, limits=job.limits)
    except audio.AudioError as error:
        return FormatResult(job.utt_id, mark, problem=error.problem)
    if span == (0.0, None) and audio.is_final_format(source):
        return FormatResult(job.utt_id, mark, source, len(samples))
    clipped = audio.write_wav(job.target, samples)
    return FormatResult(job.utt_id, mark, job.target, len(samples), clipped)


def _mended_texts(data: KaldiDir, kind: str) -> tuple[dict[str, str], list[str]]:
    """Return all transcripts in NFC, and the ids of those that were not."""
    text = {}
    for utt, was in data.text.items():
        text[utt] = mend_transcript(was)
        if not text[utt] and kind == "test":
            raise DataError(
                f"{data.path}/text: utterance '{utt}': only control characters ({was!r}), a "
                "transcript expected; write it"
            )
    return text, [utt for utt in data.utts if text[utt] != data.text[utt]]


def ids_alike(utts: Iterable[str], output: Path) -> list[tuple[str, str]]:
    """Find ids that differ in case only; refuse them where one's audio would replace the other's."""
    seen: dict[str, str] = {}
    alike = [(seen[key], utt) for utt in utts if (key := folded(utt)) in seen or seen.update({key: utt})]
    if alike and _ignores_case(output):
        first, second = alike[0]
        raise DataError(
            f"{output}: ids '{first}' and '{second}' ({len(alike)} such pairs) differ in case only, and "
            "this file system would keep one file for both; rename one in every table"
        )
    return alike


def _ignores_case(folder: Path) -> bool:
    """Try whether a folder's file system takes ``x`` and ``X`` for one file."""
    folder.mkdir(parents=True, exist_ok=True)
    trial = folder / f".case_{uuid.uuid4().hex}"
    trial.touch()
    try:
        return trial.with_name(trial.name.upper()).exists()
    finally:
        trial.unlink()


def _named(what: str, ids: list[str]) -> str:
    """Write a count with its first names, nothing for none: ``, 2 ids: 'a', 'b'``."""
    more = ", ..." * (len(ids) > NAMED)
    return f", {len(ids)} {what}: '" + "', '".join(ids[:NAMED]) + f"'{more}" if ids else ""


def refuse_overwriting(pairs: Iterable[tuple[str, str]]) -> None:
    """Raise `DataError` if an output (second of each pair) is its own source (first)."""
    for source, target in pairs:
        if os.path.exists(source) and os.path.exists(target) and os.path.samefile(source, target):
            raise DataError(f"{target}: output would overwrite its source; name another directory")


def count_reasons(reasons: Iterable[str], known: Iterable[str]) -> str:
    """Write how often each known reason occurs, zeros included: ``empty=0 silent=2``."""
    counts = Counter(reasons)
    return " ".join(f"{reason}={counts[reason]}" for reason in known)
