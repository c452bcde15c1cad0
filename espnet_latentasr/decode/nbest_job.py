"""Candidate lists of a whole test set: one job's share, files in and out.

A finished batch is appended to ``<output>.partial`` at once, so a killed job goes on behind it;
``<output>.done.json`` says what a finished file was made of.
"""

from __future__ import annotations

import dataclasses
import heapq
import json
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from tqdm import tqdm

from espnet_latentasr.backbone.base import Backbone, State
from espnet_latentasr.config import DecodeConfig, config_hash, decode_hash
from espnet_latentasr.data.audio import read_audio
from espnet_latentasr.data.kaldi_dir import KaldiDir, c_sorted
from espnet_latentasr.decode.batching import batches_by_length, check_lengths
from espnet_latentasr.decode.encoder_cache import EncoderCache
from espnet_latentasr.decode.job import Rule, job_identity
from espnet_latentasr.decode.loading import Loaded
from espnet_latentasr.decode.nbest import Given, NbestConfig, nbest_lists
from espnet_latentasr.decode.recogniser import Clips, Recogniser, token_cap
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.fileio import atomic_write_text
from espnet_latentasr.rescoring.nbest_list import (
    Meta,
    NBest,
    normalizer_id,
    parse_row,
    read_nbest,
    to_row,
    write_nbest,
)
from espnet_latentasr.text.normalize import get_normalizer


def starting_state(
    recogniser: Recogniser, clips: Clips, decode: DecodeConfig, keys: Sequence[str]
) -> tuple[Backbone, State]:
    """Where a configuration's transcript begins, and the recogniser that continues from there.

    Raises:
        ConfigError: a configuration that leads to several states or to another utterance's.
    """
    recogniser.check(decode)
    if decode.depths != "policy" or decode.latents == "swapped":
        raise ConfigError(
            f"depths: {decode.depths}, latents: {decode.latents}: candidate lists continue from one own "
            "state; use depths: policy (lists by depth are taken in with --depth_nbest)"
        )
    method = recogniser.method
    adapted = method is not None and decode.halting.kind != "never"
    prompt = recogniser.prompt_of(decode)
    read = recogniser.read(recogniser.encode(clips), clips.languages, adapted, 0.0, prompt)
    if not adapted:
        return recogniser.backbone, read.state
    if not method.thinks:
        return method.adapted, read.state
    stages, _ = recogniser.think(read, decode, keys, None)
    return method.adapted, stages[-1]


def _meta(loaded: Loaded, decode: DecodeConfig, config: NbestConfig, given: bool) -> Meta:
    rule = config.sampling
    return Meta(
        gen="ar-sample" if config.samples else "ar-beam",
        G=config.size or 1 + config.samples + config.beam,
        norm=normalizer_id(get_normalizer(config.normalizer)),
        model=f"{loaded.backbone_fingerprint}/{loaded.model_hash}",
        seed=config.seed if config.samples else None,
        num_paths=config.samples or None,
        extra={
            **(dataclasses.asdict(rule) if config.samples else {}),
            "beam": config.beam,
            "decode": decode_hash(dataclasses.replace(decode, batch_size=1)),
            "prompt": config_hash(loaded.recogniser.prompt_of(decode)),
            "depths": given,
        },
    )


def read_depths(path: Path, model: str, utterances: Iterable[str]) -> dict[str, list[Given]]:
    """Token sequences by latent depth of a decoding job's ``nbest.jsonl`` (``depths: all``).

    Raises:
        DataError: another model's lists, or an utterance without one.
    """
    found = {}
    for nbest in read_nbest(path):
        if nbest.meta.model != model:
            raise DataError(
                f"{path}: utterance '{nbest.utt_id}': decoded by model {nbest.meta.model!r}, this one is "
                f"{model!r}; decode with this model"
            )
        found[nbest.utt_id] = [Given(c.tokens, c.depth) for c in nbest.hyps]
    if missing := [utt_id for utt_id in utterances if utt_id not in found]:
        raise DataError(f"{path}: no list of utterance '{missing[0]}' ({len(missing)} are missing)")
    return found


def _resume(partial: Path, identity: dict) -> dict[str, NBest]:
    """Lists that an earlier, killed job of this very kind left behind."""
    done: dict[str, NBest] = {}
    if partial.is_file():
        header, *lines = partial.read_text(encoding="utf-8").split("\n")
        if header == json.dumps(identity):
            for line in lines[:-1]:  # what follows the last line break was cut off while written
                nbest = parse_row(json.loads(line))
                done[nbest.utt_id] = nbest
    rows = "".join(json.dumps(to_row(n), ensure_ascii=False) + "\n" for n in done.values())
    atomic_write_text(partial, json.dumps(identity) + "\n" + rows)
    return done


