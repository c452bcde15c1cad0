"""Candidate lists of a whole test set: one job's share, files in and out.

A finished batch is appended to ``<output>.partial`` at once, so a killed job goes on behind it;
``<output>.done.json`` says what a finished file was made of.
"""

from __future__ import annotations

import dataclasses
import heapq
import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch

from espnet_latentasr.backbone.base import Backbone, State
from espnet_latentasr.config import DecodeConfig, config_hash, decode_hash
from espnet_latentasr.decode.encoder_cache import EncoderCache
from espnet_latentasr.decode.job import Rule, job_identity
from espnet_latentasr.decode.journal import Journal
from espnet_latentasr.decode.loading import Loaded
from espnet_latentasr.decode.merge import is_finished
from espnet_latentasr.decode.nbest import Given, NbestConfig, nbest_lists
from espnet_latentasr.decode.recogniser import Clips, Recogniser, token_cap
from espnet_latentasr.decode.share import Row, Share, work_off
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
    share = Share.load(data_dir, job, num_jobs)
    recogniser, text, mine = loaded.recogniser, share.data.text, share.utterances
    depths = {} if depth_nbest is None else read_depths(depth_nbest, loaded.model_hash, mine)
    made_with = job_identity(loaded, Rule("nbest", decode), "") | {
        "nbest": config_hash(dataclasses.replace(config, max_rows=max(config.beam, 1))),
    }
    identity = made_with | {
        "data": share.identity(),
        "text": config_hash({utt_id: text[utt_id] for utt_id in mine}),
        "depths": config_hash({u: [[*g.tokens, g.depth] for g in depths[u]] for u in depths}),
    }
    marker = output.with_name(output.name + ".done.json")
    partial = output.with_name(output.name + ".partial")
    if output.is_file() and is_finished(marker, identity):
        logging.info("%s: finished before, left as it is", output)
        partial.unlink(missing_ok=True)
        return 0
    if not mine:
        raise DataError(f"{data_dir}: no utterance for job {job} of {num_jobs}; use fewer jobs")
    marker.unlink(missing_ok=True)
    batches = share.batches(recogniser, [recogniser.prompt_of(decode)], decode.batch_size)
    cached = (cache_root or data_dir / "no_cache") / data_dir.name
    cache = EncoderCache(cached, recogniser.backbone)
    meta = _meta(loaded, decode, config, depth_nbest is not None)
    normalizer = get_normalizer(config.normalizer)

    @torch.inference_mode()
    def lists_of(batch: list[str], _: list[int]) -> list[list[Row]]:
        heard = share.clips(batch, cache, recogniser.backbone.max_samples)
        caps = [token_cap(len(clip), decode) for clip in heard.audio]
        given = [depths[utt_id] for utt_id in batch] if depths else ()
        reader, state = starting_state(recogniser, heard, decode, batch)
        lists = nbest_lists(reader, state, batch, caps, config, meta, normalizer, text, given)
        return [[(nbest.utt_id, to_row(nbest)) for nbest in lists]]

    keys = {u: share.key(u, text[u], [[*g.tokens, g.depth] for g in depths.get(u, ())]) for u in mine}
    with Journal(partial, made_with | {"depths": bool(depths)}, keys) as journal:
        count = work_off(share, batches, [journal], lists_of)
        seen: Counter[str] = Counter()
        write_nbest(output, _counted(map(parse_row, journal.read(mine)), seen))
        logging.info("%s: %s", output, dict(seen))
        atomic_write_text(marker, json.dumps(identity) + "\n")
        journal.remove()
    return count


def _counted(lists: Iterable[NBest], seen: Counter[str]) -> Iterator[NBest]:
    """Pass lists on, counting their candidates and the flagged ones among them."""
    for nbest in lists:
        seen["candidates"] += len(nbest)
        for name in ("capped", "looping"):
            seen[name] += sum(candidate.extra[name] for candidate in nbest.hyps)
        yield nbest


def merge_nbest(shares: Sequence[Path], output: Path) -> int:
    """Join the shares of several jobs in C-locale order; every utterance must be in one of them only."""
    return write_nbest(
        output, heapq.merge(*map(read_nbest, shares), key=lambda nbest: nbest.utt_id.encode())
    )
