"""Data sets of Hugging Face, saved to disk or as Parquet: read and written with pyarrow alone.

Audio inside a data set is written out once, byte by byte as it is there, to ``<output>/audio``.
Nothing is taken from the hub.  Class labels are read as their names.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from espnet_latentasr.data.formats.base import Read, ReadOptions, Utterance, find_audio
from espnet_latentasr.data.formats.kaldi import safe_name
from espnet_latentasr.data.kaldi_dir import AudioSource
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.fileio import atomic_path
from espnet_latentasr.reading import read_json

TEXTS = ("text", "sentence", "transcription", "transcript", "normalized_text", "raw_text")
SUFFIXES = {b"RIFF": ".wav", b"fLaC": ".flac", b"OggS": ".ogg", b"ID3": ".mp3", b"\xff\xfb": ".mp3"}
BATCH = 64  # rows that are in memory with their audio


def arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(
            f"data sets of Hugging Face need the package pyarrow ({error}); pip install pyarrow"
        ) from error
    return pyarrow, pyarrow.parquet


@dataclass(frozen=True)
class _Source:
    """Files of one split, their schema and what ``datasets`` wrote about their columns."""

    files: list[Path]
    schema: Any
    features: dict[str, Any]

    @property
    def columns(self) -> list[str]:
        return self.schema.names

    def plain(self, column: str) -> bool:
        """Whether a column of audio has paths only, not bytes and paths."""
        return self.schema.field(column).type.num_fields == 0

    def batches(self, columns: list[str]) -> Iterator[Any]:
        """Yield record batches of some columns."""
        pa, pq = arrow()
        for path in self.files:
            if path.suffix == ".arrow":
                with pa.memory_map(str(path)) as mapped:
                    for batch in pa.ipc.open_stream(mapped):
                        batch.validate(full=True)  # offsets are taken as they are written otherwise
                        yield batch.select(columns)
            else:
                yield from pq.ParquetFile(path).iter_batches(BATCH, columns=columns)

    def rows(self, columns: list[str]) -> Iterator[dict[str, Any]]:
        """Yield rows, class labels by name."""
        names = {c: self._names(c) for c in columns}
        number = 0
        for batch in self.batches(columns):
            for row in batch.to_pylist():
                for c, v in row.items():
                    if names[c] and isinstance(v, int) and v >= len(names[c]):
                        raise DataError(
                            f"{self.files[0]}: row {number}: label {v} of column '{c}', which has "
                            f"{len(names[c])} names; save the data set again"
                        )
                yield {
                    c: names[c][v] if names[c] and isinstance(v, int) and v >= 0 else v
                    for c, v in row.items()
                }
                number += 1

    def _names(self, column: str) -> list | None:
        about = self.features.get(column)
        names = about.get("names") if isinstance(about, dict) else None
        return names if isinstance(names, list) else None


def read_hf(paths: Sequence[Path], options: ReadOptions) -> Read:
    """Read a folder made by ``save_to_disk``, or Parquet files (a folder of them).

    Raises:
        DataError: pyarrow is not installed, a split or column that must be named, ids that are not
            unique, or audio that is not there.
    """
    pa, _ = arrow()
    try:
        return _read(_open(paths, options), paths, options)
    except (DataError, ConfigError):
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{paths[0]}: cannot be read ({error}); save or get it again") from error


def _read(source: _Source, paths: Sequence[Path], options: ReadOptions) -> Read:
    audio = _column(source, "audio", options.audio_column, ("audio",))
    text = _column(source, "text", options.text_column, TEXTS)
    known = {"speaker": options.speaker_column, "language": options.language_column}
    if options.id_column not in (None, "row", audio):
        known["id"] = options.id_column
    wanted = [_column(source, what, name, ()) for what, name in known.items() if name]
    rows = list(source.rows(list(dict.fromkeys([text, *wanted]))))
    names = _audio_names(source, audio)
    ids = [_id(row, index, names[index], options, audio) for index, row in enumerate(rows)]
    counts = Counter(ids)
    if twice := [utt for utt, count in counts.items() if count > 1 or not utt]:
        raise DataError(
            f"{paths[0]}: id '{twice[0]}' is there {counts[twice[0]]} times ({len(twice)} such ids); "
            "name a column of ids with --id_column, or 'row' to number the rows (columns: "
            f"{', '.join(source.columns)})"
        )
    files = _write_audio(source, audio, ids, paths[0], options)
    utterances = []
    for utt, row, file in zip(ids, rows, files, strict=True):
        speaker = row.get(options.speaker_column) if options.speaker_column else None
        language = row.get(options.language_column) if options.language_column else None
        for column, found in ((text, row[text]), (options.language_column, language)):
            if not isinstance(found, str | None):
                raise DataError(
                    f"{paths[0]}: utterance '{utt}': column '{column}' holds {found!r:.200}, text "
                    f"expected; name another one ({', '.join(source.columns)})"
                )
        utterances.append(
            Utterance(
                utt, AudioSource(file), row[text] or "", str(paths[0]),
                None if speaker in (None, "") else str(speaker), language or options.language,
            )
        )  # fmt: skip
    return Read(utterances)


def _open(paths: Sequence[Path], options: ReadOptions) -> _Source:
    """Find the files of one split and their columns."""
    pa, pq = arrow()
    folder = paths[0]
    try:
        if (folder / "dataset_dict.json").is_file():
            splits = _json(folder / "dataset_dict.json")["splits"]
            if not isinstance(splits, list) or options.split not in splits:
                named = ", ".join(map(str, splits)) if isinstance(splits, list) else repr(splits)
                raise DataError(f"{folder}: split '{options.split}'; name one with --split: {named:.500}")
            folder = folder / options.split
        if (folder / "state.json").is_file():
            state = _json(folder / "state.json")
            files = [folder / entry["filename"] for entry in state["_data_files"]]
            info = _json(folder / "dataset_info.json")
            with pa.memory_map(str(files[0])) as mapped:
                return _Source(files, pa.ipc.open_stream(mapped).schema, _mapping(info["features"]))
        files = [f for p in paths for f in (sorted(p.rglob("*.parquet")) if p.is_dir() else [p])]
        if not files:
            raise DataError(f"{folder}: neither a data set saved to disk nor Parquet files there")
        schema = pq.read_schema(files[0])
        written = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        return _Source(files, schema, _mapping(_mapping(_mapping(written).get("info")).get("features")))
    except (OSError, LookupError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{folder}: no data set that can be read ({error}); save it again") from error


def _json(path: Path) -> dict[str, Any]:
    return read_json(path, "what datasets writes")


def _mapping(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def _column(source: _Source, what: str, name: str | None, guesses: Iterable[str]) -> str:
    """Return a column's name: as given, else the one of the usual names that is there."""
    found = [name] if name else [guess for guess in guesses if guess in source.columns]
    if len(found) != 1 or found[0] not in source.columns:
        raise DataError(
            f"{source.files[0]}: which column has the {what}? '{name or ' or '.join(found) or 'none'}' "
            f"does not tell; name one with --{what}_column: {', '.join(source.columns)}"
        )
    return found[0]


