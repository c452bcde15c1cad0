"""Audio embeddings that stage 6 left on disk, for decoding the same audio again.

An entry counts only for the same recogniser, number type and samples, so what is decoded from it is
what encoding anew would give.  What is read was checked: the index by its own checksum, each matrix by
the one in the index.  Shards from before there were checksums are told by their size alone, as they were
when they were written: whole or not at all, so no kill and no full disk can have damaged them.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from espnet_latentasr.backbone.base import Backbone
from espnet_latentasr.data.ark import load_mat
from espnet_latentasr.data.audio import audio_sha256


def encoder_key(fingerprint: str, dtype: str) -> str:
    """What audio embeddings depend on besides the audio."""
    return f"{fingerprint}/{dtype}"


@dataclass(frozen=True)
class Shard:
    """An archive and its index: ``key`` is what its entries depend on, ``entries`` are by utterance."""

    index: Path
    key: str
    entries: dict[str, dict[str, Any]]

    @property
    def archive(self) -> Path:
        return self.index.with_suffix(".ark")

    def damaged(self) -> list[str]:
        """Utterances whose matrices are not what was written."""
        return [utt_id for utt_id, entry in self.entries.items() if not is_whole(self.archive, entry)]


def index_checksum(entries: Mapping[str, Any]) -> int:
    """CRC-32 of an index's entries, whatever the order and the spacing of their JSON."""
    text = json.dumps(entries, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return zlib.crc32(text.encode())


def read_shard(index: Path) -> Shard | str:
    """Read a shard's index, or say what is wrong with it or with its archive's size."""
    archive = index.with_suffix(".ark")
    try:
        found = json.loads(index.read_text(encoding="utf-8"))
        shard = Shard(index, found["key"], dict(found["utterances"]))
        size, checksum = found["bytes"], found.get("crc32")
        places = {entry["ark"].rpartition(":")[0] for entry in shard.entries.values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{index}: damaged ({error})"
    if checksum is not None and checksum != index_checksum(shard.entries):
        return f"{index}: damaged, its checksum does not hold"
    if places - {archive.name}:
        return f"{index}: damaged, it names other archives than its own"
    if not archive.is_file() or archive.stat().st_size != size:
        return f"{archive}: damaged, {size} bytes expected"
    return shard


def is_whole(archive: Path, entry: Mapping[str, Any]) -> bool:
    """Tell whether the bytes of an entry's matrix have their checksum; an entry without one is taken."""
    if "crc32" not in entry:
        return True
    try:
        with open(archive, "rb") as file:
            file.seek(int(entry["ark"].rpartition(":")[2]))
            return zlib.crc32(file.read(entry["length"])) == entry["crc32"]
    except (OSError, ValueError, KeyError, TypeError):
        return False


class EncoderCache:
    """The entries of one set's cache folder; an absent folder is an empty cache."""

    def __init__(self, folder: Path, backbone: Backbone) -> None:
        self.folder = folder
        self.entries: dict[str, dict[str, Any]] = {}
        self._said: set[str] = set()
        dtype = str(backbone.embedding_table.dtype).removeprefix("torch.")
        key = encoder_key(backbone.fingerprint, dtype)
        for index in sorted(folder.glob("shard.*.json")):
            shard = read_shard(index)
            if isinstance(shard, str):
                self._say(shard)
            elif shard.key.rsplit("/", 1)[0] == key:
                self.entries |= shard.entries

    def _say(self, what: str) -> None:
        if what not in self._said:
            self._said.add(what)
            logging.warning("%s; its utterances are encoded again; stage 6 mends it", what)

    def read(self, utt_id: str, clip: np.ndarray) -> Tensor | None:
        """Embeddings (A, D) float32 of this very clip, or None."""
        entry = self.entries.get(utt_id)
        if entry is None or entry["sha256"] != audio_sha256(clip):
            return None
        archive = self.folder / entry["ark"].rpartition(":")[0]
        if not is_whole(archive, entry):
            self._say(f"{archive}: damaged, the checksum of a matrix does not hold")
            return None
        return torch.from_numpy(np.array(load_mat(str(self.folder / entry["ark"]))))
