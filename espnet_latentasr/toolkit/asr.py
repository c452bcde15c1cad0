"""ESPnet's stock ASR task, importable where torchaudio is not (see `compat`)."""

from __future__ import annotations

from .compat import ensure_torchaudio

ensure_torchaudio()

from espnet.nets.pytorch_backend.transformer.subsampling import TooShortUttError  # noqa: E402
from espnet2.tasks.asr import ASRTask  # noqa: E402

__all__ = ["ASRTask", "TooShortUttError"]
