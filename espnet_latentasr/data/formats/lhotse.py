"""Manifests of Lhotse (recordings and supervisions, JSON Lines): read and written without Lhotse.

Audio must be files, of one channel each where an utterance is in them; cuts and features are not
read.  A recording that no supervision speaks of is no utterance, and is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

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

KINDS = ("recordings", "supervisions")
EXACT = 1e-4  # a supervision this near to its recording's length (s) is the whole of it


def read_lhotse(paths: Sequence[Path], options: ReadOptions) -> Read:
    """Read a folder that holds both manifests, or the two files by name."""
    recordings_at, supervisions_at = (_manifest(paths, kind) for kind in KINDS)
    recordings: dict[str, tuple[str, dict[str, Any]]] = {}
    for where, row in read_jsonl(recordings_at):
        recording = name(where, row, "id")
        if recording in recordings:
            raise DataError(f"{where}: recording '{recording}' is there twice; every id once expected")
        recordings[recording] = where, row
    utterances, heard = [], set()
    for where, row in read_jsonl(supervisions_at):
        utt, recording = name(where, row, "id"), name(where, row, "recording_id")
        if recording not in recordings:
            raise DataError(
                f"{where}: utterance '{utt}': recording '{recording}' is not in {recordings_at}"
            )
        heard.add(recording)
        source = _source(f"{where}: utterance '{utt}'", row, *recordings[recording], recordings_at.parent)
        language = words(where, row, "language") or options.language
        utterances.append(
            Utterance(
                utt, source, value(where, row, "text", (str, type(None))) or "", where,
                words(where, row, "speaker"), language, recording,
            )
        )  # fmt: skip
    unheard = len(recordings) - len(heard)
    return Read(utterances, [f"{unheard} recordings without supervision"] if unheard else [])


def _manifest(paths: Sequence[Path], kind: str) -> Path:
    """Find the one manifest of a kind among files and in folders."""
    files = [f for p in paths for f in (sorted(p.glob("*.jsonl*")) if p.is_dir() else [p])]
    found = [f for f in files if kind in f.name and f.name.endswith((".jsonl", ".jsonl.gz"))]
    if len(found) != 1:
        raise DataError(
            f"{', '.join(map(str, paths))}: {len(found)} files *{kind}*.jsonl or .jsonl.gz "
            f"({', '.join(f.name for f in found) or 'none'}), one expected; name both manifests "
            "(of cuts, lhotse makes them: lhotse cut decompose)"
        )
    return found[0]


def _source(where: str, row: dict, there: str, recording: dict, folder: Path) -> AudioSource:
    """Return file and span of a supervision."""
    channels = row.get("channel", 0)
    channels = channels if isinstance(channels, list) else [channels]
    path = _file(f"{there}: recording '{recording['id']}'", recording, channels, folder)
    start, seconds = (seconds_of(where, row, key) for key in ("start", "duration"))
    total = seconds_of(there, recording, "duration")
    if start < 0 or seconds <= 0 or start + seconds > total + 0.01:
        raise DataError(
            f"{where}: {seconds} s from {start} s, the recording has {total} s; correct the manifest"
        )
    if start == 0 and abs(seconds - total) < EXACT:
        return AudioSource(path)
    return AudioSource(path, start, min(start + seconds, total))


def _file(where: str, recording: dict[str, Any], channels: list, folder: Path) -> str:
    if recording.get("transforms"):
        raise DataError(
            f"{where}: transforms {recording['transforms']!r} change its audio; save it with Lhotse first"
        )
    if len(channels) != 1 or not isinstance(channels[0], int):
        raise DataError(f"{where}: an utterance in channels {channels}, one expected; mix them first")
    for source in value(where, recording, "sources", list):
        if not isinstance(source, dict):
            raise DataError(f"{where}: source {source!r:.200}, an object expected; correct the manifest")
        if channels[0] not in value(where, source, "channels", list):
            continue
        if source.get("type") != "file":
            raise DataError(
                f"{where}: its audio is of type '{source.get('type')}', only 'file' is read (commands "
                "are never run); save it with Lhotse first"
            )
        file = name(where, source, "source")
        if source["channels"] != [channels[0]]:
            raise DataError(
                f"{where}: {file} has channels {source['channels']}; write each to a file of its own "
                f"first (sox IN OUT remix {channels[0] + 1})"
            )
        return find_audio(file, folder)
    raise DataError(f"{where}: no source of channel {channels[0]}; correct the manifest")


def write_lhotse(utterances: Sequence[Utterance], output: Path) -> list[Path]:
    """Write ``recordings.jsonl.gz`` and ``supervisions.jsonl.gz``; return the files.

    Raises:
        DataError: audio that cannot be read, or of several channels.
    """
    recordings: dict[str, dict[str, Any]] = {}
    supervisions = []
    for u in utterances:
        name = u.recording or u.utt_id
        if name not in recordings:
            recordings[name] = _recording(name, u)
        elif recordings[name]["sources"][0]["source"] != u.source.path:
            raise DataError(f"{u.where}: utterance '{u.utt_id}': recording '{name}' is two files")
        row = {
            "id": u.utt_id, "recording_id": name, "start": u.source.start, "duration": duration(u),
            "channel": 0, "text": u.text, "language": u.language, "speaker": u.speaker,
        }  # fmt: skip
        supervisions.append({key: found for key, found in row.items() if found is not None})
    paths = [output / f"{kind}.jsonl.gz" for kind in KINDS]
    write_jsonl(paths[0], recordings.values())
    write_jsonl(paths[1], supervisions)
    return paths


def _recording(name: str, u: Utterance) -> dict[str, Any]:
    rate, frames, channels = read_header(u.source.path, u.utt_id)
    if channels != 1:
        raise DataError(f"{u.source.path}: {channels} channels, one expected; format the set first")
    source = {"type": "file", "channels": [0], "source": u.source.path}
    return {
        "id": name, "sources": [source], "sampling_rate": rate, "num_samples": frames,
        "duration": frames / rate, "channel_ids": [0],
    }  # fmt: skip
