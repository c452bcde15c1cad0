"""Small Kaldi directories with synthetic audio; every byte follows from the arguments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from espnet_latentasr.data.kaldi_dir import KaldiDir


def tone(
    seconds: float = 0.5, rate: int = 16000, hz: float = 440.0, peak: float = 0.3
) -> np.ndarray:
    """Return a sine (S,) float32."""
    return (peak * np.sin(2 * np.pi * hz * np.arange(round(seconds * rate)) / rate)).astype(
        "float32"
    )


def make_dir(root: Path, clips: dict[str, tuple[np.ndarray, int]]) -> Path:
    """Write float32 WAV files (so NaN survives) and their Kaldi directory; return its path."""
    (root / "audio").mkdir(parents=True)
    wav = {}
    for utt, (samples, rate) in clips.items():
        wav[utt] = str(root / "audio" / f"{utt}.wav")
        soundfile.write(wav[utt], samples, rate, subtype="FLOAT")
    text = {utt: f"words of {utt}" for utt in clips}
    lang = dict.fromkeys(clips, "en")
    KaldiDir(root / "set", wav, text, {utt: utt for utt in clips}, lang).save(root / "set")
    return root / "set"


@pytest.fixture(name="tone")
def tone_fixture():
    """Give tests the function `tone`."""
    return tone


@pytest.fixture(name="make_dir")
def make_dir_fixture():
    """Give tests the function `make_dir`."""
    return make_dir


@pytest.fixture
def files_of():
    """Return a function from a folder to the bytes of every file below it."""

    def read(path: Path) -> dict[str, bytes]:
        return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}

    return read


@pytest.fixture
def good_dir(tmp_path: Path) -> Path:
    """Return a set of five clips at several rates, all usable."""
    rates = {"a1": 16000, "a2": 8000, "b1": 44100, "b2": 16000, "c1": 22050}
    return make_dir(tmp_path, {utt: (tone(rate=r), r) for utt, r in rates.items()})


@pytest.fixture
def bad_dir(tmp_path: Path) -> Path:
    """Return a set with two good clips and one of each kind of bad clip."""
    nan = tone()
    nan[7] = np.nan
    clips = {
        "good1": tone(),
        "good2": tone(hz=300),
        "missing": tone(),
        "unreadable": tone(),
        "empty": tone(0),
        "non_finite": nan,
        "silent": np.zeros(8000, dtype="float32"),
        "too_long": tone(30.01, 8000),
        "too_short": tone(0.05),
        "stereo": np.stack([tone(), tone()], axis=1),
    }
    rates = {utt: 8000 if utt == "too_long" else 16000 for utt in clips}
    path = make_dir(tmp_path, {utt: (x, rates[utt]) for utt, x in clips.items()})
    (tmp_path / "audio" / "missing.wav").unlink()
    (tmp_path / "audio" / "unreadable.wav").write_bytes(b"no audio in here")
    return path
