"""Additive noise: knows exact SNRs and seeds; draws from (seed, utterance, SNR) and nothing else.

The noise of an utterance is the same in any order, process or subset, and utterance ids stay as
they are, so results on a clean set and on its noisy copies are paired.  ``utt2noise`` holds, per
utterance, ``seed snr achieved gain``: SNRs in dB (``clean`` where no noise was added), the third
measured after PCM16, the fourth the factor that kept the mixture below full scale.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from espnet_latentasr.data.audio import AudioError, AudioProblem, read_audio, to_pcm16, write_wav
from espnet_latentasr.data.format import MapFunction, file_identity, refuse_overwriting
from espnet_latentasr.data.kaldi_dir import (
    AudioSource,
    KaldiDir,
    check_other_dir,
    read_kaldi_table,
    write_kaldi_table,
)
from espnet_latentasr.errors import DataError
from espnet_latentasr.fileio import atomic_write_text

PEAK = 0.999
MARKER = "noise.json"
MIXED_SNRS = (None, 0.0, 5.0, 10.0, 20.0)


def _hash(*parts: object) -> int:
    """Hash parts to 128 bits, the same on every machine and Python."""
    return int.from_bytes(hashlib.sha256(json.dumps(parts).encode()).digest()[:16], "little")


def noise_rng(seed: int, utt_id: str, snr_db: float) -> np.random.Generator:
    """Return the generator that draws this utterance's noise at this SNR."""
    return np.random.Generator(np.random.Philox(key=_hash(seed, utt_id, float(snr_db))))


def draw_snr(seed: int, utt_id: str, snrs: Sequence[float | None]) -> float | None:
    """Choose one of ``snrs`` for an utterance by its own hash."""
    return snrs[_hash(seed, utt_id, "snr") % len(snrs)]


def snr(signal: np.ndarray, mix: np.ndarray) -> float:
    """Return 10 log10 of the mean power of ``signal`` (S,) over that of ``mix - signal`` (S,)."""
    clean = np.asarray(signal, dtype=np.float64)
    noise = np.mean((mix - clean) ** 2)
    return 10 * math.log10(np.mean(clean**2) / noise) if noise > 0 else math.inf


def _checked_snr(snr_db: float) -> float:
    if not -100 <= snr_db <= 100:
        raise DataError(f"SNR {snr_db}: a number of dB between -100 and 100 expected")
    return float(snr_db)


def add_noise(x: np.ndarray, snr_db: float, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Add white Gaussian noise to a clip (S,) at exactly ``snr_db`` over the whole clip.

    Returns:
        ``gain * (x + noise)`` as float32 (S,) and ``gain``, which is 1 unless the peak would
        exceed 0.999; scaling the whole mixture leaves the SNR as it is.

    Raises:
        DataError: a clip without power, or an SNR outside -100 to 100 dB.
    """
    clean = np.asarray(x, dtype=np.float64)
    power = float(np.mean(clean**2)) if clean.size else 0.0
    if not power > 0 or not math.isfinite(power):
        raise DataError(f"mean power {power} of {clean.size} samples has no SNR; remove the clip")
    noise = rng.standard_normal(clean.size)
    noise *= math.sqrt(power / 10 ** (_checked_snr(snr_db) / 10) / float(np.mean(noise**2)))
    mix = clean + noise
    peak = float(np.abs(mix).max())
    gain = PEAK / peak if peak > PEAK else 1.0
    achieved = snr(gain * clean, gain * mix)
    assert abs(achieved - snr_db) < 1e-3, f"{achieved} dB achieved, {snr_db} dB asked"
    return (gain * mix).astype(np.float32), gain


@dataclass(frozen=True)
class NoiseJob:
    """One utterance to copy; ``snr_db`` None copies it without noise."""

    utt_id: str
    source: AudioSource
    target: str
    snr_db: float | None
    seed: int


def copy_utterance(job: NoiseJob) -> str | AudioProblem:
    """Write one utterance as 16 kHz PCM16; return its ``utt2noise`` value or what is wrong."""
    try:
        clean = read_audio(job.source.path, job.utt_id, span=job.source[1:])
    except AudioError as error:
        return error.problem
    if job.snr_db is None:
        write_wav(job.target, clean)
        return f"{job.seed} clean clean 1.0"
    mix, gain = add_noise(clean, job.snr_db, noise_rng(job.seed, job.utt_id, job.snr_db))
    pcm = to_pcm16(mix)
    write_wav(job.target, pcm)
    achieved = snr(gain * clean.astype(np.float64), pcm / 32768)
    return f"{job.seed} {job.snr_db:g} {achieved:.4f} {gain!r}"


def noisy_copy(
    src_dir: str | Path, dst_dir: str | Path, snr_db: float, seed: int, map_fn: MapFunction = map
) -> dict[str, str]:
    """Copy a Kaldi directory with noise at one SNR; see `mixed_snr_copy`."""
    return mixed_snr_copy(src_dir, dst_dir, (snr_db,), seed, map_fn)


def mixed_snr_copy(
    src_dir: str | Path,
    dst_dir: str | Path,
    snrs: Sequence[float | None] = MIXED_SNRS,
    seed: int = 0,
    map_fn: MapFunction = map,
) -> dict[str, str]:
    """Copy a Kaldi directory, each utterance at the SNR its own hash draws (None: clean).

    Audio goes to ``dst_dir/wavs`` as 16 kHz mono PCM16, ids stay.  A rerun with the same
    parameters and sources does nothing; any other redoes the copy.  Returns ``utt2noise``.

    Raises:
        DataError: an invalid directory, or all unusable utterances once the others are written.
    """
    dst = Path(dst_dir)
    check_other_dir(Path(src_dir), dst)
    data = KaldiDir.load(src_dir, allow_empty_text=True)
    snrs = [None if snr_db is None else _checked_snr(snr_db) for snr_db in snrs]
    if not snrs:
        raise DataError("no SNR given; name at least one, None for clean")
    jobs = [
        NoiseJob(
            utt, data.source(utt), str(dst / "wavs" / f"{utt}.wav"), draw_snr(seed, utt, snrs), seed
        )
        for utt in data.utts
    ]
    marker = _marker_text(data, snrs, seed)
    finished = (dst / MARKER).exists() and (dst / MARKER).read_text(encoding="utf-8") == marker
    if finished and all(Path(job.target).exists() for job in jobs):
        return read_kaldi_table(dst / "utt2noise")
    refuse_overwriting((job.source.path, job.target) for job in jobs)
    for name in (MARKER, "wav.scp"):
        (dst / name).unlink(missing_ok=True)
    values = dict(zip(data.utts, map_fn(copy_utterance, jobs), strict=True))
    if problems := [value for value in values.values() if isinstance(value, AudioProblem)]:
        raise DataError(
            f"{src_dir}: {len(problems)} of {len(jobs)} utterances are unusable, and a noisy copy "
            "must lose none; repair them or copy the formatted set: "
            + " | ".join(map(str, problems))
        )
    write_kaldi_table(dst / "utt2noise", values)
    replace(data, wav={job.utt_id: job.target for job in jobs}, segments=None).save(dst)
    atomic_write_text(dst / MARKER, marker)
    return values


def _marker_text(data: KaldiDir, snrs: list[float | None], seed: int) -> str:
    """Describe all that a copy depends on: parameters, tables and identity of the audio files."""
    tables = [data.wav, data.text, data.utt2spk, data.utt2lang, data.segments]
    content = [tables, {path: file_identity(path) for path in sorted(data.wav.values())}]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return json.dumps({"seed": seed, "snrs": snrs, "source_sha256": digest}) + "\n"
