"""Many audio files through a `Speech2Text`: finding, batching, resuming; a bad file costs only itself.

A finished file is one line of the journal ``<output>.partial`` at once, so a killed run goes on behind
it.  The output is written whole at the end; the journal stays where files were unusable, so that a
rerun tries these and no others.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from espnet_latentasr.config import DecodeConfig, config_hash, decode_hash
from espnet_latentasr.data.audio import SAMPLE_RATE, read_audio
from espnet_latentasr.data.format import file_identity
from espnet_latentasr.data.kaldi_dir import c_sorted
from espnet_latentasr.data.pauses import split_at_pauses
from espnet_latentasr.decode.batching import batches_by_length, check_lengths
from espnet_latentasr.decode.long_audio import join_rows
from espnet_latentasr.decode.recognition import Recognition
from espnet_latentasr.decode.speech2text import Speech2Text
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.fileio import atomic_write_text
from espnet_latentasr.text.languages import get_language

SUFFIXES = (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff", ".au", ".sph")
WINDOW = 8  # so many batches are read at a time, to put clips of similar length together


@dataclass(frozen=True)
class Request:
    """How to transcribe.

    channel: None (files must be mono), a number from 0, or ``mix``.
    long_audio: ``split``: files longer than the recogniser hears at once are cut at pauses and their
        texts joined; ``refuse``: they are unusable.
    """

    config: DecodeConfig
    language: str
    nbest: int = 1
    channel: int | str | None = None
    long_audio: str = "split"


@dataclass
class Summary:
    """What became of the files, by name: rows of the transcribed, reasons of the others."""

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    reused: int = 0

    def __str__(self) -> str:
        return (
            f"{len(self.rows) + len(self.problems)} files: {len(self.rows)} transcribed ({self.reused} "
            f"of them by an earlier run), {len(self.problems)} unusable"
        )


def load_asr(
    model: str | None, revision: str | None, experiment: Mapping[str, str | None], **options: Any
) -> Speech2Text:
    """A shared adapter, or the files of an experiment (``backbone_dir`` and so on; None: not named).

    Raises:
        ConfigError: both or neither; what loading refuses.
    """
    named = {key: value for key, value in experiment.items() if value is not None}
    if model is None:
        if "backbone_dir" not in named:
            raise ConfigError("--model, or --backbone_dir of an experiment: needed, to know what to run")
        if revision is not None:
            raise ConfigError("--revision: of a hub id (--model), not of an experiment")
        return Speech2Text(**named, **options)
    if named:
        raise ConfigError(f"--model and --{min(named)}: a shared adapter or an experiment, not both")
    return Speech2Text.from_pretrained(model, revision, **options)


def request_of(
    asr: Speech2Text,
    theta: float | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    nbest: int = 1,
    channel: int | str | None = None,
    long_audio: str = "split",
) -> Request:
    """What is asked of a loaded recogniser, checked before the first file is read."""
    config = asr.rule(theta, steps)
    if batch_size is not None:
        config = dataclasses.replace(config, batch_size=batch_size)
    return Request(config, asr.languages(None, 1)[0], nbest, channel, long_audio)


def find_audio(places: Sequence[str | Path]) -> list[str]:
    """Files to transcribe: those named, whatever they are called, and the audio files below folders.

    Each once, folders' files in C-locale order.  Links to folders are not followed.

    Raises:
        DataError: a folder without any audio file.
    """
    found: dict[str, None] = {}
    for place in map(Path, places):
        if not place.is_dir():
            found[str(place)] = None
            continue
        inside = [str(p) for p in place.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file()]
        if not inside:
            raise DataError(f"{place}: no audio file below it ({' '.join(SUFFIXES)})")
        found |= dict.fromkeys(c_sorted(inside))
    return list(found)


def row_of(path: str, seconds: float, nbest: list[Recognition]) -> dict[str, Any]:
    """What is recorded of one transcribed file."""
    text, tokens, _, best = nbest[0]
    trace = best.trace
    row = {
        "file": path,
        "text": text,
        "language": best.language,
        "seconds": seconds,
        "score": best.score,
        "capped": best.capped,
        "steps": trace.steps,
        "stopped": trace.stopped,
        "values": trace.values,
        "update_norms": trace.update_norms,
        "tokens": tokens,
    }
    if len(nbest) > 1:
        row["nbest"] = [{"text": words, "score": h.score} for words, _, _, h in nbest]
    return row


def silent_row(path: str, seconds: float, language: str) -> dict[str, Any]:
    """What is recorded of a part whose samples are all zero: no text, and nothing was run."""
    nothing = {"values": [], "update_norms": [], "tokens": []}
    row = {"file": path, "text": "", "language": language, "seconds": seconds, "score": 0.0}
    return row | {"capped": False, "steps": 0, "stopped": "silence"} | nothing


def transcribe(
    asr: Speech2Text,
    files: Sequence[str],
    request: Request,
    output: Path | None = None,
    done: Callable[[dict[str, Any]], None] | None = None,
) -> Summary:
    """Transcribe files; those that cannot be are reported, counted and left out.

    Args:
        output: the file that the caller will write; its journal lies beside it.  None: no journal.
        done: called with each row as it is finished.
    """
    summary, journal = Summary(), None
    if output is not None:
        journal = output.with_name(output.name + ".partial")
        summary.rows = _resume(journal, _identity(asr, request), files)
        summary.reused = len(summary.rows)
    todo = [path for path in files if path not in summary.rows]
    size = request.config.batch_size * WINDOW
    with tqdm(total=len(files), initial=summary.reused, unit="file", disable=None) as bar:
        for start in range(0, len(todo), size):
            window = todo[start : start + size]
            for path, outcome in _window(asr, window, request):
                bar.update()
                if isinstance(outcome, str):
                    summary.problems[path] = outcome
                    logging.error("%s: left out: %s", path, outcome)
                    continue
                summary.rows[path] = outcome
                if journal is not None:
                    line = {"identity": file_identity(path), "row": outcome}
                    with open(journal, "a", encoding="utf-8") as file:
                        file.write(json.dumps(line, ensure_ascii=False) + "\n")
                if done is not None:
                    done(outcome)
    summary.rows = {path: summary.rows[path] for path in files if path in summary.rows}
    return summary


def _identity(asr: Speech2Text, request: Request) -> dict[str, Any]:
    prompt = asr.recogniser.prompt_of(request.config)
    return {
        "model": asr.metadata["model"],
        "backbone": asr.metadata["backbone"],
        "decode": decode_hash(request.config),
        "prompt": config_hash(prompt),
        "request": [request.language, request.nbest, request.channel, request.long_audio],
    }


def _resume(journal: Path, identity: dict, files: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Rows of an earlier run with this very model and rule, of files that are as they were."""
    rows: dict[str, dict[str, Any]] = {}
    lines = []
    if journal.is_file():
        header, *rest = journal.read_text(encoding="utf-8").split("\n")
        if header == json.dumps(identity):
            wanted = set(files)
            for line in rest[:-1]:  # what follows the last line break was cut off while written
                entry = json.loads(line)
                path = entry["row"]["file"]
                if path in wanted and entry["identity"] == file_identity(path):
                    rows[path] = entry["row"]
                    lines.append(line + "\n")
        else:
            logging.warning("%s: of another model or rule; started anew", journal)
    atomic_write_text(journal, json.dumps(identity) + "\n" + "".join(lines))
    return rows


