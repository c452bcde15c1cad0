"""The corpora of the paper: knows how their transcripts are written, and makes their sets.

``prepare_<corpus>(out, src)`` makes Kaldi directories ``out/<corpus>_<part>_<split>`` from a local copy
in its published layout, or of the hub's Parquet files, or without ``src`` from the hub.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from espnet_latentasr.data import corpus_set
from espnet_latentasr.data.corpus_source import Source, parts_there
from espnet_latentasr.data.layouts import IGNORED
from espnet_latentasr.data.published import (
    AUTO,
    SPLITS,
    SetName,
    get_published,
    published_names,
)
from espnet_latentasr.data.speechocean762 import CASES, written
from espnet_latentasr.errors import ConfigError

THREADS = 8  # they wait for the disk
# Tags of GigaSpeech: punctuation, and utterances without speech (its README).
PUNCTUATION = {" <COMMA>": ",", " <PERIOD>": ".", " <QUESTIONMARK>": "?", " <EXCLAMATIONPOINT>": "!"}
NO_SPEECH = re.compile(r"^\s*<(SIL|MUSIC|NOISE|OTHER)>\s*$")


def gigaspeech_text(text: str) -> str:
    """Write punctuation as marks; an utterance without speech has no words.

    >>> gigaspeech_text("AND THEN <COMMA> WHAT <QUESTIONMARK>"), gigaspeech_text("<SIL>")
    ('AND THEN, WHAT?', '')
    """
    if NO_SPEECH.match(text):
        return ""
    for tag, mark in PUNCTUATION.items():
        text = text.replace(tag, mark)
    return text


def tedlium_text(text: str) -> str:
    """Leave out noises, unknown words and marks of pronunciation; join what stands apart before '.

    >>> tedlium_text("{COUGH} it 's <sil> for(2) this <unk>")
    "it's for this"
    """
    if text.strip() == IGNORED:
        return ""
    text = re.sub(r"\{[^}]*\}|<[^>]*>|\[[^]]*\]|\(\d+\)", " ", text)
    return re.sub(r"\s+'(?=\w)", "'", " ".join(text.split()))


def prepare_corpus(
    name: str,
    out: Path,
    src: Path | None = None,
    *,
    parts: Sequence[str] = (),
    splits: Sequence[str] = (),
    text: Callable[[str], str] = str,
    case: str | None = None,
    revision: str | None = None,
    streaming: bool = True,
    limit: int | None = None,
    unknown: str = "auto",
    downloads: Path = Path("downloads"),
    threads: int = THREADS,
) -> dict[str, dict[str, Any]]:
    """Make the sets of a corpus; what is finished is left as it is.

    Args:
        src: a local copy; None reads the hub at ``revision``, a commit.
        parts: configurations, locales or tiers of ``hub_corpora.yaml``; default: all that the copy has,
            or that ``hub_corpora.yaml`` names.
        splits: of `SPLITS`; default: all that are published.
        text: makes our transcript of the published one.
        case: see `speechocean762.written`; default: as the corpus's row says.
        limit: take only the first so many utterances of each set, which is then called ``..._<limit>``.
        unknown: "auto" marks languages without a code as such, "error" refuses them.
        downloads: where archives of a copy are unpacked.

    Returns:
        What ``prepared.json`` says, by the name of the set's folder.

    Raises:
        DataError: a copy that is not whole (test sets), malformed, or not there.
    """
    corpus = get_published(name)
    case = case or corpus.case
    if case not in CASES:
        raise ConfigError(f"case '{case}': one of {', '.join(CASES)} expected")
    if limit is not None and limit < 1:
        raise ConfigError(f"limit {limit}: at least 1 expected")
    if wrong := [split for split in splits if split not in SPLITS]:
        raise ConfigError(f"split '{wrong[0]}': one of {', '.join(SPLITS)} expected")
    reports = {}
    if not parts:
        parts = parts_there(name, src) or ["all"] if src else ["all"]
    for part in corpus.expand(parts):
        language = corpus.language(part, unknown)
        if corpus.score_language(part) == AUTO:
            logging.warning(
                "%s: part '%s' has no language of text/languages.yaml: its sets say 'auto', which can "
                "only be decoded (prompt_conf: {language: auto}), neither trained on nor scored",
                name, part,
            )  # fmt: skip
        for split in splits or [s for s in SPLITS if published_names(corpus.hub.splits, part, s)]:
            where = SetName(corpus, part, split)
            folder = out / (str(where) if limit is None else f"{where}_{limit}")
            source = Source(where, src, revision, streaming, downloads)
            options = {"case": case, "limit": limit, "language": language, "languages": corpus.languages}
            plan = [str(where), source.identity(), options]
            digest = hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()
            if marker := corpus_set.finished(folder, digest):
                logging.info("%s: complete, left as it is", folder)
                reports[folder.name] = marker
                continue
            logging.info("%s: reading %s", folder, source.name)
            scribe = corpus_set.Scribe(lambda words: written_as(text(words), case), language)
            tables = corpus_set.collect(source.rows(), where, folder, scribe, threads, limit)
            corpus_set.check_complete(where, source.name, tables, source.missing)
            reports[folder.name] = corpus_set.save_set(where, folder, tables, {
                "plan_sha256": digest, "corpus": name, "part": part, "split": split,
                "page": corpus.page, "licence": corpus.licence, "citation": corpus.citation,
                "source": source.name, "revision": source.revision, "missing_files": source.missing,
                **options,
            })  # fmt: skip
    return reports


def written_as(text: str, case: str) -> str:
    """Write a transcript in a case; what has its punctuation already gets no second full stop."""
    stripped = text.strip()
    if not stripped or case != "sentence" or stripped[-1] not in ".?!":
        return written(stripped, case) if stripped else ""
    return written(stripped[:-1], case)[:-1] + stripped[-1]


prepare_common_voice = partial(prepare_corpus, "common_voice")
prepare_fleurs = partial(prepare_corpus, "fleurs")
prepare_voxpopuli = partial(prepare_corpus, "voxpopuli")
prepare_librispeech = partial(prepare_corpus, "librispeech")
prepare_gigaspeech = partial(prepare_corpus, "gigaspeech", text=gigaspeech_text)
prepare_peoples_speech = partial(prepare_corpus, "peoples_speech")
prepare_ascend = partial(prepare_corpus, "ascend")
prepare_ami = partial(prepare_corpus, "ami")
prepare_tedlium = partial(prepare_corpus, "tedlium", text=tedlium_text)
prepare_mls = partial(prepare_corpus, "mls")
prepare_minds14 = partial(prepare_corpus, "minds14")

PREPARE: dict[str, Callable[..., dict[str, dict[str, Any]]]] = {
    "common_voice": prepare_common_voice,
    "fleurs": prepare_fleurs,
    "voxpopuli": prepare_voxpopuli,
    "librispeech": prepare_librispeech,
    "gigaspeech": prepare_gigaspeech,
    "peoples_speech": prepare_peoples_speech,
    "ascend": prepare_ascend,
    "ami": prepare_ami,
    "tedlium": prepare_tedlium,
    "mls": prepare_mls,
    "minds14": prepare_minds14,
}
