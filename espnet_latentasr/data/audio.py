"""Audio files: knows samples, rates and what makes a clip unusable; refuses to know transcripts.

A clip is mono float32 of shape (S,) in [-1, 1] at 16 kHz.  Whatever would change it beyond
resampling (choosing or mixing channels, cutting) must be asked for.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import soundfile
import soxr

from espnet_latentasr.data.sound_files import file_of, open_sound, read_frames
from espnet_latentasr.errors import DataError
from espnet_latentasr.fileio import atomic_path

SAMPLE_RATE = 16000
MAX_SECONDS = 30.0
MIN_SECONDS = 0.1
# Segment times are written with two decimals, so an end may lie this far behind the last sample.
SEGMENT_ROUNDING = 0.01
# Floating-point samples this far beyond full scale are integers that nobody scaled, not loud audio.
LOUDEST = 100.0
REMEDIES = {
    "missing": "correct the path or restore the file",
    "unreadable": "replace it by a whole WAV or FLAC file, or correct its segment",
    "empty": "record it again or remove the utterance from every table",
    "non_finite": "export it again from its source",
    "silent": "all samples are zero: export it again or remove the utterance from every table",
    "too_long": "cut it, or raise the limit if the model takes it",
    "too_short": "remove the utterance from every table, or lower the limit",
    "stereo": "choose a channel by its number, or 'mix' for the mean of all",
}


@dataclass(frozen=True)
class AudioProblem:
    """Why an utterance's audio is unusable; ``reason`` is a key of `REMEDIES`."""

    utt_id: str
    reason: str
    detail: str

    def __str__(self) -> str:
        return f"utterance '{self.utt_id}': {self.reason}: {self.detail}; {REMEDIES[self.reason]}"


class AudioError(DataError):
    """Unusable audio; ``problem`` holds the utterance, the reason code and the detail."""

    def __init__(self, problem: AudioProblem) -> None:
        super().__init__(problem)
        self.problem = problem


def check_audio(
    array: np.ndarray,
    sample_rate: int,
    max_seconds: float = MAX_SECONDS,
    min_seconds: float = MIN_SECONDS,
) -> str | None:
    """Return the reason code that makes samples (S,) or (S, C) unusable, or None."""
    seconds = len(array) / sample_rate
    if array.size == 0:
        return "empty"
    if array.ndim > 1 and array.shape[1] > 1:
        return "stereo"
    if not np.isfinite(array).all():
        return "non_finite"
    if not array.any():
        return "silent"
    if seconds > max_seconds:
        return "too_long"
    return "too_short" if seconds < min_seconds else None


def read_audio(
    path: str | Path,
    utt_id: str,
    target_sample_rate: int = SAMPLE_RATE,
    *,
    channel: int | str | None = None,
    span: tuple[float, float | None] = (0.0, None),
    limits: tuple[float, float] = (0.0, float("inf")),
) -> np.ndarray:
    """Read one utterance as float32 (S,) at ``target_sample_rate``.

    Args:
        channel: None (the file must be mono), a channel number from 0, or "mix" (mean of all).
        span: start and end in seconds within the file; end None reads to its end.
        limits: shortest and longest duration in seconds, measured before resampling.

    Raises:
        AudioError: unusable audio, naming utterance, path and remedy.
    """

    refuse = partial(_problem, path, utt_id)
    shortest, longest = limits
    samples, rate = read_span(path, utt_id, span, limits)
    samples = _one_channel(samples, channel, refuse)
    if reason := check_audio(samples, rate, longest, shortest):
        raise refuse(
            reason,
            f"{len(samples) / rate:.3f} s, {samples.shape[1]} channel(s) at {rate} Hz; mono of "
            f"{shortest:g} to {longest:g} s expected",
        )
    return resample(samples[:, 0], rate, target_sample_rate)


def _problem(path: str | Path, utt_id: str, reason: str, detail: str) -> AudioError:
    return AudioError(AudioProblem(utt_id, reason, f"{path}: {detail}"))


def read_span(
    path: str | Path,
    utt_id: str,
    span: tuple[float, float | None],
    limits: tuple[float, float] = (0.0, float("inf")),
) -> tuple[np.ndarray, int]:
    """Read a span as float32 (S, C) at the file's own rate; return it and the rate.

    Raises:
        AudioError: no such file, one that is damaged or ends before the span, or a span longer than
            the second of ``limits`` (s).
    """
    refuse = partial(_problem, path, utt_id)
    shortest, longest = limits
    if not os.path.isfile(file_of(path)):
        raise refuse("missing", "no such file")
    try:
        with open_sound(path) as file:
            rate, total = file.samplerate, file.frames
            first, last = _frames(span, rate, total, refuse)
            seconds = (last - first) / rate
            if seconds > longest:  # before hours of it are read
                raise refuse("too_long", f"{seconds:.3f} s, {shortest:g} to {longest:g} s expected")
            file.seek(min(first, total))
            samples = read_frames(file, max(last - first, 0))
    except (soundfile.SoundFileError, OSError) as error:
        raise refuse("unreadable", str(error)) from error
    if len(samples) < last - first:
        raise refuse("unreadable", f"{len(samples)} of {last - first} samples could be read")
    peak = np.abs(samples).max(initial=0.0)
    if LOUDEST < peak < np.inf:
        raise refuse("unreadable", f"peak {peak:g}, full scale is 1: are these integers?")
    return samples, rate


