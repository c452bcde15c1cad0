"""Reading, checking and writing clips."""

import hashlib
import pickle
import shutil

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from espnet_latentasr.data.audio import (
    REMEDIES,
    AudioError,
    audio_sha256,
    check_audio,
    is_final_format,
    pad_to_multiple,
    read_audio,
    to_pcm16,
    write_wav,
)
from espnet_latentasr.data.kaldi_dir import KaldiDir
from espnet_latentasr.errors import DataError


def test_each_bad_clip_is_named(bad_dir):
    for reason, remedy in REMEDIES.items():
        path = KaldiDir.load(bad_dir).wav[reason]
        with pytest.raises(DataError) as caught:
            read_audio(path, reason, limits=(0.1, 30.0))
        assert caught.value.problem.reason == reason
        for part in (f"utterance '{reason}'", path, remedy):
            assert part in str(caught.value)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        (np.zeros(0), "empty"),
        (np.zeros((0, 2)), "empty"),
        (np.ones((16000, 2)), "stereo"),
        (np.ones((16000, 1)), None),
        (np.ones(16000), None),
        (np.full(16000, np.inf), "non_finite"),
        (np.zeros(16000), "silent"),
        (np.ones(480000), None),
        (np.ones(480001), "too_long"),
        (np.ones(1600), None),
        (np.ones(1599), "too_short"),
    ],
)
def test_check_audio(samples, reason):
    assert check_audio(samples, 16000) == reason


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 22050, 44100, 48000])
def test_resampling_keeps_duration_pitch_and_level(tmp_path, tone, rate):
    soundfile.write(tmp_path / "x.wav", tone(1.0, rate, hz=1000), rate)
    samples = read_audio(tmp_path / "x.wav", "x")
    assert samples.dtype == np.float32
    assert abs(len(samples) - 16000) <= 1
    spectrum = np.abs(np.fft.rfft(samples[:16000], 16000))
    assert spectrum.argmax() == 1000
    assert np.abs(samples[2000:-2000]).max() == pytest.approx(0.3, rel=0.01)


def test_same_rate_is_read_exactly(tmp_path):
    pcm = np.array([0, 1, -1, 32767, -32768] * 400, dtype=np.int16)
    write_wav(tmp_path / "x.wav", pcm)
    samples = read_audio(tmp_path / "x.wav", "x")
    assert (samples * 32768 == pcm).all()
    assert (to_pcm16(samples) == pcm).all()


def test_channels_are_chosen_never_assumed(tmp_path, tone):
    left, right = tone(hz=200), tone(hz=300)
    soundfile.write(tmp_path / "x.wav", np.stack([left, right], 1), 16000, subtype="FLOAT")
    with pytest.raises(AudioError, match=r"stereo: .*2 channel\(s\).*'mix'"):
        read_audio(tmp_path / "x.wav", "x")
    assert (read_audio(tmp_path / "x.wav", "x", channel=1) == right).all()
    mean = (left.astype(float) + right) / 2
    assert read_audio(tmp_path / "x.wav", "x", channel="mix") == pytest.approx(mean, abs=1e-7)
    with pytest.raises(AudioError, match="channel 2 asked, 2 channel"):
        read_audio(tmp_path / "x.wav", "x", channel=2)


def test_span(tmp_path):
    ramp = (np.arange(16000) / 16000).astype("float32")
    soundfile.write(tmp_path / "x.wav", ramp, 16000, subtype="FLOAT")
    assert (read_audio(tmp_path / "x.wav", "x", span=(0.25, 0.5)) == ramp[4000:8000]).all()
    assert (read_audio(tmp_path / "x.wav", "x", span=(0.25, None)) == ramp[4000:]).all()
    # 1.005 s is what a recogniser's segmenter may write for a file of 1 s, 1.5 s is a mistake.
    assert (read_audio(tmp_path / "x.wav", "x", span=(0.25, 1.005)) == ramp[4000:]).all()
    for span in [(0.25, 1.5), (1.0, None), (2.0, 3.0)]:
        with pytest.raises(AudioError, match=r"unreadable: .*the file ends at 1.0 s"):
            read_audio(tmp_path / "x.wav", "x", span=span)


