"""Do training and test sets share anything: ids, speakers, normalised texts, or the audio itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import soundfile

from espnet_latentasr.data.audio import audio_sha256, read_audio
from espnet_latentasr.data.kaldi_dir import KaldiDir, c_sorted, read_kaldi_table
from espnet_latentasr.errors import DataError
from espnet_latentasr.reading import parse_number
from espnet_latentasr.text.normalize import Normalizer


@dataclass(frozen=True)
class Material:
    """What a set is made of, by utterance: speaker, normalised text, number of samples.

    ``audio_hash`` gives an utterance's hash; None: audio is not compared.
    """

    name: str
    speakers: Mapping[str, str]
    texts: Mapping[str, str]
    samples: Mapping[str, int]
    audio_hash: Callable[[str], str] | None = None


@dataclass(frozen=True)
class Overlap:
    """Test utterances that share a property with any training utterance, in C-locale order.

    audio: None where audio was not compared.
    """

    train: str
    test: str
    utterances: int
    ids: tuple[str, ...]
    speakers: tuple[str, ...]
    texts: tuple[str, ...]
    audio: tuple[str, ...] | None


def overlap(train: Material, test: Material) -> Overlap:
    """Compare two sets; only audio of equal length is hashed, since other audio cannot be equal."""
    speakers, texts = set(train.speakers.values()), set(train.texts.values())
    utts = c_sorted(test.speakers)
    audio = None
    if train.audio_hash is not None and test.audio_hash is not None:
        same = set(train.samples.values()) & set(test.samples.values())
        hashes = {train.audio_hash(utt) for utt, size in train.samples.items() if size in same}
        candidates = [utt for utt in utts if test.samples[utt] in same]
        audio = tuple(utt for utt in candidates if test.audio_hash(utt) in hashes)
    return Overlap(
        train.name,
        test.name,
        len(utts),
        tuple(utt for utt in utts if utt in train.speakers),
        tuple(utt for utt in utts if test.speakers[utt] in speakers),
        tuple(utt for utt in utts if test.texts[utt] in texts),
        audio,
    )


def read_material(folder: str | Path, normalizer: Normalizer, audio: bool = True) -> Material:
    """Read a formatted Kaldi directory; lengths come from ``utt2num_samples`` or the files' headers.

    Raises:
        DataError: an inconsistent directory; with ``audio`` also unreadable audio, when it is hashed.
    """
    folder = Path(folder)
    data = KaldiDir.load(folder)
    samples: dict[str, int] = {}
    if audio and data.segments is None and (folder / "utt2num_samples").is_file():
        table = read_kaldi_table(folder / "utt2num_samples")
        where = f"{folder}/utt2num_samples"
        samples = {utt: parse_number(where, table, utt, int) for utt in data.utts}
    elif audio:
        samples = {utt: _frames(data, utt) for utt in data.utts}

    def audio_hash(utt: str) -> str:
        source = data.source(utt)
        return audio_sha256(read_audio(source.path, utt, span=(source.start, source.end)))

    texts = {utt: normalizer(text) for utt, text in data.text.items()}
    return Material(folder.name, data.utt2spk, texts, samples, audio_hash if audio else None)


def _frames(data: KaldiDir, utt: str) -> int:
    source = data.source(utt)
    try:
        info = soundfile.info(source.path)
    except (soundfile.SoundFileError, OSError) as error:
        raise DataError(
            f"{data.path}/wav.scp: utterance '{utt}': {error}; correct the path, or leave audio out of "
            "the comparison"
        ) from error
    if source.end is None and source.start == 0:
        return info.frames
    end = info.duration if source.end is None else source.end
    return round(min(end, info.duration) * info.samplerate) - round(source.start * info.samplerate)