def _frames(
    span: tuple[float, float | None], rate: int, total: int, refuse: Callable[[str, str], AudioError]
) -> tuple[int, int]:
    """First sample of a span of seconds, and the one behind its last, in a file of ``total``."""
    if not total:
        return 0, 0
    start, end = span[0], total / rate if span[1] is None else span[1]
    if end > total / rate + SEGMENT_ROUNDING or start * rate >= total:
        raise refuse("unreadable", f"span {start}-{end} s, the file ends at {total / rate} s")
    return round(start * rate), min(round(end * rate), total)


def clip_length(
    path: str | Path,
    utt_id: str,
    target_sample_rate: int = SAMPLE_RATE,
    *,
    span: tuple[float, float | None] = (0.0, None),
) -> int:
    """Samples that `read_audio` gives of a mono file, by its header: nothing is decoded.

    Raises:
        AudioError: no such file, one that is not audio, empty or not mono, or ends before the span.
    """
    refuse = partial(_problem, path, utt_id)
    rate, total, channels = read_header(path, utt_id)
    first, last = _frames(span, rate, total, refuse)
    if last <= first:
        raise refuse("empty", f"{total} samples at {rate} Hz in the file")
    if channels > 1:
        raise refuse("stereo", f"{channels} channels at {rate} Hz; mono expected")
    samples = last - first
    # As the resampler rounds, which drops no part of a sample.
    return samples if rate == target_sample_rate else int(samples * target_sample_rate / rate + 0.5)


def read_header(path: str | Path, utt_id: str) -> tuple[int, int, int]:
    """Return sample rate, samples and channels of a whole file without decoding it.

    Raises:
        AudioError: no such file, or one that cannot be read as audio.
    """
    try:
        with open_sound(path) as file:
            return file.samplerate, file.frames, file.channels
    except OSError as error:
        reason = "unreadable" if os.path.isfile(file_of(path)) else "missing"
        raise _problem(path, utt_id, reason, str(error)) from error


def _one_channel(
    samples: np.ndarray, channel: int | str | None, refuse: Callable[[str, str], AudioError]
) -> np.ndarray:
    """Apply the explicit choice of a channel: (S, C) to (S, 1), or (S, C) as it is for None."""
    if channel is None:
        return samples
    if channel == "mix":
        return samples.mean(axis=1, dtype=np.float64, keepdims=True).astype(np.float32)
    if not 0 <= int(channel) < samples.shape[1]:
        raise refuse("stereo", f"channel {channel} asked, {samples.shape[1]} channel(s) there")
    return samples[:, [int(channel)]]


def resample(samples: np.ndarray, rate: int, target: int) -> np.ndarray:
    """Resample float32 (S,) with soxr's HQ filter; at the target rate return it as it is."""
    if rate == target:
        return np.ascontiguousarray(samples)
    return soxr.resample(samples, rate, target, quality="HQ")


def to_pcm16(samples: np.ndarray) -> np.ndarray:
    """Quantise float (S,) to int16 (S,), rounding to nearest and saturating at full scale."""
    scaled = np.round(np.asarray(samples, dtype=np.float64) * 32768)
    return np.clip(scaled, -32768, 32767).astype(np.int16)


def write_wav(path: str | Path, samples: np.ndarray, sample_rate: int = SAMPLE_RATE) -> int:
    """Write float (S,) or int16 (S,) as a PCM16 WAV file, whole or not at all.

    Returns the number of samples beyond full scale, which saturate: a resampling filter may
    overshoot a loud recording.
    """
    clipped = 0
    if samples.dtype != np.int16:
        if not np.isfinite(samples).all():
            raise DataError(f"{path}: NaN or infinite samples cannot be written; check the source")
        clipped = int((np.abs(samples) > 1).sum())
        samples = to_pcm16(samples)
    with atomic_path(path) as temporary:
        soundfile.write(temporary, samples, sample_rate, subtype="PCM_16", format="WAV")
    return clipped


def is_final_format(path: str | Path, sample_rate: int = SAMPLE_RATE) -> bool:
    """Tell whether a readable file already is mono PCM16 WAV or FLAC at ``sample_rate``."""
    with open_sound(path) as file:
        found = (file.samplerate, file.channels, file.subtype)
        return file.format in ("WAV", "FLAC") and found == (sample_rate, 1, "PCM_16")


def audio_sha256(samples: np.ndarray) -> str:
    """Return the SHA-256 (hex) of int16 or float32 samples, in little-endian byte order."""
    if samples.dtype.newbyteorder("=") not in (np.int16, np.float32):
        raise DataError(f"samples of type {samples.dtype}: convert them to int16 or float32 first")
    return hashlib.sha256(samples.astype(samples.dtype.newbyteorder("<")).tobytes()).hexdigest()


def pad_to_multiple(samples: np.ndarray, multiple: int = 160) -> np.ndarray:
    """Append zeros to (S,) up to a multiple, so that batching changes no frame count."""
    return np.pad(samples, (0, -len(samples) % multiple))
