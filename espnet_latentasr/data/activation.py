"""The activation pool on disk: draws it from prepared sets, or repeats one from its manifest."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path

import soundfile

from espnet_latentasr.data.audio import MAX_SECONDS, MIN_SECONDS, AudioError, read_audio
from espnet_latentasr.data.corpus_set import MARKER
from espnet_latentasr.data.kaldi_dir import AudioSource, KaldiDir
from espnet_latentasr.data.manifest import MANIFEST, Drawn, read_manifest, write_manifest
from espnet_latentasr.data.mixture import Candidate, MixtureSpec, draw_mixture
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.fileio import atomic_write_text
from espnet_latentasr.reading import read_json
from espnet_latentasr.text.languages import load_languages

# Whose utterances a mixture is drawn from.
LANGUAGES = {
    "named": "those Qwen3-ASR has a name for",
    "known": "those of text/languages.yaml",
    "all": "all",
}
CLOSE = 0.05  # seconds that the length of one recording may differ between two copies of a corpus


class Pool:
    """The utterances of several prepared sets, each with its corpus and locale.

    Args:
        folders: sets made by `corpora.prepare_corpus`, all of one published split.

    Raises:
        DataError: a folder that is none, or of another split; an utterance in two of them.
    """

    def __init__(self, folders: Iterable[Path], split: str) -> None:
        self.candidates: list[Candidate] = []
        self.sets: dict[str, KaldiDir] = {}
        for folder in folders:
            if not (folder / MARKER).is_file():
                raise DataError(
                    f"{folder}/{MARKER}: not there, so it is not known what the set is made of; make it "
                    "with python -m espnet_latentasr.bin.prepare"
                )
            marker = read_json(folder / MARKER, "what bin.prepare writes")
            for key in ("split", "corpus", "part"):
                if not isinstance(marker.get(key), str):
                    raise DataError(f"{folder}/{MARKER}: no '{key}'; make the set again (bin.prepare)")
            if marker["split"] != split:
                raise DataError(
                    f"{folder}: is of the published split '{marker['split']}', '{split}' expected"
                )
            data = KaldiDir.load(folder)
            for utt in data.utts:
                if utt in self.sets:
                    raise DataError(
                        f"{folder}: utterance '{utt}' is also in {self.sets[utt].path}; name one of them"
                    )
                self.sets[utt] = data
                self.candidates.append(Candidate(utt, marker["corpus"], marker["part"]))

    def describe(self, one: Candidate) -> Drawn:
        """Return an utterance's line of the manifest."""
        data = self.sets[one.utt]
        text = hashlib.sha256(data.text[one.utt].encode()).hexdigest()
        seconds = f"{length(data.source(one.utt)):.2f}"
        language, speaker = data.languages()[one.utt], data.utt2spk[one.utt]
        return Drawn(one.utt, one.corpus, one.locale, language, speaker, seconds, text)

    def save(self, drawn: Sequence[Drawn], out: Path, about: Mapping[str, object]) -> KaldiDir:
        """Write the manifest, ``mixture.json`` and the Kaldi directory of some utterances."""
        (out / "wav.scp").unlink(missing_ok=True)
        write_manifest(out / MANIFEST, drawn)
        atomic_write_text(out / "mixture.json", json.dumps(about, indent=1, ensure_ascii=False) + "\n")
        wav, segments, tables = {}, {}, {"text": {}, "utt2spk": {}, "utt2lang": {}}
        for utt in (one.utt for one in drawn):
            data = self.sets[utt]
            if data.segments is None:
                recording, segments[utt] = utt, f"{utt} 0 -1"
            else:
                recording, span = data.segments[utt].split(maxsplit=1)
                recording, span = (name := f"{data.path.name}-{recording}"), f"{name} {span}"
                segments[utt] = span
            wav[recording] = data.source(utt).path
            tables["text"][utt], tables["utt2spk"][utt] = data.text[utt], data.utt2spk[utt]
            tables["utt2lang"][utt] = data.languages()[utt]
        cut = any(self.sets[one.utt].segments is not None for one in drawn)
        return KaldiDir(out, wav, **tables, segments=segments if cut else None).save(out)


