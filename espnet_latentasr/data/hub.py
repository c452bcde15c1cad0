"""The Hugging Face hub's rows: knows its Parquet files and its library, decodes no audio.

A copy of the Parquet files and the library give the same rows, with the audio file's own bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from espnet_latentasr.data.layouts import Row, pick_columns
from espnet_latentasr.data.published import SetName, published_names
from espnet_latentasr.errors import ConfigError, DataError

BATCH = 64  # rows in memory
PARQUET = (
    "{part}/{split}-*.parquet",
    "{part}/{split}/*.parquet",
    "{part}/*-{split}.parquet",
    "{part}/*-{split}-*.parquet",
    "data/{part}/{split}-*.parquet",
    "parquet-data/{part}/{split}-*.parquet",
)
SHARD = re.compile(r"-(\d+)-of-(\d+)\.parquet$")
COMMIT = re.compile("[0-9a-f]{40}")
AUDIO_NAME = re.compile(r"\.(wav|mp3|flac|ogg|opus)$")


def missing_shards(paths: Iterable[Path]) -> list[str]:
    """Name the files ``x-00003-of-00009.parquet`` that are announced by others and not there."""
    paths = list(paths)
    there = {path.name for path in paths}
    wanted: set[str] = set()
    for name in there:
        if match := SHARD.search(name):
            digits, total = len(match[1]), int(match[2])
            stem, rest = name[: match.start(1)], name[match.end(1) :]
            wanted |= {f"{stem}{n:0{digits}d}{rest}" for n in range(total)}
    return sorted(wanted - there)


def read_parquet(paths: Iterable[Path], columns: Mapping[str, str]) -> Iterator[Row]:
    """Yield the rows of Parquet files with embedded audio.

    Raises:
        DataError: pyarrow is not installed, a file is not Parquet, or has no such column.
    """
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise DataError(f"Parquet files need pyarrow ({error}); pip install pyarrow") from error
    for path in paths:
        try:
            with parquet.ParquetFile(path) as file:
                there = file.schema_arrow.names
                if lacking := [name for name in columns.values() if name not in there]:
                    raise DataError(f"{path}: no column '{lacking[0]}'; there are: {', '.join(there)}")
                number = 0
                for batch in file.iter_batches(BATCH, columns=list(columns.values())):
                    for row in batch.to_pylist():
                        yield row_of(row, columns, f"{path}: row {number}")
                        number += 1
        except (ArrowException, OSError) as error:
            raise DataError(
                f"{path}: cannot be read ({error}); get it again (a small text file here is a pointer of "
                "Git LFS: git lfs pull)"
            ) from error


def row_of(row: Mapping[str, Any], columns: Mapping[str, str], where: str) -> Row:
    """Turn a row of the hub, with undecoded audio ``{"bytes", "path"}``, into a `Row`."""
    found = pick_columns(row, columns, where)
    audio = found["audio"]
    if not isinstance(audio, dict) or not (audio.get("bytes") or audio.get("path")):
        raise DataError(f"{where}: column '{columns['audio']}' holds no audio (bytes or path expected)")
    name, utt = audio.get("path") or "", str(found["id"])
    utt = Path(utt).stem if AUDIO_NAME.search(utt) else utt
    text = "" if found["text"] is None else str(found["text"])
    return Row(utt, text, name, where, found["speaker"], found["language"], data=audio.get("bytes"))


def stream(where: SetName, revision: str | None, streaming: bool = True) -> Iterator[Row]:
    """Yield the rows of a set on the hub.

    Args:
        revision: a commit of the data set; None: that of ``hub_corpora.yaml``.
        streaming: False downloads the whole set first, into the library's cache.

    Raises:
        ConfigError: no commit is known, or it is none.  DataError: the library ``datasets`` is not
            installed, has no such set, or cannot reach it.
    """
    hub = where.corpus.hub
    revision = check_revision(where.corpus.name, revision or hub.revision)
    try:
        import datasets
    except ImportError as error:
        raise DataError(
            f"{where}: reading it from the hub needs the package datasets ({error}); "
            "pip install datasets, or give a local copy with --src"
        ) from error
    config, column = hub.config_of(where.part, where.split), hub.columns["audio"]
    for split in published_names(hub.splits, where.part, where.split):
        named = f"{hub.id} {config}/{split} at {revision}"
        try:
            rows = datasets.load_dataset(
                hub.id, config, split=split, revision=revision, streaming=streaming
            )
            rows = rows.cast_column(column, datasets.Audio(decode=False))
            for number, row in enumerate(rows):
                yield row_of(row, hub.columns, f"{named}: row {number}")
        except DataError:
            raise
        # Whatever the library, the network or a loading script raises: there is no common class.
        except Exception as error:
            raise DataError(
                f"{named}: cannot be read ({type(error).__name__}: {error}); a gated set needs its terms "
                "accepted and 'hf auth login', one with a loading script a commit of its branch "
                "refs/convert/parquet; or give a local copy with --src"
            ) from error


def check_revision(name: str, revision: str | None) -> str:
    """Return a commit, which names the data of a result; a branch or tag may move."""
    if revision is None or not COMMIT.fullmatch(revision):
        what = "no revision is known" if revision is None else f"revision '{revision}' is no commit"
        raise ConfigError(
            f"{name}: {what}; give the 40 digits of the data set's commit with --revision (its page "
            "shows it under 'Files and versions')"
        )
    return revision
