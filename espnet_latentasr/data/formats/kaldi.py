"""Kaldi directories in and out: knows how utterances become one, with ids that do as file names."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from espnet_latentasr.data.formats.base import NAMED, Read, ReadOptions, Utterance, find_audio
from espnet_latentasr.data.kaldi_dir import KaldiDir, write_kaldi_table
from espnet_latentasr.data.kaldi_source import read_source
from espnet_latentasr.data.sound_files import file_of
from espnet_latentasr.data.transcripts import mend_transcript
from espnet_latentasr.errors import DataError
from espnet_latentasr.text.languages import get_language

AUTO = "auto"  # a language that the recogniser has to tell by itself
ORIGINAL = "utt2original"  # ids of the format that was read, where ours differ


@dataclass(frozen=True)
class KaldiOptions:
    """How a directory is written.

    ``language``: of utterances that name none.  ``utt_as_speaker``: forget the speakers.
    ``allow_empty_text``: for sets that the length filter will see.
    """

    language: str | None = None
    utt_as_speaker: bool = False
    allow_empty_text: bool = False
    overwrite: bool = False


@dataclass(frozen=True)
class Written:
    """What was written where, with counts of what was changed."""

    path: Path
    utterances: int
    counts: dict[str, int] = field(default_factory=dict)


def read_kaldi(paths: Sequence[Path], options: ReadOptions) -> Read:
    """Read one directory from anywhere; see `kaldi_source.read_source` for what may differ from ours."""
    if len(paths) != 1:
        raise DataError(f"{len(paths)} inputs: one Kaldi directory expected; convert them one by one")
    folder = paths[0]
    if options.language is None and not (folder / "utt2lang").exists():
        raise DataError(f"{folder}: no utt2lang; give the language of its utterances with --lang")
    data = read_source(folder, options.language or "en", speaker_prefix="")
    base, utterances = folder.resolve(), []
    for utt in data.utts:
        source = data.source(utt)
        path = source.path
        if not os.path.isfile(file_of(path)):
            path = find_audio(os.path.relpath(path, base), base)
        utterances.append(
            Utterance(
                utt, source._replace(path=path), data.text[utt], f"{folder}", data.utt2spk[utt],
                data.languages()[utt], data.segments[utt].split()[0] if data.segments else None,
            )
        )  # fmt: skip
    return Read(utterances)


def write_kaldi(utterances: Sequence[Utterance], output: Path, options: KaldiOptions) -> Written:
    """Write a valid Kaldi directory; audio stays where it is.

    Blanks, slashes and control characters in ids become ``_``; unless all ids begin with their
    speaker, all become ``SPEAKER-ID``.  ``utt2original`` then keeps the ids that were read.

    Raises:
        DataError: nothing to write, missing audio, texts or languages, two ids that become one, an
            unknown language, or another set at ``output``.
    """
    if not utterances:
        raise DataError(f"{output}: no utterance to write; is --input the right one?")
    _all(utterances, lambda u: not os.path.isfile(file_of(u.source.path)), "have no audio file",
         "correct the paths or restore the files", lambda u: f" ({u.source.path})")  # fmt: skip
    text = [_mended(u) for u in utterances]
    if not options.allow_empty_text:
        empty = {id(u) for u, t in zip(utterances, text, strict=True) if not t}
        _all(utterances, lambda u: id(u) in empty, "have no transcript",
             "write them, or --allow_empty_text true for a training set")  # fmt: skip
    if options.language is None:
        _all(utterances, lambda u: not u.language, "name no language", "give it with --lang")
    language = [_language(u, options.language) for u in utterances]
    speakers, ids = _names(utterances, options.utt_as_speaker)
    rows = list(zip(ids, utterances, strict=True))
    segments, wav = None, {utt: u.source.path for utt, u in rows}
    if any(u.source[1:] != (0.0, None) for u in utterances):
        segments, wav = _segments(rows)
    data = KaldiDir(
        output, wav, dict(zip(ids, text, strict=True)), dict(zip(ids, speakers, strict=True)),
        dict(zip(ids, language, strict=True)), segments,
    )  # fmt: skip
    if (output / "wav.scp").exists() and not options.overwrite:
        if KaldiDir.load(output, allow_empty_text=True) != data:
            raise DataError(f"{output}: another set is there; move it away, or --overwrite true")
    renamed = {utt: u.utt_id for utt, u in rows if utt != u.utt_id}
    (output / ORIGINAL).unlink(missing_ok=True)
    if renamed:
        write_kaldi_table(output / ORIGINAL, {utt: _one_line(was) for utt, was in renamed.items()})
    data.save(output)
    counts = {
        "ids changed": len(renamed),
        "texts brought to one line in NFC": sum(data.text[utt] != u.text for utt, u in rows),
        "without speaker": sum(not u.speaker for u in utterances),
        "without language of their own": sum(not u.language for u in utterances),
    }
    return Written(output, len(ids), counts)


def _all(utterances, is_bad, what, remedy, more=lambda u: "") -> None:
    """Raise `DataError` with count, places and ids of the utterances that are bad in one way."""
    if bad := [u for u in utterances if is_bad(u)]:
        named = "; ".join(f"{u.where}: utterance '{u.utt_id}'{more(u)}" for u in bad[:NAMED])
        raise DataError(f"{len(bad)} of {len(utterances)} utterances {what}: {named}; {remedy}")


def _mended(utterance: Utterance) -> str:
    try:
        return mend_transcript(utterance.text)
    except DataError as error:
        raise DataError(f"{utterance.where}: utterance '{utterance.utt_id}': {error}") from error


def _language(utterance: Utterance, default: str | None) -> str:
    if utterance.language == AUTO:
        return AUTO
    try:
        return get_language(utterance.language or default).code
    except DataError as error:
        raise DataError(f"{utterance.where}: utterance '{utterance.utt_id}': {error}") from error


def safe_name(name: str) -> str:
    """Return an id that is one word and does as a file name."""
    return re.sub(r"[\s/\x00-\x1f\x7f-\x9f]+", "_", mend_transcript(name).strip()).strip("_") or "_"


def _one_line(name: str) -> str:
    return re.sub(r"[\r\n]+", " ", name)


def _names(utterances: Sequence[Utterance], utt_as_speaker: bool) -> tuple[list[str], list[str]]:
    """Return speakers and ids as Kaldi wants them: safe, unique, an id beginning with its speaker."""
    ids = [safe_name(u.utt_id) for u in utterances]
    if utt_as_speaker or not any(u.speaker for u in utterances):
        speakers = ids
    else:
        named = [safe_name(u.speaker) if u.speaker else "" for u in utterances]
        speakers = [spk or utt for spk, utt in zip(named, ids, strict=True)]
        if not all(utt.startswith(spk) for utt, spk in zip(ids, speakers, strict=True)):
            ids = [f"{spk}-{utt}" if spk != utt else utt for utt, spk in zip(ids, speakers, strict=True)]
    seen: dict[str, Utterance] = {}
    for utt, u in zip(ids, utterances, strict=True):
        if utt in seen:
            other = seen[utt]
            raise DataError(
                f"{u.where}: utterance '{u.utt_id}': its id becomes '{utt}', as that of '{other.utt_id}' "
                f"({other.where}) does; rename one, or choose ids by --id_column where there is one"
            )
        seen[utt] = u
    return speakers, ids


def _segments(rows: Sequence[tuple[str, Utterance]]) -> tuple[dict[str, str], dict[str, str]]:
    """Return ``segments`` and ``wav.scp`` of utterances of which some are parts of their files."""
    segments, wav = {}, {}
    for utt, u in rows:
        recording = safe_name(u.recording or Path(u.source.path).stem)
        if wav.setdefault(recording, u.source.path) != u.source.path:
            raise DataError(
                f"{u.where}: utterance '{u.utt_id}': recording '{recording}' is {u.source.path} here and "
                f"{wav[recording]} elsewhere; rename one"
            )
        end = "-1" if u.source.end is None else _seconds(u.source.end)
        segments[utt] = f"{recording} {_seconds(u.source.start)} {end}"
    return segments, wav


def _seconds(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")
