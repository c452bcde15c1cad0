"""One set of a published corpus as a Kaldi directory: knows ids, audio files and what is missing.

Ids are ``<prefix><speaker>-<id>`` with letters, digits and ``_`` behind the prefix, so that every set,
and every mixture of sets, sorts as Kaldi wants it.  An utterance whose speaker is not published is its
own speaker.  ``prepared.json`` is written last and says what the set is made of.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from espnet_latentasr.data.kaldi_dir import KaldiDir
from espnet_latentasr.data.layouts import Row
from espnet_latentasr.data.published import AUTO, SetName
from espnet_latentasr.errors import DataError
from espnet_latentasr.fileio import atomic_path, atomic_write_text

MARKER = "prepared.json"
SCORE_LANGUAGE = "score_lang"
CHUNK = 16  # utterances handed to a thread at once
NAMED = 10  # so many lost utterances are named in a message
PLAIN = re.compile(r"[0-9A-Za-z_]{1,40}")
MAGIC = {b"RIFF": ".wav", b"fLaC": ".flac", b"OggS": ".ogg", b"ID3": ".mp3"}
Job, Result = TypeVar("Job"), TypeVar("Result")


@dataclass
class Tables:
    """What is collected of a set, by utterance; ``lost`` has those without audio, by what is wrong."""

    wav: dict[str, str] = field(default_factory=dict)
    text: dict[str, str] = field(default_factory=dict)
    utt2spk: dict[str, str] = field(default_factory=dict)
    utt2lang: dict[str, str] = field(default_factory=dict)
    spans: dict[str, tuple[float, float] | None] = field(default_factory=dict)
    wordless: list[str] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Scribe:
    """How a set is written down: our transcript of a published one ("" leaves the utterance out), and
    the language of utterances whose row names none.
    """

    written: Callable[[str], str]
    language: str


def plain_id(published: str) -> str:
    """Return an id of letters, digits and ``_``: the published one if it is short, else its hash.

    >>> plain_id("1089-134686-0000"), plain_id("x" * 99)
    ('1089_134686_0000', 'd0621fdd5f0673d6')
    """
    name = re.sub(r"[^0-9A-Za-z_]", "_", published)
    return name if PLAIN.fullmatch(name) else hashlib.sha256(published.encode()).hexdigest()[:16]


def plain_speaker(published: str) -> str:
    """Return a speaker's id likewise, but never one name for two: what is not plain is hashed."""
    if PLAIN.fullmatch(published):
        return published
    return hashlib.sha256(published.encode()).hexdigest()[:16]


def utterance_ids(where: SetName, row: Row) -> tuple[str, str]:
    """Return utterance and speaker."""
    prefix = where.corpus.prefix
    name = plain_id(f"{where.part}_{row.id}" if where.corpus.part_in_id else row.id)
    if not row.speaker:
        return (utt := f"{prefix}-{name}"), utt
    speaker = f"{prefix}{plain_speaker(row.speaker)}"
    return f"{speaker}-{name}", speaker


def bounded_map(function: Callable[[Job], Result], jobs: Iterable[Job], threads: int) -> Iterator[Result]:
    """Map over threads, in order, with few jobs in memory however many there are."""
    waiting: deque[Future[list[Result]]] = deque()
    jobs = iter(jobs)
    with ThreadPoolExecutor(threads) as pool:
        try:
            # Several at once: handing over a job costs more than looking for a file.
            while chunk := list(islice(jobs, CHUNK)):
                waiting.append(pool.submit(lambda chunk: [function(job) for job in chunk], chunk))
                if len(waiting) > 2 * threads:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def collect(
    rows: Iterable[Row],
    where: SetName,
    folder: Path,
    scribe: Scribe,
    threads: int,
    limit: int | None = None,
) -> Tables:
    """Read all rows, write embedded audio below ``folder/audio``, look whether other audio is there.

    Args:
        limit: take the first so many with words.

    Raises:
        DataError: two rows with one id.
    """
    tables = Tables()

    def spoken() -> Iterator[tuple[Row, str]]:
        for row in rows:
            if text := " ".join(scribe.written(row.text).split()):
                yield row, text
            else:
                tables.wordless.append(f"{row.where}: '{row.text}'")

    def place(job: tuple[Row, str]) -> tuple[Row, str, str, str]:
        row, text = job
        utt, _ = utterance_ids(where, row)
        path, problem = _place_audio(row, folder / "audio", utt)
        return row, text, path, problem

    seen: dict[str, str] = {}
    placed = bounded_map(place, islice(spoken(), limit), threads)
    for row, text, path, problem in tqdm(placed, desc=folder.name, unit=" utterances", disable=None):
        utt, speaker = utterance_ids(where, row)
        if utt in seen:
            raise DataError(
                f"{row.where}: utterance '{utt}' (published as '{row.id}') is also at {seen[utt]}; every "
                "id once expected: remove one of the two rows"
            )
        seen[utt] = row.where
        if problem:
            tables.lost[utt] = f"{row.where}: {problem}"
            continue
        code = where.corpus.row_language(row.language) if row.language else scribe.language
        tables.wav[utt], tables.text[utt], tables.utt2spk[utt] = path, text, speaker
        tables.utt2lang[utt], tables.spans[utt] = code, row.span
    return tables


