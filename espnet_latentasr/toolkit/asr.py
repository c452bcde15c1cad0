"""ESPnet's stock ASR task, importable where torchaudio is not (see `compat`), with whole checkpoints."""

from __future__ import annotations

from .compat import ensure_torchaudio

ensure_torchaudio()

from espnet.nets.pytorch_backend.transformer.subsampling import TooShortUttError  # noqa: E402
from espnet2.tasks.asr import ASRTask as _ASRTask  # noqa: E402

from .checkpoints import WholeTrainer  # noqa: E402


class ASRTask(_ASRTask):
    """ESPnet's own, except that its trainer writes files whole and lets one process at a folder."""

    trainer = WholeTrainer


__all__ = ["ASRTask", "TooShortUttError"]
