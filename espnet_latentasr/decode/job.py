"""One decoding job: its share of every test set under every configuration."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from espnet_latentasr.config import DecodeConfig, config_hash, decode_hash
from espnet_latentasr.data.audio import read_audio
from espnet_latentasr.data.kaldi_dir import KaldiDir, c_sorted, write_kaldi_table
from espnet_latentasr.decode.batching import batches_by_length, check_lengths
from espnet_latentasr.decode.encoder_cache import EncoderCache
from espnet_latentasr.decode.loading import Loaded
from espnet_latentasr.decode.merge import MARKER, RECORDS, job_dir
from espnet_latentasr.decode.recogniser import SAMPLE_RATE, Clips, Result
from espnet_latentasr.decode.search import Hypothesis
from espnet_latentasr.fileio import atomic_write_text


@dataclass(frozen=True)
class Rule:
    """A decoding configuration under the name its YAML gave it."""

    tag: str
    config: DecodeConfig


def job_identity(loaded: Loaded, rule: Rule, utterances: list[str], data: KaldiDir) -> dict:
    """What a finished share depends on; a share with the same identity is not computed again.

    Audio counts by path, size and time of change: new samples under an old name are new data.
    """
    sources = [data.source(utt_id) for utt_id in utterances]
    stats = [os.stat(source.path) for source in sources]
    audio = [[*source, stat.st_size, stat.st_mtime_ns] for source, stat in zip(sources, stats)]
    spoken = data.languages()
    languages = [spoken[utt_id] for utt_id in utterances]
    identity = {
        "model": loaded.model_hash,
        "backbone": loaded.backbone_fingerprint,
        "decode": decode_hash(rule.config),
        "data": config_hash({"utterances": utterances, "audio": audio, "languages": languages}),
    }
    # In words: reports tell by it which decodings differ in the prompt only.
    own = rule.config.prompt
    return identity if own is None else identity | {"prompt": dataclasses.asdict(own)}


def run_job(
    loaded: Loaded,
    rules: Sequence[Rule],
    data_dir: Path,
    output: Path,
    job: int,
    num_jobs: int,
    cache_root: Path | None = None,
) -> int:
    """Decode utterances ``job, job + num_jobs, ...`` (1-based, C order) of one set.

    Args:
        cache_root: parent of stage 6's caches; audio that is found there is not encoded again (and the
            recorded seconds of encoding are then those of reading).

    Returns:
        Number of utterances decoded now (0: all rules had finished before).
    """
    data = KaldiDir.load(data_dir)
    languages = data.languages()
    everyone = c_sorted(data.text)
    mine = everyone[job - 1 :: num_jobs]
    # The donor of latents is the set's next utterance, whatever the number of jobs.
    donor_of = dict(zip(everyone, [*everyone[1:], everyone[0]])) if everyone else {}
    for rule in rules:
        loaded.recogniser.check(rule.config)
    open_rules = []
    for rule in rules:
        folder = job_dir(output, rule.tag, data_dir.name, job)
        marker = folder / MARKER
        identity = job_identity(loaded, rule, mine, data)
        if marker.is_file() and json.loads(marker.read_text()) == identity:
            logging.info("%s: finished before, left as it is", folder)
        else:
            marker.unlink(missing_ok=True)
            open_rules.append((rule, folder, identity))
    if not open_rules or not mine:
        for _, folder, identity in open_rules:
            _write_share(folder, {}, {}, identity, loaded)
        return 0
    clips = {utt_id: read_audio(data.wav[utt_id], utt_id) for utt_id in mine}
    check_lengths(clips, loaded.recogniser.backbone.max_samples)
    cached = (cache_root or data_dir / "no_cache") / data_dir.name
    cache = EncoderCache(cached, loaded.recogniser.backbone)
    swapping = any(rule.config.latents == "swapped" for rule, _, _ in open_rules)

    def batch_of(utterances: list[str]) -> Clips:
        audio = [clips[u] if u in clips else read_audio(data.wav[u], u) for u in utterances]
        known = [cache.read(u, clip) for u, clip in zip(utterances, audio)]
        whole = None if any(entry is None for entry in known) else known
        return Clips(audio, [languages[u] for u in utterances], whole)

    found: list[dict[str, Result]] = [{} for _ in open_rules]
    size = min(rule.config.batch_size for rule, _, _ in open_rules)
    for batch in tqdm(list(batches_by_length(clips, size)), desc=data_dir.name, disable=None):
        results = loaded.recogniser.recognise(
            batch_of(batch),
            [rule.config for rule, _, _ in open_rules],
            batch,
            batch_of([donor_of[utt_id] for utt_id in batch]) if swapping else None,
        )
        for utt_id in batch:
            logging.info("speech length: %d", len(clips[utt_id]))
        for store, rule_results in zip(found, results):
            store.update(zip(batch, rule_results))
    samples = {utt_id: len(clip) for utt_id, clip in clips.items()}
    for store, (_, folder, identity) in zip(found, open_rules):
        _write_share(folder, store, samples, identity, loaded)
    for utt_id in mine:
        logging.info("best hypo: %s %s", utt_id, found[0][utt_id].text)
    return len(mine)


def _write_share(
    folder: Path,
    results: dict[str, Result],
    samples: dict[str, int],
    identity: dict,
    loaded: Loaded,
) -> None:
    tables = {
        "text": lambda r: r.text,
        "token": lambda r: " ".join(r.tokens),
        "token_int": lambda r: " ".join(map(str, r.hypothesis.tokens)),
        "score": lambda r: repr(r.hypothesis.log_probability),
    }
    for name, read in tables.items():
        write_kaldi_table(folder / "1best_recog" / name, {u: read(r) for u, r in results.items()})
    latent, nbest = [], []
    for utt_id in c_sorted(results):
        result = results[utt_id]
        row = {
            "utt_id": utt_id,
            **dataclasses.asdict(result.trace),
            "capped": result.hypothesis.capped,
            "audio_seconds": samples[utt_id] / SAMPLE_RATE,
            "seconds": result.seconds,
        }
        latent.append(row if result.language is None else row | {"language": result.language})
        nbest.append(_nbest_row(utt_id, result, identity))
    for name, rows in zip(RECORDS, (latent, nbest)):
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        atomic_write_text(folder / name, "".join(lines))
    atomic_write_text(folder / MARKER, json.dumps(identity) + "\n")


def _nbest_row(utt_id: str, result: Result, identity: dict) -> dict:
    """The N-best schema: the one hypothesis, or those of all depths 0..N in this order.

    Text is left unnormalised and says so; equal texts of different depths are not joined here.
    """
    if result.depths:
        hypotheses = [_candidate(text, h, k) for k, (text, h) in enumerate(result.depths)]
    else:
        hypotheses = [_candidate(result.text, result.hypothesis, result.trace.steps)]
    meta = {
        "gen": "latent-depth",
        "G": len(hypotheses),
        "norm": "none",
        "seed": None,
        "model": identity["model"],
    }
    return {"utt_id": utt_id, "ref": None, "meta": meta, "greedy_idx": 0, "hyps": hypotheses}


def _candidate(text: str, hypothesis: Hypothesis, depth: int) -> dict:
    return {
        "text": text,
        "surface": text,
        "tokens": list(hypothesis.tokens),
        "count": 1,
        "am_logp": hypothesis.log_probability,
        "n_tok": len(hypothesis.tokens),
        "n_char": len(text),
        "scores": {},
        "depth": depth,
    }
