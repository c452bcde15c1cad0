"""ESPnet3's test sets: a Kaldi data directory as ``data_src``, and the provider that builds them."""

from __future__ import annotations

from typing import Any

from espnet_latentasr.data.audio import read_audio
from espnet_latentasr.data.kaldi_dir import KaldiDir, c_sorted
from espnet_latentasr.toolkit.compat import ensure_torchaudio

ensure_torchaudio()

from espnet3.components.data.base_dataset import BaseDataset  # noqa: E402
from espnet3.contract import Field  # noqa: E402
from espnet3.systems.base.inference_provider import InferenceProvider  # noqa: E402


class Provider(InferenceProvider):
    """ESPnet3's own; a worker process that imports it can import ESPnet where torchaudio is not."""


class Dataset(BaseDataset):
    """Utterances by position: ``utt_id``, ``speech`` (S,) float32 at 16 kHz, ``text``, ``language``."""

    fields = (
        Field("utt_id", "text"),
        Field("speech", "audio"),
        Field("text", "text"),
        Field("language", "text"),
    )

    def __init__(self, data_dir: str) -> None:
        self._data = KaldiDir.load(data_dir)
        self._ids = c_sorted(self._data.text)
        self._languages = self._data.languages()

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: int) -> dict[str, Any]:
        utt_id = self._ids[int(index)]
        return {
            "utt_id": utt_id,
            "speech": read_audio(self._data.wav[utt_id], utt_id),
            "text": self._data.text[utt_id],
            "language": self._languages[utt_id],
        }
