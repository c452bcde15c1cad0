"""Recorded noise: knows files of noise and which piece of which file an utterance gets.

An utterance's file and piece follow from (seed, utterance) alone, never from the SNR, so that its
copies at several SNRs hear one noise at several levels.  Noise is read as 16 kHz, of several
channels the first, and its mean is taken off.  A piece starts on a multiple of 10 ms; noise shorter
than the utterance starts over at its end, without a cross-fade.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from espnet_latentasr.data.audio import SAMPLE_RATE, read_audio
from espnet_latentasr.data.kaldi_dir import c_sorted, read_kaldi_table
from espnet_latentasr.data.mixing import stable_hash
from espnet_latentasr.errors import DataError

SUFFIXES = (".wav", ".flac", ".ogg", ".opus", ".mp3", ".aiff", ".sph")
HOP = SAMPLE_RATE // 100
# Pieces this far (-40 dB) below their recording's mean power are pauses of it, not noise.
QUIETEST = 1e-4


@dataclass(frozen=True)
class NoiseFile:
    """One recording of noise; ``noise_id`` is its key in ``noise.scp``, or its path below the folder."""

    noise_id: str
    path: str


def list_noise(where: str | Path) -> list[NoiseFile]:
    """List the recordings of a folder (MUSAN's, or one of its parts) or of a ``noise.scp``.

    A folder with a ``noise.scp`` has what that lists; its paths are absolute or relative to it.

    Raises:
        DataError: nothing there, or an entry of the list that is no file.
    """
    where = Path(where)
    table = where / "noise.scp" if where.is_dir() else where
    if table.is_file():
        listed = read_kaldi_table(table, require_sorted=False)
        found = {noise: str(table.parent / path) for noise, path in listed.items()}
        for noise, path in found.items():
            if not os.path.isfile(path):
                raise DataError(f"{table}: noise '{noise}': no such file: {path}; correct the path")
    elif where.is_dir():
        paths = (path for path in where.rglob("*") if path.suffix.lower() in SUFFIXES)
        found = {path.relative_to(where).as_posix(): str(path) for path in paths if path.is_file()}
    else:
        raise DataError(f"{where}: no such folder or noise.scp; give a folder of noise recordings")
    if not found:
        raise DataError(f"{where}: no noise there; {', '.join(SUFFIXES)} files or a noise.scp expected")
    return [NoiseFile(noise, found[noise]) for noise in c_sorted(found)]


def choose_noise(files: Sequence[NoiseFile], seed: int, utt_id: str) -> NoiseFile:
    """Choose an utterance's recording: the one whose hash with it is lowest.

    So further files change the choice of those utterances only that get one of them.
    """
    return min(files, key=lambda file: stable_hash(seed, utt_id, "noise", file.noise_id))


@lru_cache(maxsize=8)
def read_noise(path: str, changed: int) -> np.ndarray:
    """Read a recording as float32 (L,) with mean 0; ``changed`` is its time of change, for the cache."""
    noise = read_audio(path, Path(path).stem, channel=0)
    return noise - noise.mean(dtype=np.float64).astype(np.float32)


def cut_noise(noise: np.ndarray, num_samples: int, key: int) -> tuple[np.ndarray, float]:
    """Cut ``num_samples`` of noise (L,) at a start drawn evenly from those that are not a pause.

    Args:
        key: 128 random bits, as `stable_hash` gives them.

    Returns:
        The piece, float64 (num_samples,), looped if the recording is shorter, and its start (s).

    Raises:
        DataError: a recording without any power.
    """
    starts = _loud_starts(noise, num_samples)
    start = int(starts[(key * len(starts)) >> 128]) * HOP
    piece = np.take(noise, np.arange(start, start + num_samples), mode="wrap")
    return piece.astype(np.float64), start / SAMPLE_RATE


def _loud_starts(noise: np.ndarray, num_samples: int) -> np.ndarray:
    """Starts, in hops, of pieces that hold more than a pause; all hops of a recording to be looped."""
    hops = max(len(noise) // HOP, 1)
    power = np.square(noise, dtype=np.float64)
    if not power.any():
        raise DataError("noise: all samples are the same; remove the file from the noise folder")
    if len(noise) < num_samples:
        return np.arange(hops)
    total = np.concatenate([[0.0], np.cumsum(power)])
    first = np.arange(0, len(noise) - num_samples + 1, HOP)
    loud = (total[first + num_samples] - total[first]) / num_samples
    enough = np.flatnonzero(loud >= QUIETEST * total[-1] / len(noise))
    return enough if len(enough) else np.array([loud.argmax()])
