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
from espnet_latentasr.data.prompt import utterance_prompt
from espnet_latentasr.decode.controls import controlled_updates
from espnet_latentasr.decode.search import Hypothesis, greedy, read_line
from espnet_latentasr.errors import ConfigError
from espnet_latentasr.latent import halting
from espnet_latentasr.latent.other_loops import inject
from espnet_latentasr.latent.record import Thoughts

SAMPLE_RATE = 16000
LANGUAGE_CAP = 32  # tokens of a language line; with the published tokenizer none has more than six


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
class _Read:
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
        encoded = self._encode(clips)
        encode_seconds = time.perf_counter() - started
        thinks = self.method is not None and self.method.thinks
        read: dict[bool, _Read] = {}
        donated: Tensor | None = None
        results = []
        for config in configs:
            adapted = self.method is not None and (thinks or config.halting.kind != "never")
            if adapted not in read:
                read[adapted] = self._read(encoded, clips.languages, adapted, encode_seconds)
            if config.latents == "swapped" and donated is None:
                donated = self._updates(donors)
            names = keys if keys is not None else [str(row) for row in range(len(clips))]
            results.append(self._continue(read[adapted], clips, config, names, donated, adapted))
        return results

    def _encode(self, clips: Clips) -> Encoded:
        if clips.embeddings is None:
            return self.backbone.encode(clips.audio)
        return Encoded(tuple(clips.embeddings))

    def _prompts(self, languages: Sequence[str]) -> list[Prompt]:
        texts = [utterance_prompt(language, self.prompt) for language in languages]
        return [self.backbone.text.prompt(text) for text in texts]

    def _read(
        self, encoded: Encoded, languages: Sequence[str], adapted: bool, encode_seconds: float
    ) -> _Read:
        started = time.perf_counter()
        prompts, lines = self._prompts(languages), None
        if self.prompt.language == "auto":
            reader = self.method.adapted if adapted else self.backbone
            state = reader.prefill(encoded, prompts, None, True)
            state, ids = read_line(reader, state, self.backbone.text.line_end_id, LANGUAGE_CAP)
            lines = [self.backbone.text.detokenize(row) for row in ids]
            if adapted:
                state = self.method.extend(state)
        elif adapted:
            state = self.method.read_prompt(encoded, prompts)
        else:
            state = self.backbone.prefill(encoded, prompts, None, True)
        seconds = {"encode": encode_seconds, "prefill": time.perf_counter() - started}
        return _Read(state, lines, seconds)

    def _updates(self, clips: Clips | None) -> Tensor:
        """g_k delta_k (B, N, D) of other clips, all N steps."""
        if clips is None:
            raise ValueError("latents: swapped needs donors")
        encoded = self._encode(clips)
        probed = self._read(encoded, clips.languages, True, 0.0).state
        return self.method.think(probed, halting.always)[1].updates

    def _think(
        self, read: _Read, config: DecodeConfig, keys: Sequence[str], donated: Tensor | None
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
        read: _Read,
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
            stages, thoughts = self._think(read, config, keys, donated)
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
