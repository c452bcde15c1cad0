"""Speech and noise as arrays: knows exact SNRs and keyed draws; knows no file.

A draw depends on the key it is made from and on nothing else, so it is the same in any order,
process or subset.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from espnet_latentasr.errors import DataError

PEAK = 0.999


class Mixture(NamedTuple):
    """``gain * (speech + noise)`` float32 (S,); ``clipped`` samples of the sum were beyond full scale."""

    samples: np.ndarray
    gain: float
    clipped: int


def stable_hash(*parts: object) -> int:
    """Hash parts to 128 bits, the same on every machine and Python."""
    return int.from_bytes(hashlib.sha256(json.dumps(parts).encode()).digest()[:16], "little")


def noise_rng(seed: int, utt_id: str, snr_db: float) -> np.random.Generator:
    """Return the generator that draws this utterance's noise at this SNR."""
    return np.random.Generator(np.random.Philox(key=stable_hash(seed, utt_id, float(snr_db))))


def draw_snr(seed: int, utt_id: str, snrs: Sequence[float | None]) -> float | None:
    """Choose one of ``snrs`` for an utterance by its own hash."""
    return snrs[stable_hash(seed, utt_id, "snr") % len(snrs)]


def snr(signal: np.ndarray, mix: np.ndarray) -> float:
    """Return 10 log10 of the mean power of ``signal`` (S,) over that of ``mix - signal`` (S,)."""
    clean = np.asarray(signal, dtype=np.float64)
    noise = np.mean((mix - clean) ** 2)
    return 10 * math.log10(np.mean(clean**2) / noise) if noise > 0 else math.inf


def checked_snr(snr_db: float) -> float:
    """Return an SNR as a float; outside -100 to 100 dB it is a mistake (`DataError`)."""
    if not -100 <= snr_db <= 100:
        raise DataError(f"SNR {snr_db}: a number of dB between -100 and 100 expected")
    return float(snr_db)


def _power(x: np.ndarray, what: str) -> float:
    power = float(np.mean(x**2)) if x.size else 0.0
    if not power > 0 or not math.isfinite(power):
        raise DataError(f"{what}: mean power {power} of {x.size} samples has no SNR; remove the clip")
    return power


def add_noise(x: np.ndarray, snr_db: float, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Add white Gaussian noise to a clip (S,); return samples and gain of `mix_at_snr`."""
    return mix_at_snr(x, rng.standard_normal(np.size(x)), snr_db)[:2]


def mix_at_snr(x: np.ndarray, noise: np.ndarray, snr_db: float) -> Mixture:
    """Add noise (S,) to a clip (S,) at exactly ``snr_db``, powers being means over the whole clip.

    The gain is 1 unless the peak would exceed 0.999; scaling the whole mixture leaves the SNR as it
    is.

    Raises:
        DataError: a clip or noise without power, or an SNR outside -100 to 100 dB.
    """
    clean, noise = np.asarray(x, dtype=np.float64), np.asarray(noise, dtype=np.float64)
    power, level = _power(clean, "speech"), _power(noise, "noise")
    noise = noise * math.sqrt(power / 10 ** (checked_snr(snr_db) / 10) / level)
    mix = clean + noise
    peak = float(np.abs(mix).max())
    gain = PEAK / peak if peak > PEAK else 1.0
    achieved = snr(gain * clean, gain * mix)
    assert abs(achieved - snr_db) < 1e-3, f"{achieved} dB achieved, {snr_db} dB asked"
    return Mixture((gain * mix).astype(np.float32), gain, int((np.abs(mix) > 1).sum()))
