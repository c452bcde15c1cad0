"""``data_src`` of ESPnet3's train and valid sets: ESPnet2's data triples, read by ESPnet2's reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from espnet3.components.data.base_dataset import BaseDataset
from espnet3.contract import Field

from espnet_latentasr.toolkit.compat import ensure_torchaudio

ensure_torchaudio()

from espnet2.train.dataset import ESPnetDataset  # noqa: E402


class Dataset(BaseDataset):
    """Utterances by id: ``speech_states`` (A, D), ``baseline`` (2,), ``text``, ``lang``."""

    fields = (Field("text", "text"), Field("lang", "text"))

    def __init__(self, triples: Sequence[Sequence[str]]) -> None:
        """
        Args:
            triples: (file, name, type) of each, as ``model.train_data_path_and_name_and_type`` has them.
        """
        self._readers = ESPnetDataset([tuple(triple) for triple in triples]).loader_dict
        self._ids = list(next(iter(self._readers.values())))

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def keys(self) -> list[str]:
        """The utterance ids."""
        return self._ids

    def __getitem__(self, utt_id: str) -> dict[str, Any]:
        # ESPnet3 then addresses utterances by id; it would take an id of digits for a position.
        if not isinstance(utt_id, str):
            raise KeyError(f"{utt_id!r}: an utterance id expected")
        item = {name: reader[utt_id] for name, reader in self._readers.items()}
        return {key: v if isinstance(v, str) else np.asarray(v, np.float32) for key, v in item.items()}
