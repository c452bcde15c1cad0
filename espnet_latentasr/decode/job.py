"""One decoding job: its share of every test set under every configuration.

A finished batch is written to ``results.partial`` at once, so a killed job goes on behind it; the
share's own files are written whole, from it, at the end.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from espnet_latentasr.config import DecodeConfig, decode_hash
from espnet_latentasr.data.kaldi_dir import write_kaldi_table
from espnet_latentasr.decode.encoder_cache import EncoderCache
from espnet_latentasr.decode.journal import Journal
from espnet_latentasr.decode.loading import Loaded
from espnet_latentasr.decode.merge import MARKER, RECORDS, TABLES, is_finished, job_dir
from espnet_latentasr.decode.recogniser import SAMPLE_RATE, Result
from espnet_latentasr.decode.search import Hypothesis
from espnet_latentasr.decode.share import Row, Share, work_off
from espnet_latentasr.fileio import atomic_path, atomic_write_text

PARTIAL = "results.partial"


@dataclass(frozen=True)
class Rule:
    """A decoding configuration under the name its YAML gave it."""

    tag: str
    config: DecodeConfig


def job_identity(loaded: Loaded, rule: Rule, data: str) -> dict:
    """What a finished share depends on; a share with the same identity is not computed again.

    Args:
        data: the share's own identity.
    """
    identity = {
        "model": loaded.model_hash,
        "backbone": loaded.backbone_fingerprint,
        "decode": decode_hash(rule.config),
        "data": data,
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

    Raises:
        DataError: bad audio or an unknown language, before the first batch; what proved bad later, when
            all others are decoded and kept.
    """
    share = Share.load(data_dir, job, num_jobs)
    recogniser = loaded.recogniser
    for rule in rules:
        recogniser.check(rule.config)
    content = share.identity()
    open_rules: list[tuple[Rule, Path, dict]] = []
    for rule in rules:
        folder = job_dir(output, rule.tag, data_dir.name, job)
        marker = folder / MARKER
        identity = job_identity(loaded, rule, content)
        if is_finished(marker, identity):
            logging.info("%s: finished before, left as it is", folder)
            (folder / PARTIAL).unlink(missing_ok=True)
        else:
            marker.unlink(missing_ok=True)
            open_rules.append((rule, folder, identity))
    if not open_rules:
        return 0
    # The donor of latents is the set's next utterance, whatever the number of jobs.
    everyone = share.everyone
    donor_of = dict(zip(everyone, [*everyone[1:], everyone[0]]))
    swapping = [rule.config.latents == "swapped" for rule, _, _ in open_rules]
    batches = share.batches(
        recogniser,
        {recogniser.prompt_of(rule.config) for rule, _, _ in open_rules},
        min(rule.config.batch_size for rule, _, _ in open_rules),
        [donor_of[utt_id] for utt_id in share.utterances] if any(swapping) else (),
    )
    cached = (cache_root or data_dir / "no_cache") / data_dir.name
    cache, limit = EncoderCache(cached, recogniser.backbone), recogniser.backbone.max_samples

    def decode(batch: list[str], which: list[int]) -> list[list[Row]]:
        clips = share.clips(batch, cache, limit)
        # ESPnet's calculate_rtf takes the time between the two lines: that of the batch.
        for clip in clips.audio:
            logging.info("speech length: %d", len(clip))
        donors = [donor_of[utt_id] for utt_id in batch] if any(swapping[n] for n in which) else []
        results = recogniser.recognise(
            clips,
            [open_rules[n][0].config for n in which],
            batch,
            share.clips(donors, cache, limit) if donors else None,
        )
        for utt_id, result in zip(batch, results[0]):
            logging.info("best hypo: %s %s", utt_id, result.text)
        return [
            [
                (utt_id, _row(utt_id, result, len(clip), open_rules[n][2]["model"]))
                for utt_id, clip, result in zip(batch, clips.audio, found)
            ]
            for n, found in zip(which, results)
        ]

    with ExitStack() as stack:
        journals = []
        keys = {utt_id: share.key(utt_id) for utt_id in share.utterances}
        swapped = {u: share.key(u, share.audio_identity(donor_of[u])) for u in keys if any(swapping)}
        for (_, folder, identity), swaps in zip(open_rules, swapping):
            made_with = {name: value for name, value in identity.items() if name != "data"}
            journals.append(
                stack.enter_context(Journal(folder / PARTIAL, made_with, swapped if swaps else keys))
            )
        count = work_off(share, batches, journals, decode)
        for journal, (_, folder, identity) in zip(journals, open_rules):
            _write_share(folder, journal, share.utterances, identity)
    return count


def _row(utt_id: str, result: Result, samples: int, model: str) -> dict[str, Any]:
    """All that is written of one utterance: a value for each table, and the two records."""
    latent = {
        "utt_id": utt_id,
        **dataclasses.asdict(result.trace),
        "capped": result.hypothesis.capped,
        "audio_seconds": samples / SAMPLE_RATE,
        "seconds": result.seconds,
    }
    return {
        "text": result.text,
        "token": " ".join(result.tokens),
        "token_int": " ".join(map(str, result.hypothesis.tokens)),
        "score": repr(result.hypothesis.log_probability),
        "latent.jsonl": latent if result.language is None else latent | {"language": result.language},
        "nbest.jsonl": _nbest_row(utt_id, result, model),
    }


def _write_share(folder: Path, journal: Journal, utterances: list[str], identity: dict) -> None:
    """Write the share's files from its journal, then its marker; of a table one column is in memory."""
    for name in TABLES:
        column = zip(utterances, journal.read(utterances))
        write_kaldi_table(folder / "1best_recog" / name, {u: row[name] for u, row in column})
    for name in RECORDS:
        with atomic_path(folder / name) as temporary:
            with open(temporary, "w", encoding="utf-8", newline="\n") as file:
                for row in journal.read(utterances):
                    file.write(json.dumps(row[name], ensure_ascii=False) + "\n")
    atomic_write_text(folder / MARKER, json.dumps(identity) + "\n")
    journal.remove()


def _nbest_row(utt_id: str, result: Result, model: str) -> dict:
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
        "model": model,
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
