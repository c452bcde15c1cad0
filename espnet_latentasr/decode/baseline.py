"""The frozen recogniser's pass over a training set: audio embeddings, hypotheses, CE and accuracy.

All of it is constant while the recogniser is frozen, so it is computed once and kept on disk: as a
Kaldi archive of (A, D) float32 matrices that ESPnet reads, and as Kaldi tables.  An entry is reused
when recogniser, prompt, transcript and audio samples are the same, so a killed pass continues.
"""

from __future__ import annotations

import io
import json
import logging
import zlib
from itertools import count
from pathlib import Path

import numpy as np
import torch
from kaldiio.matio import write_array
from tqdm import tqdm

from espnet_latentasr.backbone.base import Backbone, Encoded, Prompt
from espnet_latentasr.backbone.teacher_forcing import teacher_force
from espnet_latentasr.config import DecodeConfig, PromptConfig, config_hash
from espnet_latentasr.data.audio import audio_sha256, read_audio
from espnet_latentasr.data.kaldi_dir import KaldiDir, read_kaldi_table, write_kaldi_table
from espnet_latentasr.decode.batching import batches_by_length, check_lengths
from espnet_latentasr.decode.encoder_cache import (
    Shard,
    encoder_key,
    index_checksum,
    is_whole,
    read_shard,
)
from espnet_latentasr.decode.recogniser import token_cap
from espnet_latentasr.decode.search import greedy
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.fileio import atomic_path, atomic_write_text, exclusive
from espnet_latentasr.latent.losses import token_scores

SHARD_UTTERANCES = 256
MARKER, EMBEDDINGS, BASELINE = "cache_key", "audio_embeds.scp", "baseline"


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
    """Entries of earlier runs with the same recogniser and prompt, read back and found whole.

    A damaged shard, and an archive whose index a kill kept from being written, are deleted: all
    utterances of it are computed again, in the batches of the first time, under the same name.
    """
    entries: dict[str, dict] = {}
    for index in sorted(folder.glob("shard.*.json")):
        shard = read_shard(index)
        if isinstance(shard, Shard) and shard.key != key:
            continue
        if isinstance(shard, str) or (damaged := shard.damaged()):
            what = shard if isinstance(shard, str) else f"{shard.archive}: damaged at {damaged[:3]}"
            logging.warning("%s; the utterances of this shard are computed again", what)
            index.unlink()
            continue
        entries |= shard.entries
    for archive in folder.glob("shard.*.ark"):
        if not archive.with_suffix(".json").is_file():
            archive.unlink()
    return entries


def _write_shard(folder: Path, key: str, states: dict[str, np.ndarray], rows: dict[str, dict]) -> None:
    names = (folder / f"shard.{number:04d}.ark" for number in count())
    archive = next(name for name in names if not name.exists())
    with atomic_path(archive) as temporary, open(temporary, "wb") as file:
        for utt_id, matrix in states.items():
            buffer = io.BytesIO()
            write_array(buffer, matrix)
            data = buffer.getvalue()
            file.write(f"{utt_id} ".encode())
            place = f"{archive.name}:{file.tell()}"
            rows[utt_id] |= {"ark": place, "length": len(data), "crc32": zlib.crc32(data)}
            file.write(data)
        size = file.tell()
    record = {"key": key, "bytes": size, "crc32": index_checksum(rows), "utterances": rows}
    atomic_write_text(archive.with_suffix(".json"), json.dumps(record, ensure_ascii=False) + "\n")


def cache_key(fingerprint: str, dtype: str, prompt: PromptConfig) -> str:
    """What cached states and scores depend on besides audio and transcript."""
    return f"{encoder_key(fingerprint, dtype)}/{config_hash(prompt)}"


def _scores(entry: dict) -> str:
    return f"{entry['ce']!r} {entry['acc']!r}"


def check_cache(folder: Path, key: str) -> None:
    """Refuse a cache of another recogniser, number type or prompt, and one that is damaged.

    ESPnet reads matrices and scores without looking at checksums, so all are looked at here: a fraction
    of what the first epoch takes to read them.

    Raises:
        ConfigError: the pass has not been completed, or was made for something else.
        DataError: a matrix or a score is not what stage 6 wrote.
    """
    marker = folder / MARKER
    found = marker.read_text(encoding="utf-8").strip() if marker.is_file() else "nothing complete"
    if found != key:
        raise ConfigError(
            f"{folder} holds the frozen pass of {found}, but this model needs {key} (recogniser, type, "
            "prompt); run stage 6 again with this --asr_config"
        )
    if not (folder / EMBEDDINGS).is_file():
        return
    again = "run stage 6 again: it computes what is damaged anew"
    shards: dict[str, Shard] = {}
    scores = read_kaldi_table(folder / BASELINE)
    for utt_id, place in read_kaldi_table(folder / EMBEDDINGS).items():
        name, _, offset = place.rpartition("/")[2].rpartition(":")
        if name not in shards:
            shard = read_shard((folder / name).with_suffix(".json"))
            if isinstance(shard, str):
                raise DataError(f"{shard}; {again}")
            shards[name] = shard
        entry = shards[name].entries.get(utt_id, {})
        if entry.get("ark") != f"{name}:{offset}" or not is_whole(folder / name, entry):
            raise DataError(f"{folder / name}: utterance '{utt_id}': damaged matrix; {again}")
        if scores.get(utt_id) != _scores(entry):
            raise DataError(
                f"{folder / BASELINE}: utterance '{utt_id}': {scores.get(utt_id)!r}, but stage 6 found "
                f"{_scores(entry)!r}; {again}"
            )


def baseline_pass(
    backbone: Backbone, prompt: PromptConfig, data_dir: Path, output: Path, batch_size: int = 16
) -> tuple[int, int]:
    """Fill ``output`` for a formatted data directory.

    Writes ``audio_embeds.scp``, ``baseline`` (``utt CE accuracy``) and ``hyp``, then the
    cache's key, which marks it complete.

    Returns:
        Number of utterances computed now, number reused.

    Raises:
        Busy: another process is at work on ``output``.
    """
    data = KaldiDir.load(data_dir)
    output.mkdir(parents=True, exist_ok=True)
    with exclusive(output):
        return _fill(backbone, prompt, data, output, batch_size)


def _fill(
    backbone: Backbone, prompt: PromptConfig, data: KaldiDir, output: Path, batch_size: int
) -> tuple[int, int]:
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
        for batch in tqdm(list(batches_by_length(todo, batch_size)), desc=data.path.name, disable=None):
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
            logging.info("%s: %d of %d", data.path, start + len(rows), len(utts))
    write_kaldi_table(output / "hyp", {u: entries[u]["hyp"] for u in utts})
    write_kaldi_table(output / BASELINE, {u: _scores(entries[u]) for u in utts})
    write_kaldi_table(output / EMBEDDINGS, {u: str(output / entries[u]["ark"]) for u in utts})
    atomic_write_text(output / MARKER, key + "\n")
    return done, reused
