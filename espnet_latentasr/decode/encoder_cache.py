"""Audio embeddings that stage 6 left on disk, for decoding the same audio again.

An entry counts only for the same recogniser, number type and samples, so what is decoded from it is
what encoding anew would give.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from espnet_latentasr.backbone.base import Backbone
from espnet_latentasr.data.ark import load_mat
from espnet_latentasr.data.audio import audio_sha256


def encoder_key(fingerprint: str, dtype: str) -> str:
    """What audio embeddings depend on besides the audio."""
    return f"{fingerprint}/{dtype}"


class EncoderCache:
    """The entries of one set's cache folder; an absent folder is an empty cache."""

    def __init__(self, folder: Path, backbone: Backbone) -> None:
        self.folder = folder
        self.entries: dict[str, tuple[str, str]] = {}
        dtype = str(backbone.embedding_table.dtype).removeprefix("torch.")
        key = encoder_key(backbone.fingerprint, dtype)
        for index in sorted(folder.glob("shard.*.json")):
            shard = json.loads(index.read_text(encoding="utf-8"))
            archive = index.with_suffix(".ark")
            if shard["key"].rsplit("/", 1)[0] != key or not archive.is_file():
                continue
            if archive.stat().st_size != shard["bytes"]:
                logging.warning("%s: damaged, its utterances are encoded again", archive)
                continue
            for utt_id, entry in shard["utterances"].items():
                self.entries[utt_id] = (entry["sha256"], entry["ark"])

    def read(self, utt_id: str, clip: np.ndarray) -> Tensor | None:
        """Embeddings (A, D) float32 of this very clip, or None."""
        entry = self.entries.get(utt_id)
        if entry is None or entry[0] != audio_sha256(clip):
            return None
        return torch.from_numpy(np.array(load_mat(str(self.folder / entry[1]))))
