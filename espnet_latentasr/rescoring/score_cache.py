"""Text -> score on disk: a text is scored once across lists, sizes, depths and seeds; knows no model.

    <root>/<key>/identity.json       what the scores depend on (its hash is the key)
    <root>/<key>/shard.*.jsonl       a header with count and checksum, then [text, score] lines

Shards are written whole, so a killed run loses at most its latest chunk, and several jobs may write side
by side.  Before a hit is believed, its shard's checksum must hold and a few stored scores are computed
again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from espnet_latentasr.errors import DataError
from espnet_latentasr.fileio import atomic_write_text
from espnet_latentasr.rescoring.lm_text import Scorer

CHUNK_TEXTS = 2048
RECOMPUTED = 4


def cache_key(identity: Mapping[str, object]) -> str:
    """Sixteen hex digits that name a scorer: model, tokenizer and options, independent of key order."""
    text = json.dumps(identity, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class ScoreCache:
    """The stored scores of one scorer below ``root``."""

    def __init__(self, root: Path, identity: Mapping[str, object]) -> None:
        self.key = cache_key(identity)
        self.folder = Path(root) / self.key
        self._identity = json.dumps(identity, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        self.scores: dict[str, float | None] = {}
        for path in sorted(self.folder.glob("shard.*.jsonl")):
            self.scores = self._read(path) | self.scores

    def _read(self, path: Path) -> dict[str, float | None]:
        header, _, body = path.read_bytes().partition(b"\n")
        try:
            expected = json.loads(header)
            found = {"key": self.key, "sha256": hashlib.sha256(body).hexdigest()}
            if expected == found:
                return dict(json.loads(line) for line in body.splitlines())
        except ValueError:
            pass
        logging.warning("%s: damaged or of another scorer, its texts are scored again", path)
        return {}

    def add(self, scores: Mapping[str, float | None]) -> None:
        """Store scores in a shard of their own."""
        if not scores:
            return
        if not (self.folder / "identity.json").is_file():
            atomic_write_text(self.folder / "identity.json", self._identity)
        body = "".join(json.dumps([text, scores[text]], ensure_ascii=False) + "\n" for text in scores)
        digest = hashlib.sha256(body.encode()).hexdigest()
        header = json.dumps({"key": self.key, "sha256": digest}) + "\n"
        atomic_write_text(self.folder / f"shard.{uuid.uuid4().hex}.jsonl", header + body)
        self.scores |= scores


def _check_hits(scorer: Scorer, cache: ScoreCache, hits: Mapping[str, str]) -> None:
    """Compute a few stored scores again (those of the smallest text hashes: any run checks the same)."""
    order = sorted(hits, key=lambda text: hashlib.sha256(text.encode()).digest())
    sample = {text: hits[text] for text in order[:RECOMPUTED]}
    for text, fresh in scorer.score(sample).items():
        stored = cache.scores[text]
        both = fresh is not None and stored is not None
        if fresh != stored and not (both and abs(fresh - stored) <= scorer.tolerance):
            raise DataError(
                f"{cache.folder}: utterance '{sample[text]}': stored score {stored!r} of {text!r}, but "
                f"this model gives {fresh!r}; the cache is not this model's: delete that folder"
            )


def cached_scores(
    scorer: Scorer, texts: Mapping[str, str], root: Path | None = None
) -> tuple[dict[str, float | None], int]:
    """Score texts, each once, taking from and adding to the cache below ``root`` (None: no cache).

    Args:
        texts: text -> an utterance that has it.

    Returns:
        Score of each text, and how many of them were computed now.
    """
    cache = None if root is None else ScoreCache(root, scorer.identity)
    known = {} if cache is None else {t: cache.scores[t] for t in texts if t in cache.scores}
    if known:
        _check_hits(scorer, cache, {text: texts[text] for text in known})
    # Texts of similar length side by side, so that batches carry little padding.
    todo = iter(sorted(texts.keys() - known.keys(), key=lambda text: (len(text), text)))
    computed = 0
    while chunk := list(islice(todo, CHUNK_TEXTS)):
        fresh = scorer.score({text: texts[text] for text in chunk})
        if cache is not None:
            cache.add(fresh)
        known |= fresh
        computed += len(fresh)
        logging.info("%d of %d texts scored", len(known), len(texts))
    return {text: known[text] for text in texts}, computed
