"""Data sets for Hugging Face, with their audio inside: as ``save_to_disk`` writes them, or Parquet."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import soundfile

from espnet_latentasr.data.audio import read_header, read_span
from espnet_latentasr.data.formats.base import Utterance
from espnet_latentasr.data.formats.hf import BATCH, arrow
from espnet_latentasr.errors import DataError
from espnet_latentasr.fileio import atomic_path, atomic_write_text

STRING = {"dtype": "string", "_type": "Value"}
FEATURES = {
    "id": STRING,
    "audio": {"_type": "Audio"},
    "text": STRING,
    "language": STRING,
    "speaker": STRING,
}


def _schema() -> Any:
    pa, _ = arrow()
    clip = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    types = {name: clip if name == "audio" else pa.string() for name in FEATURES}
    written = json.dumps({"info": {"features": FEATURES}})
    return pa.schema(list(types.items()), metadata={"huggingface": written})


def _batches(utterances: Sequence[Utterance]) -> Iterator[Any]:
    pa, _ = arrow()
    for first in range(0, len(utterances), BATCH):
        rows = [
            {
                "id": u.utt_id, "audio": _clip(u), "text": u.text, "language": u.language,
                "speaker": u.speaker,
            }
            for u in utterances[first : first + BATCH]
        ]  # fmt: skip
        yield pa.RecordBatch.from_pylist(rows, schema=_schema())


def _clip(u: Utterance) -> dict[str, Any]:
    """Return an utterance's own file as it is, or the part of a longer one as a WAV file."""
    path = Path(u.source.path)
    _, _, channels = read_header(path, u.utt_id)
    if channels != 1:
        raise DataError(f"{path}: {channels} channels, one expected; format the set first")
    if u.source[1:] == (0.0, None) and path.is_file():
        return {"bytes": path.read_bytes(), "path": f"{u.utt_id}{path.suffix}"}
    samples, rate = read_span(path, u.utt_id, u.source[1:])
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate, format="WAV", subtype="FLOAT")
    return {"bytes": buffer.getvalue(), "path": f"{u.utt_id}.wav"}


def write_parquet(utterances: Sequence[Utterance], output: Path) -> list[Path]:
    """Write ``data.parquet``, whole or not at all."""
    _, pq = arrow()
    path = output / "data.parquet"
    with atomic_path(path) as temporary, pq.ParquetWriter(temporary, _schema()) as writer:
        for batch in _batches(utterances):
            writer.write_batch(batch)
    return [path]


def write_hf(utterances: Sequence[Utterance], output: Path) -> list[Path]:
    """Write a folder that ``datasets.load_from_disk`` reads; ``state.json`` comes last."""
    pa, _ = arrow()
    name = "data-00000-of-00001.arrow"
    (output / "state.json").unlink(missing_ok=True)
    with atomic_path(output / name) as temporary, pa.OSFile(str(temporary), "wb") as file:
        with pa.ipc.new_stream(file, _schema()) as writer:
            for batch in _batches(utterances):
                writer.write_batch(batch)
    atomic_write_text(output / "dataset_info.json", json.dumps({"features": FEATURES}, indent=2) + "\n")
    with open(output / name, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    state = {
        "_data_files": [{"filename": name}], "_fingerprint": digest[:16], "_format_columns": None,
        "_format_kwargs": {}, "_format_type": None, "_output_all_columns": False, "_split": None,
    }  # fmt: skip
    atomic_write_text(output / "state.json", json.dumps(state, indent=2) + "\n")
    return [output]
