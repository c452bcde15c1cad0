"""Training of the mini task's recogniser from scratch; the only code that changes backbone weights.

Three things make a model this small learn in minutes on a CPU: weights drawn by fan-in (with the
library's fixed standard deviation the convolutions' signal is 10^4 times smaller than the position
sinusoids), an auxiliary CTC loss on the audio embeddings that is thrown away afterwards, and noise on
the fly.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset
from transformers import Qwen3ASRForConditionalGeneration, Qwen3ASRProcessor

from espnet_latentasr.backbone.mini import (
    MiniSize,
    build_config,
    build_processor,
    build_tokenizer,
    tokenizer_corpus,
)
from espnet_latentasr.data.audio import read_audio, to_pcm16
from espnet_latentasr.data.kaldi_dir import KaldiDir
from espnet_latentasr.data.mini.asterisk import SPEAKER

IGNORED = -100
PAUSE = "<asr_text>"


@dataclass(frozen=True)
class TrainPlan:
    """Optimisation of the recogniser; ``steps`` fixes the result, not the clock.

    ``recorded_repeat``: how often a recorded prompt is drawn for each draw of a synthetic clip.
    ``pause_slots``: each transcript is preceded by 0..pause_slots copies of ``<asr_text>``, half of
    them at the last prompt position and half at positions of their own: a recogniser *prepared* for
    latent positions, which is another recogniser than the plain one and named so.
    """

    steps: int = 2800
    batch_size: int = 16
    learning_rate: float = 1.5e-3
    warmup: int = 200
    ctc_weight: float = 0.5
    clean_share: float = 0.15
    recorded_repeat: int = 2
    snr_range: tuple[float, float] = (0.0, 20.0)
    pause_slots: int = 0
    seed: int = 1


def initialize_by_fan_in(model: Qwen3ASRForConditionalGeneration) -> None:
    """Redraw the weights so that signal and positions have comparable size; residual branches x0.5."""
    width = model.config.text_config.hidden_size
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        elif isinstance(module, nn.Linear) and module is not model.lm_head:
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=width**-0.5)
    with torch.no_grad():
        model.model.audio_tower.conv_out.weight.mul_(2.0)
        for layer in model.model.audio_tower.layers:
            layer.self_attn.out_proj.weight.mul_(0.5)
            layer.fc2.weight.mul_(0.5)
        for layer in model.model.language_model.layers:
            layer.self_attn.o_proj.weight.mul_(0.5)
            layer.mlp.down_proj.weight.mul_(0.5)


class NoisyClips(Dataset):
    """Clips of a set, each drawn with new noise, gain and margins; keyed by (seed, draw number)."""

    def __init__(self, clips: list[np.ndarray], plan: TrainPlan) -> None:
        self.clips, self.plan = clips, plan

    def __len__(self) -> int:
        return len(self.clips)

    def _noise(self, length: int, rng: np.random.Generator) -> np.ndarray:
        kind = rng.random()
        if kind < 0.5:
            return rng.standard_normal(length).astype(np.float32)
        if kind < 0.75:  # pink
            spectrum = np.fft.rfft(rng.standard_normal(length))
            spectrum /= np.sqrt(np.maximum(np.arange(len(spectrum)), 1))
            return np.fft.irfft(spectrum, length).astype(np.float32)
        babble = np.zeros(length, np.float32)
        for index in rng.integers(len(self.clips), size=4):
            clip = self.clips[index].astype(np.float32)
            babble += np.resize(np.roll(clip, int(rng.integers(len(clip)))), length)
        return babble

    def __getitem__(self, key: tuple[int, int]) -> np.ndarray:
        index, draw = key
        rng = np.random.default_rng([self.plan.seed, draw])
        margins = rng.integers(0, 4800, size=2)
        audio = np.pad(self.clips[index].astype(np.float32) / 32768.0, margins)
        if rng.random() >= self.plan.clean_share:
            snr = rng.uniform(*self.plan.snr_range)
            noise = self._noise(len(audio), rng)
            power = np.mean(audio**2) / max(float(np.mean(noise**2)), 1e-12)
            audio = audio + noise * np.float32(math.sqrt(power / 10 ** (snr / 10)))
        return (audio * rng.uniform(0.3, 1.0)).astype(np.float32)


def bucketed_batches(lengths: np.ndarray, plan: TrainPlan) -> Iterator[list[tuple[int, int]]]:
    """Yield ``plan.steps`` batches of (clip index, draw number) of similar length."""
    rng = np.random.default_rng(plan.seed)
    draw, pool = 0, []
    for _ in range(plan.steps):
        if not pool:
            order = rng.permutation(len(lengths))
            span = plan.batch_size * 20
            for start in range(0, len(order), span):
                block = order[start : start + span]
                block = block[np.argsort(lengths[block], kind="stable")]
                starts = range(0, len(block) - plan.batch_size + 1, plan.batch_size)
                pool += [block[i : i + plan.batch_size] for i in starts]
            pool = [pool[i] for i in rng.permutation(len(pool))]
        yield [(int(index), draw + i) for i, index in enumerate(pool.pop())]
        draw += plan.batch_size


class _Collate:
    """Make model inputs: prompt, transcript, features, labels on the transcript only, CTC targets."""

    def __init__(self, processor: Qwen3ASRProcessor, texts: list[str], plan: TrainPlan) -> None:
        self.processor, self.texts, self.plan = processor, texts, plan

    def __call__(self, keyed: list[tuple[tuple[int, int], np.ndarray]]) -> dict:
        texts = [self.texts[key[0]] for key, _ in keyed]
        audio = [np.pad(clip, (0, -len(clip) % 160)) for _, clip in keyed]
        language = ["English"] * len(texts)
        prompts = self.processor.apply_transcription_request(
            audio=audio, language=language, tokenize=False
        )
        rng = np.random.default_rng([self.plan.seed, keyed[0][0][1], 1])
        pauses = rng.integers(0, self.plan.pause_slots + 1, size=len(texts))
        full = [
            p + PAUSE * int(n) + text + "<|im_end|>" for p, n, text in zip(prompts, pauses, texts)
        ]
        batch = dict(self.processor(text=full, audio=audio))
        targets = [self.processor.tokenizer(text).input_ids for text in texts]
        labels = torch.full_like(batch["input_ids"], IGNORED)
        for row, ids in enumerate(targets):  # left padding: the transcript is the row's tail
            labels[row, -len(ids) - 1 :] = batch["input_ids"][row, -len(ids) - 1 :]
        if self.plan.pause_slots:
            held = pauses * (rng.random(len(texts)) < 0.5)
            lengths = [len(ids) + 1 for ids in targets]
            batch["position_ids"] = positions_with_pauses(batch["attention_mask"], lengths, held)
        # The library measures a shorter clip's padding as log-mel of silence: make it plain zeros.
        batch["input_features"] = batch["input_features"] * batch["input_features_mask"][:, None]
        return {"inputs": batch, "labels": labels, "targets": targets}


def positions_with_pauses(mask: Tensor, lengths: Sequence[int], held: Sequence[int]) -> Tensor:
    """Position numbers (B, T) of left-padded rows whose pauses take no number of their own.

    Args:
        mask: (B, T), 1 for real tokens.
        lengths: tokens of each row's transcript, end token included.
        held: number of tokens before the transcript that repeat the number before them.
    """
    numbered = mask.long().clone()
    for row, (length, count) in enumerate(zip(lengths, held, strict=True)):
        end = mask.shape[1] - length
        numbered[row, end - int(count) : end] = 0
    return (numbered.cumsum(1) - 1).clamp(min=0)


class _KeyedClips(Dataset):
    def __init__(self, clips: NoisyClips) -> None:
        self.clips = clips

    def __len__(self) -> int:
        return len(self.clips)

    def __getitem__(self, key: tuple[int, int]) -> tuple[tuple[int, int], np.ndarray]:
        return key, self.clips[key]


def _losses(model, head: nn.Linear, batch: dict, processor) -> tuple[Tensor, Tensor]:
    inputs = batch["inputs"]
    output = model(**inputs, use_cache=False)
    wanted = batch["labels"][:, 1:]
    kept = wanted != IGNORED
    language_model = functional.cross_entropy(output.logits[:, :-1][kept], wanted[kept])
    frames = inputs["input_features_mask"].sum(-1)
    lengths = torch.as_tensor(processor._get_audio_token_length(frames)).long()
    states = nn.utils.rnn.pad_sequence(
        list(output.audio_hidden_states.split(lengths.tolist())), batch_first=True
    )
    posterior = head(states).log_softmax(-1).transpose(0, 1)
    blank = head.out_features - 1
    ctc = functional.ctc_loss(
        posterior,
        torch.tensor([token for ids in batch["targets"] for token in ids]),
        lengths,
        torch.tensor([len(ids) for ids in batch["targets"]]),
        blank=blank,
        zero_infinity=True,
    )
    return language_model, ctc


def learning_rate_at(step: int, plan: TrainPlan) -> float:
    """Linear warm-up, then half a cosine to 2 % of the peak."""
    cosine = 0.5 * (1 + math.cos(math.pi * step / plan.steps))
    return plan.learning_rate * min(1.0, (step + 1) / plan.warmup) * (0.98 * cosine + 0.02)


def train_recogniser(
    model: Qwen3ASRForConditionalGeneration,
    processor: Qwen3ASRProcessor,
    clips: list[np.ndarray],
    texts: list[str],
    plan: TrainPlan,
) -> list[dict[str, float]]:
    """Train the model in place from the weights it has; returns one log row per 100 steps.

    Draws from torch's global generator: seed it before.

    Args:
        clips: int16 samples (S,) at 16 kHz.
        texts: their transcripts, same order.
    """
    head = nn.Linear(model.config.text_config.hidden_size, len(processor.tokenizer) + 1)
    parameters = [*model.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=0.0, betas=(0.9, 0.98), weight_decay=0.01)
    dataset = NoisyClips(clips, plan)
    lengths = np.array([len(clip) for clip in clips])
    loader = DataLoader(
        _KeyedClips(dataset),
        batch_sampler=list(bucketed_batches(lengths, plan)),
        collate_fn=_Collate(processor, texts, plan),
        num_workers=1,
        prefetch_factor=8,
    )
    model.train()
    started, rows = time.time(), []
    for step, batch in enumerate(loader):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(step, plan)
        language_model, ctc = _losses(model, head, batch, processor)
        weight = plan.ctc_weight * (1 - 0.7 * step / plan.steps)
        optimizer.zero_grad(set_to_none=True)
        (language_model + weight * ctc).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if (step + 1) % 100 == 0:
            row = {"step": step + 1, "ce": language_model.item(), "ctc": ctc.item()}
            rows.append(row | {"seconds": round(time.time() - started, 1)})
            logging.info("step %(step)d ce %(ce).3f ctc %(ctc).3f %(seconds).0f s", rows[-1])
    return rows


def train_from_data_dir(
    data_dir: Path, output: Path, plan: TrainPlan, vocab_size: int, initial: Path | None = None
) -> list[dict[str, float]]:
    """Train on a Kaldi directory and save in the library's format.

    Args:
        initial: folder of a trained recogniser to go on from; None builds tokenizer and model anew.
    """
    data = KaldiDir.load(data_dir)
    utts = sorted(data.text, key=str.encode)
    texts = [data.text[utt_id] for utt_id in utts]
    clips = [to_pcm16(read_audio(data.wav[utt_id], utt_id)) for utt_id in utts]
    if initial is None:
        size = MiniSize()
        processor = build_processor(build_tokenizer(tokenizer_corpus(texts), vocab_size), size.mel_bins)
        torch.manual_seed(plan.seed)
        model = Qwen3ASRForConditionalGeneration(build_config(processor.tokenizer, size))
        torch.manual_seed(plan.seed)
        initialize_by_fan_in(model)
    else:
        torch.manual_seed(plan.seed)
        processor = Qwen3ASRProcessor.from_pretrained(initial)
        model = Qwen3ASRForConditionalGeneration.from_pretrained(initial)
    recorded = [index for index, utt_id in enumerate(utts) if data.utt2spk[utt_id] == SPEAKER]
    for index in recorded * (plan.recorded_repeat - 1):
        clips.append(clips[index])
        texts.append(texts[index])
    logging.info("%d parameters, %d clips", sum(p.numel() for p in model.parameters()), len(clips))
    rows = train_recogniser(model, processor, clips, texts, plan)
    model.eval().save_pretrained(output)
    processor.save_pretrained(output)
    return rows
