"""Utterances for the page: which are listed, what is known of each, and where its audio is."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import soundfile

from espnet_latentasr.data.audio import read_audio
from espnet_latentasr.data.kaldi_dir import AudioSource, KaldiDir
from espnet_latentasr.errors import ConfigError
from espnet_latentasr.report.experiment import Experiment
from espnet_latentasr.text.score_dir import score_dir_name

AUDIO = ("link", "embed", "none")
EMBED_LIMIT = 50_000_000  # bytes of audio in one page


@dataclass(frozen=True)
class Row:
    """One utterance; texts are normalised and cut into the unit's tokens, separated by blanks.

    by_depth: errors at depth 0..N, None where they were not decoded.  audio: URI, None: no player.
    """

    test_set: str
    utt: str
    reference: str
    frozen: str
    latent: str
    errors: tuple[int, int]
    length: int
    seconds: float
    steps: int
    stopped: str
    values: tuple[float, ...]
    by_depth: tuple[int, ...] | None
    audio: str | None


@dataclass(frozen=True)
class Listing:
    """The rows, and how many utterances they were chosen from; ``changed``: whose errors differ.

    files: per set its name and (system, path from the page) of the scored alignments.
    """

    tag: str
    rows: tuple[Row, ...]
    total: int
    changed: int
    files: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()


def listing(exp: Experiment, tag: str, limit: int, audio: str, page_dir: Path) -> Listing:
    """Utterances of all test sets under one configuration, those whose errors change most first.

    Args:
        limit: most rows; equal changes are taken in the order of sets and ids.
        audio: ``link`` (relative to ``page_dir``), ``embed`` or ``none``.

    Raises:
        ConfigError: more audio to embed than a page can hold.
    """
    found = []
    for key in exp.test_keys():
        frozen = exp.decoded.get((exp.options.frozen_tag, key[1]))
        if key[0] == tag and frozen is not None:
            change = frozen.errors - exp.decoded[key].errors
            found += [
                (-abs(int(change[row])), len(found) + row, key[1], row) for row in range(len(change))
            ]
    found.sort()
    chosen, sources = found[:limit], {name: _sources(exp, name) for name in {f[2] for f in found[:limit]}}
    rows, embedded = [], 0
    for _, _, name, place in chosen:
        latent, frozen = exp.decoded[tag, name], exp.decoded[exp.options.frozen_tag, name]
        utt, depths = latent.utts[place], exp.depths.get((tag, name))
        uri = _uri(sources[name].get(utt), utt, audio, page_dir)
        if uri is not None and audio == "embed":
            embedded += len(uri)
            if embedded > EMBED_LIMIT:
                raise ConfigError(
                    f"--audio embed: more than {EMBED_LIMIT:,} bytes of audio; lower --max_utterances "
                    f"({limit}) or use --audio link"
                )
        rows.append(
            Row(
                name, utt, latent.references[place], frozen.hypotheses[place], latent.hypotheses[place],
                (int(frozen.errors[place]), int(latent.errors[place])), int(latent.lengths[place]),
                float(latent.audio_seconds[place]), int(latent.steps[place]), str(latent.stopped[place]),
                tuple(latent.values[place]),
                None if depths is None else tuple(depths.errors[place].tolist()),
                uri,
            )
        )  # fmt: skip
    sets = dict.fromkeys(f[2] for f in sorted(found, key=lambda f: f[2].encode()))
    files = tuple((name, _alignment_files(exp, tag, name, page_dir)) for name in sets)
    return Listing(tag, tuple(rows), len(found), sum(f[0] != 0 for f in found), files)


def _alignment_files(
    exp: Experiment, tag: str, name: str, page_dir: Path
) -> tuple[tuple[str, str], ...]:
    sides = ((who, exp.decoded[who, name]) for who in (exp.options.frozen_tag, tag))
    paths = ((who, d.folder / score_dir_name(exp.unit) / "result.txt") for who, d in sides)
    return tuple((who, Path(os.path.relpath(path, page_dir)).as_posix()) for who, path in paths)


def _sources(exp: Experiment, name: str) -> Mapping[str, AudioSource]:
    """Audio of a set's utterances; none where its data directory is not there."""
    folder = exp.options.data_root / name
    if not (folder / "wav.scp").is_file():
        return {}
    data = KaldiDir.load(folder, allow_empty_text=True)
    return {utt: data.source(utt) for utt in data.utts}


def _uri(source: AudioSource | None, utt: str, audio: str, page_dir: Path) -> str | None:
    if source is None or audio == "none" or not Path(source.path).is_file():
        return None
    if audio == "embed":
        buffer = io.BytesIO()
        samples = read_audio(source.path, utt, span=(source.start, source.end))
        soundfile.write(buffer, samples, 16000, subtype="PCM_16", format="WAV")
        return "data:audio/wav;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
    path = quote(Path(os.path.relpath(source.path, page_dir)).as_posix())
    if source.start == 0 and source.end is None:
        return path
    return f"{path}#t={source.start:g}" + ("" if source.end is None else f",{source.end:g}")
