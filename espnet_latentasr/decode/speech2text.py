"""ESPnet's ``Speech2Text`` call for LatentASR: one waveform in, an n-best list of tuples out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from espnet_latentasr.config import DecodeConfig, build, load_yaml
from espnet_latentasr.decode.loading import load_recogniser
from espnet_latentasr.decode.recogniser import Clips
from espnet_latentasr.decode.search import Hypothesis
from espnet_latentasr.errors import ConfigError


class Speech2Text:
    """Recognise one clip at a time.

    >>> speech2text = Speech2Text("exp/backbone", "exp/asr_x/config.yaml", "exp/asr_x/best.pth")
    ... # doctest: +SKIP
    >>> text, tokens, token_ids, hypothesis = speech2text(waveform)[0]  # doctest: +SKIP
    """

    def __init__(
        self,
        backbone_dir: str | Path,
        asr_train_config: str | Path | None = None,
        asr_model_file: str | Path | None = None,
        inference_config: str | Path | None = None,
        device: str = "cpu",
        language: str = "en",
    ) -> None:
        loaded = load_recogniser(backbone_dir, asr_train_config, asr_model_file, device)
        self.recogniser, self.language = loaded.recogniser, language
        if inference_config is not None:
            self.config = build(DecodeConfig, load_yaml(inference_config), str(inference_config))
        elif asr_train_config is None:
            self.config = build(DecodeConfig, {"halting": {"kind": "never"}})
        elif self.recogniser.method.thinks:
            self.config = DecodeConfig()
        else:
            self.config = build(DecodeConfig, {"halting": {"kind": "always"}})
        self.recogniser.check(self.config)
        if self.config.latents == "swapped":
            raise ConfigError("latents: swapped needs a set of utterances; decode a data directory")

    def __call__(
        self, speech: np.ndarray | torch.Tensor, language: str | None = None
    ) -> list[tuple[str, list[str], list[int], Hypothesis]]:
        """Transcribe float samples (S,) at 16 kHz; ESPnet's (text, tokens, token ids, hypothesis)."""
        clip = np.asarray(speech, dtype=np.float32)
        if clip.ndim != 1:
            raise ValueError(f"expected one mono clip (S,), got an array of shape {clip.shape}")
        clips = Clips([clip], [language or self.language])
        results = self.recogniser.recognise(clips, [self.config])
        found = results[0][0]
        return [(found.text, found.tokens, list(found.hypothesis.tokens), found.hypothesis)]