def _place_audio(row: Row, folder: Path, utt: str) -> tuple[str, str]:
    """Return an utterance's audio file and what is wrong with it, "" if nothing is."""
    if row.data is None:
        try:
            size = os.stat(row.audio).st_size
        except OSError:
            return "", f"no such file: {row.audio}"
        return (os.path.abspath(row.audio), "") if size else ("", f"empty file: {row.audio}")
    suffix = next((s for magic, s in MAGIC.items() if row.data.startswith(magic)), None)
    if suffix is None and row.data[:1] == b"\xff" and row.data[1:2] >= b"\xe0":
        suffix = ".mp3"  # a frame of MPEG audio without a tag before it
    if suffix is None:
        return "", f"embedded audio is neither WAV, FLAC, Ogg nor MP3 ({row.data[:4]!r}...)"
    path = folder / f"{utt}{suffix}"
    # A file that is there is whole: what an interrupted run has written is not written again.
    if not path.is_file() or path.read_bytes() != row.data:
        with atomic_path(path) as temporary:
            temporary.write_bytes(row.data)
    return os.path.abspath(path), ""


def check_complete(where: SetName, source: str, tables: Tables, missing_files: list[str]) -> None:
    """Name and count what a half-downloaded copy lacks; of a test set, and of everything, refuse it.

    Raises:
        DataError: see above.
    """
    problems = [f"file {name}" for name in missing_files] + list(tables.lost.values())
    for problem in problems[:NAMED]:
        logging.warning("%s: missing: %s", where, problem)
    if tables.wordless:
        named = " | ".join(tables.wordless[:NAMED])
        logging.info("%s: %d rows without words left out: %s", where, len(tables.wordless), named)
    more = f" | and {len(problems) - NAMED} more" if len(problems) > NAMED else ""
    listed = " | ".join(problems[:NAMED]) + more
    total = len(tables.wav) + len(tables.lost)
    if not tables.wav:
        raise DataError(f"{source}: {where}: none of {total} utterances is usable: {listed}")
    if problems and where.split == "test":
        raise DataError(
            f"{source}: {where}: the copy is not whole: {len(tables.lost)} of {total} utterances and "
            f"{len(missing_files)} files are missing, and a test set never loses one: {listed}"
        )


def save_set(where: SetName, folder: Path, tables: Tables, marker: dict[str, Any]) -> dict[str, Any]:
    """Write the Kaldi directory, the language it is scored as and, last, ``prepared.json``."""
    (folder / MARKER).unlink(missing_ok=True)
    wav, segments = tables.wav, None
    if any(tables.spans.values()):
        recordings = {path: plain_id(Path(path).stem) for path in dict.fromkeys(wav.values())}
        if len(set(recordings.values())) < len(recordings):  # one name in two folders
            recordings = {path: hashlib.sha256(path.encode()).hexdigest()[:16] for path in recordings}
        segments = {utt: _segment(recordings[wav[utt]], span) for utt, span in tables.spans.items()}
        wav = {recording: path for path, recording in recordings.items()}
    data = KaldiDir(folder, wav, tables.text, tables.utt2spk, tables.utt2lang, segments).save(folder)
    score = where.corpus.score_language(where.part)
    atomic_write_text(folder / SCORE_LANGUAGE, f"{score}\n")
    speakers = {spk for utt, spk in tables.utt2spk.items() if utt != spk}
    marker = marker | {
        "utterances": len(data.utts),
        "speakers": len(speakers),
        "speaker_unknown": sum(utt == spk for utt, spk in tables.utt2spk.items()),
        "language_unknown": sum(code == AUTO for code in tables.utt2lang.values()),
        "without_words": tables.wordless,
        "missing": tables.lost,
    }
    atomic_write_text(folder / MARKER, json.dumps(marker, indent=1, ensure_ascii=False) + "\n")
    return marker


def _segment(recording: str, span: tuple[float, float] | None) -> str:
    return f"{recording} {span[0]:.3f} {span[1]:.3f}" if span else f"{recording} 0 -1"


def finished(folder: Path, plan: str) -> dict[str, Any] | None:
    """Return the marker of a set that is made by this plan and lacks nothing, else None.

    Raises:
        DataError: a Kaldi directory of another origin is there.
    """
    if not (folder / MARKER).exists():
        if (folder / "wav.scp").exists():
            raise DataError(
                f"{folder}: there already, and not made from a published corpus; move it away, or give "
                "another --out"
            )
        return None
    marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    if marker["plan_sha256"] != plan or marker["missing"] or not (folder / "wav.scp").exists():
        return None
    return marker
