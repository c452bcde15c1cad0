"""From waveforms to transcripts for several decoding rules at once; knows no files.

The prompt of an utterance is encoded and prefilled once; every decoding configuration (the frozen
recogniser is the one that never thinks) continues from a copy of that state.  Only a method that
changes the decoder itself (LoRA, full fine-tuning) needs a prefill of its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from espnet_latentasr.adaptation.base import Method
from espnet_latentasr.backbone.base import Backbone, Encoded, Prompt, State
from espnet_latentasr.config import DecodeConfig, HaltingConfig, PromptConfig
from espnet_latentasr.decode.controls import controlled_updates
from espnet_latentasr.decode.search import Hypothesis, greedy
from espnet_latentasr.errors import ConfigError
from espnet_latentasr.latent import halting
from espnet_latentasr.latent.other_loops import inject
from espnet_latentasr.latent.record import Thoughts

SAMPLE_RATE = 16000


@dataclass(frozen=True)
class Trace:
    """What the latent loop did for one utterance (``latent.jsonl``).

    ``stopped``: entry, step or budget.
    """

    values: list[float]
    steps: int
    stopped: str
    update_norms: list[float]
    update_cosines: list[float]
    update_jumps: list[float]


@dataclass(frozen=True)
class Result:
    """One utterance under one configuration; ``seconds`` are its share of the batch's.

    ``depths``: text and hypothesis of every depth 0..N where the configuration asks for them.
    ``language``: the line the recogniser wrote itself (``prompt_conf.language: auto``), None if it
    was told, empty if it wrote none.
    """

    text: str
    tokens: list[str]
    hypothesis: Hypothesis
    trace: Trace
    seconds: dict[str, float]
    depths: tuple[tuple[str, Hypothesis], ...] = ()
    language: str | None = None


@dataclass(frozen=True)
class Clips:
    """Utterances to transcribe: float32 waveforms (S_b,) at 16 kHz, code or name of the language each.

    ``embeddings``: where all are known already, their audio embeddings (A_b, D).
    """

    audio: Sequence[np.ndarray]
    languages: Sequence[str]
    embeddings: Sequence[Tensor] | None = None

    def __len__(self) -> int:
        return len(self.audio)


@dataclass(frozen=True)
class Read:
    """A read prompt: the state, language lines in ``auto`` mode, and seconds."""

    state: State
    lines: list[str] | None
    seconds: dict[str, float]


def policy_of(config: HaltingConfig) -> halting.Policy:
    """The halting rule a decoding configuration names."""
    if config.kind == "never":
        return halting.never
    if config.kind in ("always", "surest"):
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
    """A frozen recogniser with (or without) a trained method."""

    def __init__(self, backbone: Backbone, method: Method | None, prompt: PromptConfig) -> None:
        self.backbone, self.method, self.prompt = backbone, method, prompt
        if method is not None:
            method.eval()

    def check(self, config: DecodeConfig) -> None:
        """Refuse a configuration that this model has no meaning for.

        Raises:
            ConfigError: names the key and what would have one.
        """
        kind = config.halting.kind
        if self.method is None and kind != "never":
            raise ConfigError(
                f"halting.kind: '{kind}' needs a trained model "
                "(--asr_train_config and --asr_model_file)"
            )
        if self.method is not None and self.method.thinks:
            return
        adaptation = "none" if self.method is None else self.method.config.adaptation
        if kind not in ("never", "always"):
            raise ConfigError(
                f"halting.kind: '{kind}' contradicts adaptation: {adaptation}, which has no latent "
                "steps; use 'always' (the adapted recogniser) or 'never' (the frozen one)"
            )
        for key, value, neutral in (
            ("depths", config.depths, "policy"),
            ("latents", config.latents, "own"),
        ):
            if value != neutral:
                raise ConfigError(
                    f"{key}: {value} contradicts adaptation: {adaptation}, which has no latents"
                )

    @torch.inference_mode()
    def recognise(
        self,
        clips: Clips,
        configs: Sequence[DecodeConfig],
        keys: Sequence[str] | None = None,
        donors: Clips | None = None,
    ) -> list[list[Result]]:
        """Transcribe a batch.

        Args:
            configs: decoding rules; results come in the same order.
            keys: utterance ids, which ``latents: random`` draws from.
            donors: for each clip the one whose latents ``latents: swapped`` takes.

        Raises:
            ConfigError: a rule that the model has no meaning for.
        """
        for config in configs:
            self.check(config)
        started = time.perf_counter()
        encoded = self.encode(clips)
        encode_seconds = time.perf_counter() - started
        thinks = self.method is not None and self.method.thinks
        read: dict[tuple[bool, PromptConfig], Read] = {}
        donated: dict[PromptConfig, Tensor] = {}
        results = []
        for config in configs:
            adapted = self.method is not None and (thinks or config.halting.kind != "never")
            prompt = self.prompt_of(config)
            place = adapted, prompt
            if place not in read:
                read[place] = self.read(encoded, clips.languages, adapted, encode_seconds, prompt)
            if config.latents == "swapped" and prompt not in donated:
                donated[prompt] = self._updates(donors, prompt)
            names = keys if keys is not None else [str(row) for row in range(len(clips))]
            latents = donated.get(prompt)
            results.append(self._continue(read[place], clips, config, names, latents, adapted))
        return results

    def prompt_of(self, config: DecodeConfig) -> PromptConfig:
        """The prompt under a decoding configuration: its own, else the one of training."""
        return self.prompt if config.prompt is None else config.prompt

    def encode(self, clips: Clips) -> Encoded:
        """Audio embeddings: those that the clips bring along, or made now."""
        if clips.embeddings is None:
            return self.backbone.encode(clips.audio)
        return Encoded(tuple(clips.embeddings))

    def _prompts(self, languages: Sequence[str], prompt: PromptConfig) -> list[Prompt]:
        return [self.backbone.text.prompt(language, prompt) for language in languages]

    def read(
        self,
        encoded: Encoded,
        languages: Sequence[str],
        adapted: bool,
        encode_seconds: float,
        prompt: PromptConfig,
    ) -> Read:
        """Read the prompt; ``adapted``: with what the method needs (probes, trained weights)."""
        started = time.perf_counter()
        prompts, lines = self._prompts(languages, prompt), None
        if prompt.language == "auto":
            reader = self.method.adapted if adapted else self.backbone
            state = reader.prefill(encoded, prompts, None, True)
            state, lines = reader.read_language(state)
            if adapted:
                state = self.method.extend(state)
        elif adapted:
            state = self.method.read_prompt(encoded, prompts)
        else:
            state = self.backbone.prefill(encoded, prompts, None, True)
        seconds = {"encode": encode_seconds, "prefill": time.perf_counter() - started}
        return Read(state, lines, seconds)

    def _updates(self, clips: Clips | None, prompt: PromptConfig) -> Tensor:
        """g_k delta_k (B, N, D) of other clips, all N steps."""
        if clips is None:
            raise ValueError("latents: swapped needs donors")
        encoded = self.encode(clips)
        probed = self.read(encoded, clips.languages, True, 0.0, prompt).state
        return self.method.think(probed, halting.always)[1].updates

    def think(
        self, read: Read, config: DecodeConfig, keys: Sequence[str], donated: Tensor | None
    ) -> tuple[list[State], Thoughts]:
        """Stages and record under a rule; with ``depths: all`` all N + 1 stages."""
        policy = policy_of(config.halting)
        if read.lines is not None:
            # Without a language line there is no place for latents to stand.
            wrote = torch.tensor([bool(line) for line in read.lines], device=read.state.mask.device)
            named = policy

            def policy(value: Tensor, step: int) -> Tensor:
                return named(value, step) & wrote

        rows = torch.arange(read.state.batch_size, device=read.state.mask.device)
        probed = self.backbone.fork(read.state, rows)
        # A fixed depth is kept whole: only a threshold judges the step it stops after.
        on_halt = config.on_halt if config.halting.kind == "threshold" else "keep"
        whole = config.depths == "all"
        running = halting.always if whole else policy
        stages, thoughts = self.method.think(
            probed, running, on_halt="keep" if whole else on_halt
        )
        if whole:
            kept, entered = halting.chosen_depth(thoughts.values, policy, on_halt)
            thoughts = replace(thoughts, kept=kept, entered=entered)
        if config.latents != "own":
            adapter = self.method.adapter
            updates = controlled_updates(config.latents, thoughts.updates, adapter, keys, donated)
            depth = torch.full_like(thoughts.kept, adapter.steps) if whole else thoughts.kept
            start = self.backbone.rollback(stages[-1], stages[0])
            latents = adapter.embedding(updates)
            stages = inject(self.backbone, start, latents, depth, self.method.advance)
        return stages, thoughts

    def _continue(
        self,
        read: Read,
        clips: Clips,
        config: DecodeConfig,
        keys: Sequence[str],
        donated: Tensor | None,
        adapted: bool,
    ) -> list[Result]:
        caps = [token_cap(len(clip), config) for clip in clips.audio]
        started = time.perf_counter()
        thoughts, depths = None, None
        if adapted and self.method.thinks:
            stages, thoughts = self.think(read, config, keys, donated)
            state = stages[-1]
            if config.depths == "all":
                state = self.backbone.branch(stages)
        else:
            state = read.state
        loop_seconds = time.perf_counter() - started
        started = time.perf_counter()
        reader = self.method.adapted if adapted else self.backbone
        copies = state.batch_size // len(clips)
        hypotheses = greedy(reader, state, caps * copies)
        if thoughts is not None and config.depths == "all":
            depths = [hypotheses[row :: len(clips)] for row in range(len(clips))]
            if config.halting.kind == "surest":
                rows = [[h.mean_log_probability for h in row] for row in depths]
                means = torch.tensor(rows, dtype=torch.float64)
                # The first of equals, as numpy's argmax has it in the analyses.
                kept = torch.from_numpy(means.numpy().argmax(1)).to(thoughts.kept.device)
                thoughts = replace(thoughts, kept=kept, entered=kept > 0)
            hypotheses = [depths[row][k] for row, k in enumerate(thoughts.kept.tolist())]
        times = read.seconds | {"loop": loop_seconds, "decode": time.perf_counter() - started}
        seconds = {stage: value / len(clips) for stage, value in times.items()}
        text = self.backbone.text
        return [
            Result(
                text.detokenize(hypothesis.tokens),
                text.tokens(hypothesis.tokens),
                hypothesis,
                Trace([], 0, "entry", [], [], []) if thoughts is None else trace_of(thoughts, row),
                seconds,
                () if depths is None else tuple((text.detokenize(h.tokens), h) for h in depths[row]),
                None if read.lines is None else read.lines[row],
            )
            for row, hypothesis in enumerate(hypotheses)
        ]
