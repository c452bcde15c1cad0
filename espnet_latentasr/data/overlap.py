"""What training and test sets share: knows ids, speakers, normalised texts and checksums of audio.

Two transcripts are the same if they have the same letters and digits (`text_keys`).  Two recordings are
the same if their samples at 16 kHz are: a copy that was encoded again is not found.  A speaker counts as
known if he is not the utterance itself; where a corpus names none, nothing is said of its speakers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from espnet_latentasr.data.audio import AudioError, AudioProblem, audio_sha256, read_audio, to_pcm16
from espnet_latentasr.data.kaldi_dir import AudioSource, KaldiDir, c_sorted, write_kaldi_table
from espnet_latentasr.data.kaldi_source import raise_unusable
from espnet_latentasr.errors import DataError
from espnet_latentasr.fileio import atomic_write_text
from espnet_latentasr.text.normalize import get_normalizer

Checksums = dict[AudioSource, "str | AudioProblem"]
KINDS = ("utterance", "speaker", "text", "audio")
NAMED = 10


@dataclass(frozen=True)
class SetOverlap:
    """One test set: what it shares, by kind: training utterance -> an utterance of the test set."""

    utterances: int
    speakers_known: int
    shared: dict[str, dict[str, str]]


@dataclass(frozen=True)
class Overlap:
    """What the training utterances share with each test set; ``kinds`` are those looked for."""

    train: list[str]
    utterances: int
    speakers_known: int
    kinds: tuple[str, ...]
    tests: dict[str, SetOverlap] = field(default_factory=dict)

    def excluded(self) -> dict[str, str]:
        """Return the training utterances that a test set shares: ``kind set utterance`` of the first."""
        found: dict[str, str] = {}
        for name, one in self.tests.items():
            for kind in self.kinds:
                for utt, tested in one.shared[kind].items():
                    found.setdefault(utt, f"{kind} {name} {tested}")
        return found


def text_keys(text: str, language: str) -> set[str]:
    """Return what makes two transcripts the same: Whisper's basic normalisation without blanks, which
    keeps vowel signs, and for English also its English one ("it's" is "it is").
    """
    names = ["whisper_basic_marks", *(["whisper_en"] if language == "en" else [])]
    keys = {"".join(get_normalizer(name)(text).split()) for name in names}
    return {key for key in keys if any(char.isalnum() for char in key)}


def checksum(job: tuple[str, AudioSource]) -> str | AudioProblem:
    """Return the SHA-256 of an utterance's 16 kHz int16 samples (channels averaged), or a problem."""
    utt, source = job
    try:
        return audio_sha256(to_pcm16(read_audio(source.path, utt, channel="mix", span=source[1:])))
    except AudioError as error:
        return error.problem


def find_overlap(
    train: Iterable[KaldiDir],
    tests: Mapping[str, KaldiDir],
    *,
    audio: bool = True,
    map_fn: Callable[..., Iterable[Any]] = map,
    known: Checksums | None = None,
) -> Overlap:
    """Compare training sets with test sets.

    Args:
        audio: False leaves recordings unread.
        map_fn: may run in parallel.
        known: checksums of recordings that are not read again; those that are read are added.

    Raises:
        DataError: no set, an utterance in two training sets, or recordings that cannot be read.
    """
    train, known = list(train), {} if known is None else known
    if not train or not tests:
        raise DataError(
            f"{len(train)} training and {len(tests)} test sets; at least one of each expected"
        )
    ours: dict[str, dict[str, list[str]]] = {kind: {} for kind in KINDS}
    for data in train:
        if twice := [utt for utt in data.utts if utt in ours["utterance"]]:
            raise DataError(
                f"{data.path}: utterance '{twice[0]}' is in two training sets; name one of them"
            )
        for kind, key, utt in _keys(data, audio, map_fn, known):
            ours[kind].setdefault(key, []).append(utt)
    kinds = KINDS if audio else KINDS[:-1]
    speakers = sum(len(utts) for utts in ours["speaker"].values())
    found = Overlap([str(d.path) for d in train], len(ours["utterance"]), speakers, kinds)
    for name, data in tests.items():
        shared: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}
        speakers = 0
        for kind, key, tested in _keys(data, audio, map_fn, known):
            speakers += kind == "speaker"
            for utt in ours[kind].get(key, ()):
                shared[kind].setdefault(utt, tested)
        found.tests[name] = SetOverlap(len(data.utts), speakers, shared)
    return found


def _keys(
    data: KaldiDir, audio: bool, map_fn: Callable[..., Iterable[Any]], known: Checksums
) -> Iterable[tuple[str, str, str]]:
    """Yield (kind, key, utterance) of everything by which utterances are compared."""
    languages = data.languages()
    for utt in data.utts:
        yield "utterance", utt, utt
        if data.utt2spk[utt] != utt:
            yield "speaker", data.utt2spk[utt], utt
        for key in text_keys(data.text[utt], languages[utt]):
            yield "text", key, utt
    if audio:
        jobs = [(utt, data.source(utt)) for utt in data.utts]
        unread = [job for job in jobs if job[1] not in known]
        known.update(zip((source for _, source in unread), map_fn(checksum, unread), strict=True))
        sums = [known[source] for _, source in jobs]
        raise_unusable(data.path, [x for x in sums if isinstance(x, AudioProblem)], len(jobs))
        yield from (("audio", key, utt) for key, utt in zip(sums, data.utts, strict=True))


def write_overlap(found: Overlap, folder: Path) -> None:
    """Write ``overlap.md``, ``overlap.json`` and ``exclude``, the shared utterances with the reason."""
    excluded = found.excluded()
    tests = {
        name: {"utterances": one.utterances, "speakers_known": one.speakers_known, "shared": one.shared}
        for name, one in found.tests.items()
    }
    table = {
        "train": found.train, "utterances": found.utterances, "speakers_known": found.speakers_known,
        "kinds": found.kinds, "tests": tests, "excluded": len(excluded),
        "excluded_sha256": hashlib.sha256("\n".join(c_sorted(excluded)).encode()).hexdigest(),
    }  # fmt: skip
    write_kaldi_table(folder / "exclude", excluded)
    atomic_write_text(folder / "overlap.md", overlap_markdown(found))
    atomic_write_text(folder / "overlap.json", json.dumps(table, indent=1, ensure_ascii=False) + "\n")


def overlap_markdown(found: Overlap) -> str:
    """Say in a table what is shared, and of how many speakers that can be said."""
    head = ["test set", "utterances", "speaker known", *(f"shared: {kind}" for kind in found.kinds)]
    rows = [head, ["---"] * len(head)]
    for name, one in found.tests.items():
        counts = [len(one.shared[kind]) for kind in found.kinds]
        rows.append([name, one.utterances, one.speakers_known, *counts])
    table = "".join(f"| {' | '.join(map(str, row))} |\n" for row in rows)
    excluded = found.excluded()
    listed = "".join(f"- {utt}: {excluded[utt]}\n" for utt in c_sorted(excluded)[:NAMED])
    more = f"- and {len(excluded) - NAMED} more\n" if len(excluded) > NAMED else ""
    verdict = f"{len(excluded)} training utterances are shared" if excluded else "Nothing is shared"
    without = "" if "audio" in found.kinds else " Recordings were not compared."
    return (
        f"# Overlap\n\n{verdict}: {found.utterances} training utterances ({', '.join(found.train)}), the "
        f"speaker of {found.speakers_known} known. Counts are training utterances; the same text: the "
        f"same letters and digits; the same audio: the same samples at 16 kHz.{without}\n\n"
        f"{table}{listed and chr(10)}{listed}{more}"
    )
