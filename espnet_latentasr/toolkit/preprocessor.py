"""Text and language of one utterance -> id arrays; knows the tokenizer, not the model."""

from __future__ import annotations

import numpy as np

from espnet_latentasr.backbone.registry import load_tokenizer
from espnet_latentasr.config import BackboneConfig, PromptConfig
from espnet_latentasr.errors import DataError
from espnet_latentasr.toolkit.compat import AbsPreprocessor

PROMPT_BEFORE, PROMPT_AFTER, TARGETS = "prompt_before", "prompt_after", "targets"


class LatentPreprocessor(AbsPreprocessor):
    """Adds prompt ids and target ids (transcript + end token); the transcript is left untouched."""

    def __init__(self, train: bool, backbone: BackboneConfig, prompt: PromptConfig) -> None:
        super().__init__(train)
        self.backbone, self.prompt = backbone, prompt
        self._tokenizer = None

    def __getstate__(self) -> dict:
        return self.__dict__ | {"_tokenizer": None}  # loader workers load their own

    def __call__(self, uid: str, data: dict[str, str | np.ndarray]) -> dict[str, np.ndarray]:
        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(self.backbone)
        text, language = str(data.pop("text")), str(data.pop("lang"))
        if not text.strip():
            raise DataError(f"utterance '{uid}': empty transcript; stage 4 drops these, run it")
        prompt = self._tokenizer.prompt(language, self.prompt, training=True)
        ids = {
            PROMPT_BEFORE: prompt.before,
            PROMPT_AFTER: prompt.after,
            TARGETS: self._tokenizer.target(text),
        }
        arrays = {key: np.array(found, dtype=np.int64) for key, found in ids.items()}
        return {key: np.asarray(value) for key, value in data.items()} | arrays
