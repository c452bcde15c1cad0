"""What all formats exchange: one utterance, and what a reader may be told; knows no format."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from espnet_latentasr.data.audio import read_header
from espnet_latentasr.data.kaldi_dir import AudioSource
from espnet_latentasr.data.sound_files import file_of
from espnet_latentasr.errors import DataError
from espnet_latentasr.fileio import atomic_path
from espnet_latentasr.reading import parse_json, parse_number, read_lines

NAMED = 10  # so many ids are named in a message


@dataclass(frozen=True)
class Utterance:
    """One utterance of any format; ``where`` is its place for messages, as in ``file:line``.

    ``source`` is a file and a span in seconds, end None to its end.  ``recording`` names the file
    where several utterances share it.  What a format does not say is None.
    """

    utt_id: str
    source: AudioSource
    text: str
    where: str
    speaker: str | None = None
    language: str | None = None
    recording: str | None = None


@dataclass(frozen=True)
class ReadOptions:
    """What a reader is told.

    ``language``: of utterances that name none.  ``output``: folder that may get audio which is not in
    files of its own (``output/audio``).  The columns and the split are those of a data set of
    Hugging Face; ``id_column`` may be ``row``.
    """

    language: str | None = None
    output: Path | None = None
    split: str | None = None
    audio_column: str | None = None
    text_column: str | None = None
    id_column: str | None = None
    speaker_column: str | None = None
    language_column: str | None = None


@dataclass(frozen=True)
class Read:
    """Utterances of one input, and what of it did not become one, in words with a count."""

    utterances: list[Utterance]
    notes: list[str] = field(default_factory=list)


def read_jsonl(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (``file:line``, object) of a JSON Lines file, compressed with gzip or not.

    Raises:
        DataError: no such file, a damaged archive, or a line that is not a JSON object.
    """
    if not path.exists():
        raise DataError(f"{path}: no such file; correct --input")
    what = "one JSON object a line in UTF-8"
    for number, line in read_lines(path, what):
        if line.strip():
            row = parse_json(line, f"{path}:{number}", what, halves=True)
            if not isinstance(row, dict):
                raise DataError(f"{path}:{number}: not a JSON object; {what} expected")
            yield f"{path}:{number}", row


def write_jsonl(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write JSON Lines, whole or not at all; a name in .gz is compressed, the same bytes every time."""
    with atomic_path(path) as temporary, open(temporary, "wb") as raw:
        packed = path.suffix == ".gz"
        file = gzip.GzipFile("", "wb", fileobj=raw, mtime=0) if packed else raw
        for row in rows:
            file.write((json.dumps(row, ensure_ascii=False) + "\n").encode())
        if packed:
            file.close()


def value(where: str, row: dict[str, Any], key: str, kind: type | tuple[type, ...]) -> Any:
    """Return ``row[key]``, which must be there and of a type.

    Raises:
        DataError: it is not; the message names the place, the key and what was found.
    """
    found = row.get(key)
    if not isinstance(found, kind) or isinstance(found, bool):
        kinds = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
        raise DataError(f"{where}: '{key}' is {found!r:.200}, {kinds} expected; correct the manifest")
    return found


def seconds_of(where: str, row: dict[str, Any], key: str) -> float:
    """Return ``row[key]``, a finite number of seconds; raises `DataError` where it is none."""
    value(where, row, key, (int, float))
    return parse_number(where, row, key)


def name(where: str, row: dict[str, Any], key: str, kind: type | tuple[type, ...] = str) -> Any:
    """Return `value`, an id or a path, which a file must be able to hold."""
    found = value(where, row, key, kind)
    if isinstance(found, str) and ("\0" in found or found != found.encode("utf-8", "replace").decode()):
        raise DataError(f"{where}: '{key}' is {found!r:.200}, whole characters expected; correct it")
    return found


def words(where: str, row: dict[str, Any], *keys: str) -> str | None:
    """Return the first of ``keys`` that says something, as text: an id may be written as a number."""
    for key in keys:
        if row.get(key) not in (None, ""):
            return str(name(where, row, key, (str, int)))
    return None


def find_audio(path: str, folder: Path) -> str:
    """Return an absolute path: as it is, else below ``folder`` or one of the three above it.

    Data directories are written with paths relative to the folder that the recipe ran in, which is
    not known here.  A path that exists nowhere stays relative to ``folder``, to be named as missing.
    """
    folder = folder.resolve()
    places = [Path(path), *(place / path for place in (folder, *folder.parents[:3]))]
    found = next((place for place in places if os.path.isfile(file_of(place))), folder / path)
    return os.path.abspath(found)


def duration(utterance: Utterance) -> float:
    """Seconds of an utterance, by its span or by its file's header."""
    start, end = utterance.source[1:]
    if end is None:
        rate, frames, _ = read_header(utterance.source.path, utterance.utt_id)
        end = frames / rate
    return round(end - start, 8)
