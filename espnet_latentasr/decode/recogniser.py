"""From waveforms to transcripts for several decoding rules at once; knows no files.

The prompt of an utterance is encoded and prefilled once; every decoding configuration (the frozen
recogniser is the one that never thinks) continues from a copy of that state.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from espnet_latentasr.adaptation.latent import LatentMethod
from espnet_latentasr.backbone.base import Backbone
from espnet_latentasr.config import DecodeConfig, HaltingConfig, PromptConfig
from espnet_latentasr.data.prompt import utterance_prompt
from espnet_latentasr.decode.search import Hypothesis, greedy
from espnet_latentasr.errors import ConfigError
from espnet_latentasr.latent import halting
from espnet_latentasr.latent.loop import Thoughts

SAMPLE_RATE = 16000


@dataclass(frozen=True)
class Trace:
    """What the latent loop did for one utterance (``latent.jsonl``)."""

    values: list[float]
    steps: int
    stopped: str
    update_norms: list[float]
    update_cosines: list[float]
    update_jumps: list[float]


@dataclass(frozen=True)
class Result:
    """One utterance under one configuration; ``seconds`` are its share of the batch's."""

    text: str
    tokens: list[str]
    hypothesis: Hypothesis
    trace: Trace
    seconds: dict[str, float]


def policy_of(config: HaltingConfig) -> halting.Policy:
    """The halting rule a decoding configuration names."""
    if config.kind == "never":
        return halting.never
    if config.kind == "always":
        return halting.always
    if config.kind == "fixed":
        return halting.fixed(config.steps)
    return halting.threshold(config.theta)


def token_cap(samples: int, config: DecodeConfig) -> int:
    """Most new tokens a clip may get, so that a loop ends; reaching it is recorded."""
    return math.ceil(samples / SAMPLE_RATE * config.tokens_per_second) + config.tokens_extra


def trace_of(thoughts: Thoughts, row: int) -> Trace:
    """Read one row's record out of a batch."""
    made = thoughts.made[row].tolist()
    count = sum(made) - 1
    updates = thoughts.updates[row, :count]
    cosines = functional.cosine_similarity(updates[1:], updates[:-1], dim=-1)
    if not bool(thoughts.entered[row]):
        stopped = "entry"
    else:
        stopped = "budget" if int(thoughts.kept[row]) == len(made) - 1 else "step"
    return Trace(
        values=thoughts.values[row, : count + 1].tolist(),
        steps=int(thoughts.kept[row]),
        stopped=stopped,
        update_norms=updates.norm(dim=-1).tolist(),
        update_cosines=cosines.tolist(),
        update_jumps=(updates[1:] - updates[:-1]).norm(dim=-1).tolist(),
    )


class Recogniser:
    """A frozen recogniser with (or without) a trained latent method."""

    def __init__(
        self, backbone: Backbone, method: LatentMethod | None, prompt: PromptConfig
    ) -> None:
        self.backbone, self.method, self.prompt = backbone, method, prompt
        if method is not None:
            method.eval()

    @torch.inference_mode()
    def recognise(
        self,
        clips: Sequence[np.ndarray],
        languages: Sequence[str],
        configs: Sequence[DecodeConfig],
    ) -> list[list[Result]]:
        """Transcribe a batch.

        Args:
            clips: float32 waveforms (S_b,) at 16 kHz.
            languages: code or name per clip.
            configs: decoding rules; results come in the same order.

        Raises:
            ConfigError: a rule needs latents but no trained method was loaded.
        """
        started = time.perf_counter()
        encoded = self.backbone.encode(clips)
        texts = [utterance_prompt(language, self.prompt) for language in languages]
        prompts = [self.backbone.text.prompt(text) for text in texts]
        encode_seconds = time.perf_counter() - started
        started = time.perf_counter()
        if self.method is None:
            probed = self.backbone.prefill(encoded, prompts, None, True)
        else:
            probed = self.method.read_prompt(encoded, prompts)
        shared = {"encode": encode_seconds, "prefill": time.perf_counter() - started}
        return [self._continue(probed, clips, config, shared) for config in configs]

    def _continue(self, probed, clips, config: DecodeConfig, shared) -> list[Result]:
        rows = torch.arange(len(clips), device=probed.mask.device)
        state, thoughts = self.backbone.fork(probed, rows), None
        started = time.perf_counter()
        if self.method is not None:
            # A fixed depth is kept whole: only a threshold judges the step it stops after.
            on_halt = config.on_halt if config.halting.kind == "threshold" else "keep"
            state, thoughts = self.method.think(state, policy_of(config.halting), on_halt=on_halt)
        elif config.halting.kind != "never":
            raise ConfigError(
                f"halting.kind: '{config.halting.kind}' needs a trained model "
                "(--asr_train_config and --asr_model_file)"
            )
        loop_seconds = time.perf_counter() - started
        started = time.perf_counter()
        caps = [token_cap(len(clip), config) for clip in clips]
        hypotheses = greedy(self.backbone, state, caps)
        times = shared | {"loop": loop_seconds, "decode": time.perf_counter() - started}
        seconds = {stage: value / len(clips) for stage, value in times.items()}
        return [
            Result(
                self.backbone.text.detokenize(hypothesis.tokens),
                self.backbone.text.tokens(hypothesis.tokens),
                hypothesis,
                Trace([], 0, "entry", [], [], []) if thoughts is None else trace_of(thoughts, row),
                seconds,
            )
            for row, hypothesis in enumerate(hypotheses)
        ]