def _audio_names(source: _Source, audio: str) -> list[str]:
    """Return what the data set calls each clip's file, "" where it does not say; no audio is read."""
    names: list[str | None] = []
    leaf = audio if source.files[0].suffix == ".arrow" or source.plain(audio) else f"{audio}.path"
    for batch in source.batches([leaf]):
        column = batch.column(0)
        if not source.plain(audio):
            column = column.field(column.type.get_field_index("path"))
        names += column.to_pylist()
    return [name or "" for name in names]


def _id(row: dict, index: int, name: str, options: ReadOptions, audio: str) -> str:
    if options.id_column == "row":
        return f"row{index:07d}"
    if options.id_column in (None, audio):
        return Path(name).stem
    return str(row[options.id_column])


def _write_audio(
    source: _Source, audio: str, ids: list[str], where: Path, options: ReadOptions
) -> list[str]:
    """Write out what is inside the data set; return each row's file."""
    files, numbered = [], iter(ids)
    for row in source.rows([audio]):
        utt, clip = next(numbered), row[audio]
        clip = {"path": clip} if isinstance(clip, str) else clip or {}
        kinds = {"bytes": bytes | None, "path": str | None}
        if not isinstance(clip, dict) or not all(isinstance(clip.get(k), kinds[k]) for k in kinds):
            raise DataError(
                f"{where}: utterance '{utt}': column '{audio}' holds {clip!r:.200}, audio expected; name "
                "another one with --audio_column"
            )
        if clip.get("bytes") is None:
            if not clip.get("path"):
                raise DataError(f"{where}: utterance '{utt}': neither bytes nor a path of its audio")
            files.append(find_audio(clip["path"], where if where.is_dir() else where.parent))
            continue
        if options.output is None:
            raise DataError(f"{where}: its audio is inside it; give --output, where it is to go")
        data = clip["bytes"]
        known = (suffix for magic, suffix in SUFFIXES.items() if data.startswith(magic))
        ending = next(known, Path(clip.get("path") or "").suffix or ".bin")
        path = (options.output / "audio" / (safe_name(utt) + ending)).resolve()
        if not path.is_file() or path.read_bytes() != data:
            with atomic_path(path) as temporary:
                temporary.write_bytes(data)
        files.append(str(path))
    return files