def _window(
    asr: Speech2Text, paths: Sequence[str], request: Request
) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """Yield each file with its row, or with the reason why there is none."""
    bounds: dict[str, list[tuple[int, int]]] = {}
    clips: dict[tuple[str, int], np.ndarray] = {}
    limit = asr.recogniser.backbone.max_samples
    for path in paths:
        try:
            clip = read_audio(path, os.path.basename(path), channel=request.channel)
            if request.long_audio == "refuse":
                check_lengths({os.path.basename(path): clip}, limit)
        except (DataError, OSError) as error:
            yield path, _line(error)
            continue
        bounds[path] = split_at_pauses(clip, limit)
        clips |= {(path, n): clip[start:end] for n, (start, end) in enumerate(bounds[path])}
        if len(bounds[path]) > 1:
            logging.info("%s: longer than heard at once, %d parts", path, len(bounds[path]))
    rows: dict[tuple[str, int], dict[str, Any] | str] = {}
    for done in _parts(asr, clips, request):
        rows |= done
        for path in dict.fromkeys(path for path, _ in done):
            parts = [rows.get((path, n)) for n in range(len(bounds[path]))]
            if None not in parts:
                yield path, _joined(path, bounds[path], parts, request)


def _joined(
    path: str, bounds: list[tuple[int, int]], parts: list[dict[str, Any] | str], request: Request
) -> dict[str, Any] | str:
    bad = [part for part in parts if isinstance(part, str)]
    if bad or len(parts) == 1:
        return (bad or parts)[0]
    return join_rows(path, bounds, parts, get_language(request.language).spaces)


def _parts(
    asr: Speech2Text, clips: dict[tuple[str, int], np.ndarray], request: Request
) -> Iterator[dict[tuple[str, int], dict[str, Any] | str]]:
    """Yield rows of parts (file, number), or why there is none, a batch at a time."""
    silent = [key for key, clip in clips.items() if not clip.any()]
    # A recogniser would make up a text.
    yield {key: silent_row(key[0], len(clips[key]) / SAMPLE_RATE, request.language) for key in silent}
    named = {f"{path} {n}": (path, n) for path, n in clips if (path, n) not in silent}
    lengths = {name: clips[key] for name, key in named.items()}
    for batch in batches_by_length(lengths, request.config.batch_size):
        keys = [named[name] for name in batch]
        try:
            found = _recognise(asr, [clips[key] for key in keys], request)
        except DataError:
            # One of them does not fit the recogniser; alone each says which.
            found = [_alone(asr, clips[key], request) for key in keys]
        yield {
            key: nbest if isinstance(nbest, str) else row_of(key[0], len(clips[key]) / SAMPLE_RATE, nbest)
            for key, nbest in zip(keys, found)
        }


def _recognise(asr: Speech2Text, clips: list[np.ndarray], request: Request) -> list[list[Recognition]]:
    return asr.recognise(clips, [request.language] * len(clips), request.config, request.nbest)


def _alone(asr: Speech2Text, clip: np.ndarray, request: Request) -> list[Recognition] | str:
    try:
        return _recognise(asr, [clip], request)[0]
    except DataError as error:
        return _line(error)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def write_output(path: Path, text: str, summary: Summary) -> None:
    """Write what came out, whole or not at all; the journal goes when nothing is left to be tried."""
    atomic_write_text(path, text)
    if not summary.problems:
        path.with_name(path.name + ".partial").unlink(missing_ok=True)


def check_output(path: Path, files: Sequence[str]) -> None:
    """Refuse an output that is one of the inputs, or a folder.

    Raises:
        ConfigError: naming it.
    """
    if path.is_dir():
        raise ConfigError(f"--output {path}: is a folder; name a file")
    if path.exists() and any(os.path.exists(f) and os.path.samefile(f, path) for f in files):
        raise ConfigError(f"--output {path}: is one of the audio files; name another")