@pytest.mark.parametrize("kind", ["wav", "flac"])
def test_file_that_was_cut_off(tmp_path, kind):
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, 16000)
    soundfile.write(tmp_path / f"whole.{kind}", noise, 16000)
    data = (tmp_path / f"whole.{kind}").read_bytes()
    (tmp_path / f"cut.{kind}").write_bytes(data[: len(data) // 2])
    assert len(read_audio(tmp_path / f"whole.{kind}", "x")) == 16000
    with pytest.raises(AudioError, match="unreadable"):
        read_audio(tmp_path / f"cut.{kind}", "x")


def test_wav_with_placeholder_length(tmp_path, tone):
    write_wav(tmp_path / "x.wav", tone())
    data = bytearray((tmp_path / "x.wav").read_bytes())
    data[4:8] = data[40:44] = b"\xff\xff\xff\xff"
    (tmp_path / "piped.wav").write_bytes(data)
    assert len(read_audio(tmp_path / "piped.wav", "x")) == 8000


def test_write_is_atomic_and_counts_saturation(tmp_path, tone):
    assert write_wav(tmp_path / "new" / "x.wav", tone(peak=1.0)) == 0
    loud = np.array([0.5, 1.25, -1.5, 1.0], dtype="float32")
    assert write_wav(tmp_path / "x.wav", loud) == 2
    assert soundfile.read(tmp_path / "x.wav", dtype="int16")[0].tolist() == [
        16384, 32767, -32768, 32767,
    ]  # fmt: skip
    before = (tmp_path / "x.wav").read_bytes()
    with pytest.raises(DataError, match=r"x.wav: NaN"):
        write_wav(tmp_path / "x.wav", np.array([np.nan]))
    with pytest.raises(TypeError):
        write_wav(tmp_path / "x.wav", np.zeros(5, dtype=np.int16), sample_rate="no rate")
    assert (tmp_path / "x.wav").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 2


def test_final_format(tmp_path, tone):
    for name, kwargs, final in [
        ("a.wav", {}, True),
        ("a.flac", {}, True),
        ("b.wav", {"subtype": "FLOAT"}, False),
        ("b.flac", {"subtype": "PCM_24"}, False),
        ("c.ogg", {}, False),
    ]:
        soundfile.write(tmp_path / name, tone(), 16000, **kwargs)
        assert is_final_format(tmp_path / name) is final
    soundfile.write(tmp_path / "d.wav", tone(rate=8000), 8000)
    assert not is_final_format(tmp_path / "d.wav")
    soundfile.write(tmp_path / "e.wav", np.stack([tone(), tone()], 1), 16000)
    assert not is_final_format(tmp_path / "e.wav")
    shutil.copy(tmp_path / "a.wav", tmp_path / "ünï cödé.wav")
    assert is_final_format(tmp_path / "ünï cödé.wav")


def test_sha256():
    pcm = np.array([1, -2, 300], dtype="<i2")
    expected = hashlib.sha256(b"\x01\x00\xfe\xff\x2c\x01").hexdigest()
    assert audio_sha256(pcm) == expected
    assert audio_sha256(pcm.astype(">i2")) == expected
    assert audio_sha256(pcm.astype("float32")) != expected
    with pytest.raises(DataError, match="float64"):
        audio_sha256(pcm.astype("float64"))


@settings(deadline=None, derandomize=True, max_examples=50)
@given(npst.arrays(np.float32, st.integers(0, 500)), st.integers(1, 200))
def test_pad_to_multiple(samples, multiple):
    padded = pad_to_multiple(samples, multiple)
    assert padded.dtype == samples.dtype
    assert len(padded) % multiple == 0
    assert 0 <= len(padded) - len(samples) < multiple
    assert np.array_equal(padded[: len(samples)], samples, equal_nan=True)
    assert not padded[len(samples) :].any()
