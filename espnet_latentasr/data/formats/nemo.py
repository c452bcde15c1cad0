"""Manifests of NeMo (JSON Lines with ``audio_filepath``, ``offset``, ``duration``, ``text``).

NeMo gives utterances no ids.  Ours are ``utt_id`` (or ``id``) where a manifest has it, else the file's
name without its ending, with the offset in milliseconds behind it where a file has several.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from espnet_latentasr.data.audio import read_header
from espnet_latentasr.data.formats.base import (
    Read,
    ReadOptions,
    Utterance,
    duration,
    find_audio,
    name,
    read_jsonl,
    seconds_of,
    value,
    words,
    write_jsonl,
)
from espnet_latentasr.data.kaldi_dir import AudioSource
from espnet_latentasr.errors import DataError

EXACT = 0.01  # durations are often written with two decimals


def read_nemo(paths: Sequence[Path], options: ReadOptions) -> Read:
    """Read manifests; paths in them are absolute or relative to their folder."""
    rows = [(path, where, row) for path in paths for where, row in read_jsonl(path)]
    files = [name(where, row, "audio_filepath") for _, where, row in rows]
    if any("_OP_" in file or file.endswith(".tar") for file in files):
        raise DataError(f"{paths[0]}: tarred shards are not read; use the manifest of the audio files")
    shared = Counter(files)
    utterances = []
    for (path, where, row), file in zip(rows, files, strict=True):
        utt = words(where, row, "utt_id", "id")
        if utt is None:
            utt = Path(file).stem + f"-{round(_offset(where, row) * 1000):08d}" * (shared[file] > 1)
        source = _source(f"{where}: utterance '{utt}'", row, find_audio(file, path.parent))
        text = value(where, row, "text", (str, type(None))) or ""
        language = words(where, row, "lang", "source_lang") or options.language
        utterances.append(
            Utterance(
                utt, source, text, where, words(where, row, "speaker"), language,
                Path(file).stem if shared[file] > 1 or source.end is not None else None,
            )
        )  # fmt: skip
    return Read(utterances)


def _offset(where: str, row: dict) -> float:
    return 0.0 if row.get("offset") is None else seconds_of(where, row, "offset")


def _source(where: str, row: dict, path: str) -> AudioSource:
    offset = _offset(where, row)
    seconds = row.get("duration")
    if seconds is None:
        if offset:
            raise DataError(f"{where}: offset {offset} without a duration; write both, or neither")
        return AudioSource(path)
    seconds = seconds_of(where, row, "duration")
    if not os.path.isfile(path):
        return AudioSource(path)  # named as missing by who writes it
    rate, frames, _ = read_header(path, where)
    if offset < 0 or seconds <= 0 or offset + seconds > frames / rate + EXACT:
        raise DataError(
            f"{where}: {seconds} s from {offset} s, {path} has {frames / rate:.3f} s; "
            "correct the manifest"
        )
    if offset == 0 and abs(frames / rate - seconds) <= EXACT:
        return AudioSource(path)
    return AudioSource(path, offset, min(offset + seconds, frames / rate))


def write_nemo(utterances: Sequence[Utterance], output: Path) -> list[Path]:
    """Write ``manifest.jsonl`` with ``utt_id``, ``lang`` and ``speaker`` beside NeMo's keys."""
    path = output / "manifest.jsonl"
    rows = (
        {
            "audio_filepath": u.source.path, "offset": u.source.start, "duration": duration(u),
            "text": u.text, "utt_id": u.utt_id, "lang": u.language, "speaker": u.speaker,
        }
        for u in utterances
    )  # fmt: skip
    write_jsonl(path, ({key: v for key, v in row.items() if v is not None} for row in rows))
    return [path]
