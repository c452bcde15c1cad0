"""Lengths from headers are those of the samples that reading gives, and bad files are named."""

from __future__ import annotations

import kaldiio
import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from espnet_latentasr.data.audio import AudioError, clip_length, read_audio

RATES = (8000, 11025, 16000, 22050, 44100, 48000)


@settings(max_examples=60)
@given(st.sampled_from(RATES), st.integers(1, 9000), st.floats(0, 1), st.floats(0, 1))
def test_lengths_are_those_of_reading(tmp_path_factory, rate, samples, one, two):
    path = tmp_path_factory.getbasetemp() / "clip.wav"
    soundfile.write(path, np.full(samples, 0.25), rate, "PCM_16")
    assert clip_length(path, "u") == len(read_audio(path, "u"))
    start, end = (round(x * samples / rate, 4) for x in sorted((one, two)))
    try:
        expected = len(read_audio(path, "u", span=(start, end)))
    except AudioError as error:
        with pytest.raises(AudioError, match=error.problem.reason):
            clip_length(path, "u", span=(start, end))
    else:
        assert clip_length(path, "u", span=(start, end)) == expected


def test_flac_and_archive_entries(tmp_path):
    clip = np.round(3000 * np.sin(np.arange(3333))).astype(np.int16)
    soundfile.write(tmp_path / "x.flac", clip, 8000)
    kaldiio.save_ark(str(tmp_path / "x.ark"), {"u": (8000, clip)}, scp=str(tmp_path / "x.scp"))
    entry = (tmp_path / "x.scp").read_text().split()[1]
    for path in (tmp_path / "x.flac", entry):
        assert clip_length(path, "u") == len(read_audio(path, "u")) == 6666


def test_bad_files_are_named(tmp_path):
    soundfile.write(tmp_path / "two.wav", np.ones((90, 2)) / 2, 16000)
    soundfile.write(tmp_path / "none.wav", np.ones(0), 16000)
    (tmp_path / "text.wav").write_text("no audio")
    for name, reason in (
        ("two.wav", "stereo: .*2 channels"),
        ("none.wav", "empty"),
        ("text.wav", "unreadable"),
        ("gone.wav", "missing"),
    ):
        with pytest.raises(AudioError, match=f"utterance 'u': {reason}"):
            clip_length(tmp_path / name, "u")
