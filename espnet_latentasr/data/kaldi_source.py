"""Kaldi directories from elsewhere: knows how they differ from ours, and makes them ours.

Their paths are relative to their own folder or to the corpus' above it, their tables may be
unsorted, ids need not begin with the speaker, and the language is not written.  What is wrong, not
only different, is an error that names it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from espnet_latentasr.data.audio import REMEDIES, SAMPLE_RATE, AudioError, AudioProblem, read_audio
from espnet_latentasr.data.format import MapFunction, count_reasons
from espnet_latentasr.data.kaldi_dir import AudioSource, KaldiDir, read_kaldi_table
from espnet_latentasr.errors import DataError
from espnet_latentasr.text.languages import get_language

NAMED = 10  # so many unusable utterances are named in a message


def read_source(folder: Path, language: str, speaker_prefix: str = "spk") -> KaldiDir:
    """Read ``wav.scp``, ``text``, ``utt2spk`` and, where they are, ``segments`` and ``utt2lang``.

    Paths become absolute.  If some id does not begin with its speaker, all become
    ``<speaker_prefix><speaker>-<id>``.  Without ``utt2lang`` all utterances are of ``language``.

    Raises:
        DataError: a table that is missing or malformed, or tables that disagree.
    """
    names = ["wav.scp", "text", "utt2spk"]
    names += [name for name in ("segments", "utt2lang") if (folder / name).exists()]
    tables = {name: read_kaldi_table(folder / name, require_sorted=False) for name in names}
    wav = {rec: _absolute(path, folder) for rec, path in tables.pop("wav.scp").items()}
    spk = tables["utt2spk"]
    if not all(utt.startswith(speaker) for utt, speaker in spk.items()):
        # An utterance without speaker keeps its id, so that the check below finds and names it.
        new = {utt: f"{speaker_prefix}{speaker}-{utt}" for utt, speaker in spk.items()}
        tables["utt2spk"] = {utt: f"{speaker_prefix}{speaker}" for utt, speaker in spk.items()}
        tables = {n: {new.get(utt, utt): v for utt, v in t.items()} for n, t in tables.items()}
        if "segments" not in tables:
            wav = {new.get(utt, utt): path for utt, path in wav.items()}
    if "utt2lang" not in tables:
        tables["utt2lang"] = dict.fromkeys(tables["text"], get_language(language).code)
    return KaldiDir(folder, wav, **tables)


def _absolute(path: str, folder: Path) -> str:
    places = [folder / path, folder.parent / path]
    return os.path.abspath(next((p for p in places if os.path.exists(p)), places[0]))


def read_lengths(
    sets: Mapping[str, KaldiDir], map_fn: MapFunction = map
) -> dict[str, float | AudioProblem]:
    """Read all audio of all sets; return each utterance's seconds, or what is wrong with it."""
    jobs = [(utt, data.source(utt)) for data in sets.values() for utt in data.utts]
    return dict(zip((utt for utt, _ in jobs), map_fn(_read_length, jobs), strict=True))


def _read_length(job: tuple[str, AudioSource]) -> float | AudioProblem:
    utt, source = job
    try:
        return len(read_audio(source.path, utt, span=source[1:])) / SAMPLE_RATE
    except AudioError as error:
        return error.problem


def raise_unusable(where: Path, problems: list[AudioProblem], entries: int) -> None:
    """Raise `DataError` for unusable audio, if there is any: counts by reason, and the first names."""
    if problems:
        known = [reason for reason in REMEDIES if any(p.reason == reason for p in problems)]
        first = " | ".join(map(str, problems[:NAMED]))
        more = f" | and {len(problems) - NAMED} more" if len(problems) > NAMED else ""
        raise DataError(
            f"{where}: {len(problems)} of {entries} utterances are unusable "
            f"({count_reasons((p.reason for p in problems), known)}): {first}{more}"
        )


def import_kaldi_dir(src: Path, out: Path, language: str, map_fn: MapFunction = map) -> KaldiDir:
    """Make ``out/<name of src>`` a valid Kaldi directory of the audio that lies in ``src``.

    Raises:
        DataError: see `read_source`; unusable audio; another set of that name below ``out``.
    """
    src = src.resolve()
    data = read_source(src, language)
    target = out / src.name
    if (target / "wav.scp").exists() and KaldiDir.load(target) != replace(data, path=target):
        raise DataError(f"{target}: another set is there; move it away, or give another --out")
    lengths = read_lengths({src.name: data}, map_fn)
    raise_unusable(src, [x for x in lengths.values() if isinstance(x, AudioProblem)], len(lengths))
    return data.save(target)
