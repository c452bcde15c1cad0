"""The frozen recogniser's pass over a training set: audio embeddings, hypotheses, CE and accuracy.

All of it is constant while the recogniser is frozen, so it is computed once and kept on disk: as a
Kaldi archive of (A, D) float32 matrices that ESPnet reads, and as Kaldi tables.  An entry is reused
when recogniser, prompt, transcript and audio samples are the same, so a killed pass continues.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

import kaldiio
import numpy as np
import torch
from tqdm import tqdm

from espnet_latentasr.backbone.base import Backbone, Encoded, Prompt
from espnet_latentasr.backbone.teacher_forcing import teacher_force
from espnet_latentasr.config import DecodeConfig, PromptConfig, config_hash
from espnet_latentasr.data.audio import audio_sha256, read_audio
from espnet_latentasr.data.kaldi_dir import KaldiDir, write_kaldi_table
from espnet_latentasr.decode.batching import batches_by_length, check_lengths
from espnet_latentasr.decode.encoder_cache import encoder_key
from espnet_latentasr.decode.recogniser import token_cap
from espnet_latentasr.decode.search import greedy
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.fileio import atomic_path, atomic_write_text
from espnet_latentasr.latent.losses import token_scores

SHARD_UTTERANCES = 256
MARKER = "cache_key"


@torch.inference_mode()
def score_batch(
    backbone: Backbone, clips: list[np.ndarray], texts: list[str], prompts: list
) -> tuple[Encoded, list[dict]]:
    """Encode, transcribe greedily and teacher-force one batch without latents."""
    encoded = backbone.encode(clips)
    state = backbone.prefill(encoded, prompts, None, True)
    caps = [token_cap(len(clip), DecodeConfig()) for clip in clips]
    hypotheses = greedy(backbone, state, caps)
    targets = [backbone.text.target(text) for text in texts]
    logits, ids, rows = teacher_force(backbone, state, targets)
    cross_entropy, accuracy = token_scores(logits, ids, rows, len(clips))
    return encoded, [
        {"ce": float(ce), "acc": float(acc), "hyp": backbone.text.detokenize(hypothesis.tokens)}
        for ce, acc, hypothesis in zip(cross_entropy, accuracy, hypotheses)
    ]


def _check_positions(backbone: Backbone, utt_id: str, prompt: Prompt, text: str) -> None:
    """Refuse a transcript that the recogniser has no positions for; its end token takes none."""
    needed = len(prompt.before) + len(prompt.after) + len(backbone.text.target(text)) - 1
    if backbone.max_positions is not None and needed > backbone.max_positions:
        raise DataError(
            f"utterance '{utt_id}': prompt and transcript take {needed} positions, but this recogniser "
            f"has {backbone.max_positions}; split it at a pause, or leave it out"
        )


def _known(folder: Path, key: str) -> dict[str, dict]:
    """Entries of earlier runs with the same recogniser and prompt whose archive is still there."""
    entries: dict[str, dict] = {}
    for index in sorted(folder.glob("shard.*.json")):
        shard = json.loads(index.read_text(encoding="utf-8"))
        archive = index.with_suffix(".ark")
        if shard["key"] != key or not archive.is_file():
            continue
        if archive.stat().st_size != shard["bytes"]:
            logging.warning("%s: damaged, its utterances are computed again", archive)
            continue
        entries.update(shard["utterances"])
    return entries


def _write_shard(folder: Path, key: str, states: dict[str, np.ndarray], rows: dict[str, dict]) -> None:
    taken = [int(path.name.split(".")[1]) for path in folder.glob("shard.*.ark")]
    archive = folder / f"shard.{max(taken, default=-1) + 1:04d}.ark"
    with atomic_path(archive) as temporary:
        index = folder / f".{archive.name}.scp.partial"
        kaldiio.save_ark(str(temporary), states, scp=str(index))
        for line in index.read_text(encoding="utf-8").splitlines():
            utt_id, place = line.split(maxsplit=1)
            rows[utt_id]["ark"] = f"{archive.name}:{place.rsplit(':', 1)[1]}"
        index.unlink()
    record = {"key": key, "bytes": archive.stat().st_size, "utterances": rows}
    atomic_write_text(archive.with_suffix(".json"), json.dumps(record, ensure_ascii=False) + "\n")


def cache_key(fingerprint: str, dtype: str, prompt: PromptConfig) -> str:
    """What cached states and scores depend on besides audio and transcript."""
    return f"{encoder_key(fingerprint, dtype)}/{config_hash(prompt)}"


def check_cache(folder: Path, key: str) -> None:
    """Refuse a cache of another recogniser, number type or prompt: its baseline is not this one's.

    Raises:
        ConfigError: the pass has not been completed, or was made for something else.
    """
    marker = folder / MARKER
    found = marker.read_text(encoding="utf-8").strip() if marker.is_file() else "nothing complete"
    if found != key:
        raise ConfigError(
            f"{folder} holds the frozen pass of {found}, but this model needs {key} (recogniser, type, "
            "prompt); run stage 6 again with this --asr_config"
        )


def baseline_pass(
    backbone: Backbone, prompt: PromptConfig, data_dir: Path, output: Path, batch_size: int = 16
) -> tuple[int, int]:
    """Fill ``output`` for a formatted data directory.

    Writes ``audio_embeds.scp``, ``baseline`` (``utt CE accuracy``) and ``hyp``, then the
    cache's key, which marks it complete.

    Returns:
        Number of utterances computed now, number reused.
    """
    data = KaldiDir.load(data_dir)
    output.mkdir(parents=True, exist_ok=True)
    dtype = str(backbone.embedding_table.dtype).removeprefix("torch.")
    key = cache_key(backbone.fingerprint, dtype, prompt)
    entries, languages = _known(output, key), data.languages()
    (output / MARKER).unlink(missing_ok=True)
    reused, done, utts = 0, 0, sorted(data.text, key=str.encode)
    for start in range(0, len(utts), SHARD_UTTERANCES):
        todo: dict[str, np.ndarray] = {}
        digests: dict[str, str] = {}
        for utt_id in utts[start : start + SHARD_UTTERANCES]:
            clip = read_audio(data.wav[utt_id], utt_id)
            check_lengths({utt_id: clip}, backbone.max_samples)
            digests[utt_id] = audio_sha256(clip)
            old = entries.get(utt_id)
            if old and old["sha256"] == digests[utt_id] and old["text"] == data.text[utt_id]:
                reused += 1
            else:
                todo[utt_id] = clip
        states: dict[str, np.ndarray] = {}
        rows: dict[str, dict] = {}
        for batch in tqdm(list(batches_by_length(todo, batch_size)), desc=data_dir.name, disable=None):
            prompts = [
                backbone.text.prompt(languages[utt_id], prompt, training=True) for utt_id in batch
            ]
            for utt_id, read in zip(batch, prompts):
                _check_positions(backbone, utt_id, read, data.text[utt_id])
            encoded, scores = score_batch(
                backbone, [todo[u] for u in batch], [data.text[u] for u in batch], prompts
            )
            for utt_id, audio, row in zip(batch, encoded.audio, scores):
                states[utt_id] = audio.float().cpu().numpy()
                rows[utt_id] = row | {"sha256": digests[utt_id], "text": data.text[utt_id]}
        if states:
            _write_shard(output, key, states, rows)
            entries.update(rows)
            done += len(rows)
            logging.info("%s: %d of %d", data_dir, start + len(rows), len(utts))
    write_kaldi_table(output / "hyp", {u: entries[u]["hyp"] for u in utts})
    write_kaldi_table(
        output / "baseline", {u: f"{entries[u]['ce']!r} {entries[u]['acc']!r}" for u in utts}
    )
    write_kaldi_table(
        output / "audio_embeds.scp", {u: str(output / entries[u]["ark"]) for u in utts}
    )
    atomic_write_text(output / MARKER, key + "\n")
    return done, reused