def length(source: AudioSource) -> float:
    """Return the seconds of an utterance, from its span or its file's header.

    Raises:
        DataError: a file that cannot be read.
    """
    if source.end is not None:
        return source.end - source.start
    try:
        return soundfile.info(source.path).duration - source.start
    except (soundfile.SoundFileError, OSError) as error:
        raise DataError(f"{source.path}: cannot be read ({error}); restore the file") from error


def make_pool(
    folders: Iterable[Path],
    out: Path,
    spec: MixtureSpec,
    *,
    exclude: Mapping[str, str] | None = None,
    languages: str = "all",
    limits: tuple[float, float] = (MIN_SECONDS, MAX_SECONDS),
) -> list[Drawn]:
    """Draw a mixture from prepared sets and write it to ``out`` (`Pool.save`).

    Args:
        exclude: utterance -> why it must not be drawn.
        languages: a key of `LANGUAGES`; what is not among them is passed over, as its prompt cannot be
            forced ("known" is for recognisers that know more languages than Qwen3-ASR).
        limits: shortest and longest utterance in seconds.

    Raises:
        DataError: see `Pool` and `mixture.draw_mixture`.  ConfigError: no such ``languages``.
    """
    if languages not in LANGUAGES:
        raise ConfigError(f"languages '{languages}': one of {', '.join(LANGUAGES)} expected")
    pool = Pool(folders, spec.split)
    passed = dict.fromkeys(("excluded", "language", "length", "unreadable"), 0)

    def why_not(candidate: Candidate) -> str | None:
        data = pool.sets[candidate.utt]
        if candidate.utt in (exclude or {}):
            return "excluded"
        if not is_admitted(data.languages()[candidate.utt], languages):
            return "language"
        source = data.source(candidate.utt)
        try:  # the whole of it, as stage 3 will: what is drawn now cannot be lost there
            read_audio(source.path, candidate.utt, span=source[1:], limits=limits)
        except AudioError as error:
            if error.problem.reason in ("too_long", "too_short"):
                return "length"
            logging.warning("passed over: %s", error)
            return "unreadable"
        return None

    def usable(candidate: Candidate) -> bool:
        if reason := why_not(candidate):
            passed[reason] += 1
        return reason is None

    drawn = [pool.describe(one) for one in draw_mixture(pool.candidates, spec, usable)]
    about = {
        "mixture": asdict(spec),
        "candidates": len(pool.candidates),
        "passed_over": passed,
        "languages": LANGUAGES[languages],
        "limits": limits,
        "excluded": len(exclude or {}),
        "locales": len({(one.corpus, one.locale) for one in drawn}),
    }
    pool.save(drawn, out, about)
    return drawn


def is_admitted(code: str, languages: str) -> bool:
    """Tell whether a language is among those of a key of `LANGUAGES`."""
    known = load_languages()
    return languages == "all" or code in known and (languages == "known" or known[code].qwen)


def repeat_pool(manifest: Path, folders: Iterable[Path], out: Path, split: str) -> list[Drawn]:
    """Make the pool of a manifest from other copies of its corpora, and write it to ``out``.

    Raises:
        DataError: utterances that are not there, or whose transcript, speaker, language or length is
            another; the first are named.
    """
    wanted, pool = read_manifest(manifest), Pool(folders, split)
    there = {candidate.utt: candidate for candidate in pool.candidates}
    problems = []
    for line, one in enumerate(wanted, start=2):
        if one.utt not in there:
            problems.append(
                f"line {line}: utterance '{one.utt}' of {one.corpus} {one.locale} is not there"
            )
            continue
        found = pool.describe(there[one.utt])
        for name in (field.name for field in fields(Drawn)):
            old, new = getattr(one, name), getattr(found, name)
            if old != new and not (name == "seconds" and abs(float(old) - float(new)) <= CLOSE):
                problems.append(f"line {line}: utterance '{one.utt}': {name} '{new}', '{old}' expected")
    if problems:
        raise DataError(
            f"{manifest}: {len(problems)} differences to the prepared sets: {' | '.join(problems[:10])}; "
            "prepare the same releases of the corpora with the same options"
        )
    pool.save(wanted, out, {"manifest": hashlib.sha256(manifest.read_bytes()).hexdigest()})
    return wanted