def run_nbest(
    loaded: Loaded,
    decode: DecodeConfig,
    config: NbestConfig,
    data_dir: Path,
    output: Path,
    job: int = 1,
    num_jobs: int = 1,
    cache_root: Path | None = None,
    depth_nbest: Path | None = None,
) -> int:
    """Write the lists of utterances ``job, job + num_jobs, ...`` (1-based, C order) to ``output``.

    Args:
        decode: where transcripts begin (never halting: the frozen recogniser) and the cap of tokens.
        cache_root: parent of stage 6's caches, as in decoding.
        depth_nbest: lists by latent depth whose texts are taken in.

    Returns:
        Number of utterances computed now.
    """
    data = KaldiDir.load(data_dir)
    languages = data.languages()
    mine = c_sorted(data.text)[job - 1 :: num_jobs]
    depths = {} if depth_nbest is None else read_depths(depth_nbest, loaded.model_hash, mine)
    identity = job_identity(loaded, Rule("nbest", decode), mine, data) | {
        "nbest": config_hash(dataclasses.replace(config, max_rows=max(config.beam, 1))),
        "text": config_hash({utt_id: data.text[utt_id] for utt_id in mine}),
        "depths": config_hash({u: [[*g.tokens, g.depth] for g in depths[u]] for u in depths}),
    }
    marker = output.with_name(output.name + ".done.json")
    if output.is_file() and marker.is_file() and json.loads(marker.read_text()) == identity:
        logging.info("%s: finished before, left as it is", output)
        return 0
    if not mine:
        raise DataError(f"{data_dir}: no utterance for job {job} of {num_jobs}; use fewer jobs")
    marker.unlink(missing_ok=True)
    partial = output.with_name(output.name + ".partial")
    done = _resume(partial, identity)
    todo = [utt_id for utt_id in mine if utt_id not in done]
    clips = {utt_id: read_audio(data.wav[utt_id], utt_id) for utt_id in todo}
    check_lengths(clips, loaded.recogniser.backbone.max_samples)
    cached = (cache_root or data_dir / "no_cache") / data_dir.name
    cache = EncoderCache(cached, loaded.recogniser.backbone)
    meta = _meta(loaded, decode, config, depth_nbest is not None)
    normalizer = get_normalizer(config.normalizer)
    with open(partial, "a", encoding="utf-8") as file:
        batches = list(batches_by_length(clips, decode.batch_size))
        for batch in tqdm(batches, desc=data_dir.name, disable=None):
            audio = [clips[utt_id] for utt_id in batch]
            known = [cache.read(utt_id, clip) for utt_id, clip in zip(batch, audio)]
            whole = None if any(entry is None for entry in known) else known
            heard = Clips(audio, [languages[utt_id] for utt_id in batch], whole)
            caps = [token_cap(len(clip), decode) for clip in audio]
            given = [depths[utt_id] for utt_id in batch] if depths else ()
            with torch.inference_mode():
                reader, state = starting_state(loaded.recogniser, heard, decode, batch)
                lists = nbest_lists(
                    reader, state, batch, caps, config, meta, normalizer, data.text, given
                )
            for nbest in lists:
                done[nbest.utt_id] = nbest
                file.write(json.dumps(to_row(nbest), ensure_ascii=False) + "\n")
            file.flush()
    write_nbest(output, (done[utt_id] for utt_id in mine))
    atomic_write_text(marker, json.dumps(identity) + "\n")
    partial.unlink()
    _report(output, done.values())
    return len(todo)


def _report(output: Path, lists: Iterable[NBest]) -> None:
    every = [candidate for nbest in lists for candidate in nbest.hyps]
    flagged = {name: sum(c.extra[name] for c in every) for name in ("capped", "looping")}
    logging.info("%s: %d candidates, %s", output, len(every), flagged)


def merge_nbest(shares: Sequence[Path], output: Path) -> int:
    """Join the shares of several jobs in C-locale order; every utterance must be in one of them only."""
    return write_nbest(
        output, heapq.merge(*map(read_nbest, shares), key=lambda nbest: nbest.utt_id.encode())
    )
