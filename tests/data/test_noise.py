"""Noise: exact SNR, draws that depend on seed, utterance and SNR only, resumable copies."""

import math
import random

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from espnet_latentasr.data import noise
from espnet_latentasr.data.format import format_data_dir
from espnet_latentasr.data.kaldi_dir import KaldiDir, read_kaldi_table, write_kaldi_table
from espnet_latentasr.data.mixing import add_noise, draw_snr, noise_rng
from espnet_latentasr.data.noise import mixed_snr_copy, noisy_copy
from espnet_latentasr.errors import DataError


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.integers(2, 4000), st.floats(1e-4, 1.0), st.floats(-20, 60), st.integers(0, 2**32 - 1))
def test_snr_is_exact(num_samples, peak, snr_db, seed):
    draw = np.random.default_rng(seed)
    clip = (peak * draw.uniform(-1, 1, num_samples)).astype("float32")
    mix, gain = add_noise(clip, snr_db, noise_rng(seed, "utt", snr_db))
    signal = gain * clip.astype(float)
    achieved = 10 * math.log10(np.mean(signal**2) / np.mean((mix - signal) ** 2))
    assert mix.dtype == np.float32
    assert mix.shape == clip.shape
    assert achieved == pytest.approx(snr_db, abs=1e-3)
    assert np.abs(mix).max() <= np.float32(0.999)
    assert 0 < gain <= 1


def test_gain_only_when_needed(tone):
    _, gain = add_noise(tone(peak=0.01), 10, noise_rng(0, "a", 10))
    assert gain == 1.0
    mix, gain = add_noise(tone(peak=0.9), 0, noise_rng(0, "a", 0))
    assert gain < 1
    assert np.abs(mix).max() == pytest.approx(0.999, abs=1e-6)


@pytest.mark.parametrize("clip", [np.zeros(100), np.zeros(0), np.array([1.0, np.nan])])
def test_no_power_no_snr(clip):
    with pytest.raises(DataError, match="no SNR"):
        add_noise(clip, 0, noise_rng(0, "a", 0))


@pytest.mark.parametrize("snr_db", [math.inf, math.nan, 101])
def test_snr_out_of_range(tone, snr_db):
    with pytest.raises(DataError, match="between -100 and 100"):
        add_noise(tone(), snr_db, noise_rng(0, "a", 0))


def test_draw_depends_on_seed_utterance_and_snr_only():
    first = noise_rng(1, "a", 5).standard_normal(4)
    assert (noise_rng(1, "a", 5.0).standard_normal(4) == first).all()
    for other in [(2, "a", 5), (1, "b", 5), (1, "a", 10)]:
        assert (noise_rng(*other).standard_normal(4) != first).all()
    # Pinned: a NumPy whose stream differs must be noticed, for it makes other test sets.
    assert first == pytest.approx(PINNED, abs=1e-12)


def test_mixed_snrs_are_drawn_evenly_and_by_hash():
    snrs = [None, 0.0, 5.0, 10.0, 20.0]
    drawn = [draw_snr(0, f"utt{i}", snrs) for i in range(2000)]
    assert all(330 < drawn.count(snr_db) < 470 for snr_db in snrs)
    assert drawn[7] == draw_snr(0, "utt7", snrs)
    assert drawn != [draw_snr(1, f"utt{i}", snrs) for i in range(2000)]


def test_noisy_copy(tmp_path, good_dir):
    table = noisy_copy(good_dir, tmp_path / "noisy", 5, seed=3)
    source, copy = KaldiDir.load(good_dir), KaldiDir.load(tmp_path / "noisy")
    assert (copy.text, copy.utt2spk, copy.utt2lang) == (
        source.text, source.utt2spk, source.utt2lang,
    )  # fmt: skip
    assert table == read_kaldi_table(tmp_path / "noisy" / "utt2noise")
    for utt, value in table.items():
        seed, asked, achieved, gain = value.split()
        assert (seed, asked) == ("3", "5")
        assert float(achieved) == pytest.approx(5, abs=0.01)
        assert 0 < float(gain) <= 1
        assert soundfile.info(copy.wav[utt]).subtype == "PCM_16"
        assert soundfile.info(copy.wav[utt]).samplerate == 16000
    assert format_data_dir(tmp_path / "noisy", tmp_path / "dump", "test").kept_path == 5


def test_mixed_copy_agrees_with_single_copies(tmp_path, good_dir, files_of):
    mixed = mixed_snr_copy(good_dir, tmp_path / "mixed", [None, 0, 20], seed=1)
    single = {s: tmp_path / f"snr{s}" for s in ("0", "20")}
    for name, path in single.items():
        noisy_copy(good_dir, path, float(name), seed=1)
    format_data_dir(good_dir, tmp_path / "clean", "test")
    assert len({value.split()[1] for value in mixed.values()}) > 1
    for utt, value in mixed.items():
        other = single.get(value.split()[1], tmp_path / "clean")
        written = (tmp_path / "mixed" / "wavs" / f"{utt}.wav").read_bytes()
        assert written == (other / "wavs" / f"{utt}.wav").read_bytes()
        assert value.split()[1] != "clean" or value == "1 clean clean 1.0"


def test_order_and_subset_change_nothing(tmp_path, good_dir, files_of):
    def shuffled(function, jobs):
        jobs = list(jobs)
        order = random.Random(0).sample(range(len(jobs)), len(jobs))
        results = {i: function(jobs[i]) for i in order}
        return [results[i] for i in range(len(jobs))]

    noisy_copy(good_dir, tmp_path / "one", 0, 1)
    noisy_copy(good_dir, tmp_path / "two", 0, 1, map_fn=shuffled)
    one, two = files_of(tmp_path / "one" / "wavs"), files_of(tmp_path / "two" / "wavs")
    assert one == two
    KaldiDir.load(good_dir).subset(["b2"]).save(tmp_path / "part")
    noisy_copy(tmp_path / "part", tmp_path / "three", 0, 1)
    assert files_of(tmp_path / "three" / "wavs") == {"b2.wav": one["b2.wav"]}
    noisy_copy(good_dir, tmp_path / "seed2", 0, 2)
    assert all(files_of(tmp_path / "seed2" / "wavs")[name] != one[name] for name in one)


def test_rerun(tmp_path, good_dir, files_of, monkeypatch, tone):
    copy = tmp_path / "noisy"
    noisy_copy(good_dir, copy, 0, 1)
    undisturbed = files_of(copy)
    times = {p: p.stat().st_mtime_ns for p in copy.rglob("*")}
    assert noisy_copy(good_dir, copy, 0.0, 1) == read_kaldi_table(copy / "utt2noise")
    assert {p: p.stat().st_mtime_ns for p in copy.rglob("*")} == times

    real, done = noise.copy_utterance, []

    def killed(job):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(job)
        return real(job)

    monkeypatch.setattr(noise, "copy_utterance", killed)
    with pytest.raises(KeyboardInterrupt):
        noisy_copy(good_dir, copy, 10, 1)
    with pytest.raises(DataError, match="wav.scp: no such file"):
        KaldiDir.load(copy)
    monkeypatch.setattr(noise, "copy_utterance", real)
    noisy_copy(good_dir, copy, 0, 1)
    assert files_of(copy) == undisturbed

    (copy / "wavs" / "a1.wav").unlink()
    noisy_copy(good_dir, copy, 0, 1)
    assert files_of(copy) == undisturbed
    soundfile.write(KaldiDir.load(good_dir).wav["a1"], tone(0.25), 16000)
    noisy_copy(good_dir, copy, 0, 1)
    assert soundfile.info(copy / "wavs" / "a1.wav").frames == 4000


def test_segments(tmp_path, make_dir, tone):
    source = make_dir(tmp_path, {"rec": (tone(1.0), 16000)})
    table = {"u1": "rec 0 0.25", "u2": "rec 0.25 -1"}
    write_kaldi_table(source / "segments", table)
    for name in ("text", "utt2spk", "utt2lang", "spk2utt"):
        write_kaldi_table(source / name, {utt: utt for utt in table})
    noisy_copy(source, tmp_path / "noisy", 20, 0)
    copy = KaldiDir.load(tmp_path / "noisy")
    assert copy.segments is None
    assert [soundfile.info(path).frames for path in copy.wav.values()] == [4000, 12000]


def test_bad_clips_are_all_named(tmp_path, bad_dir):
    with pytest.raises(DataError, match="6 of 10 utterances are unusable.*must lose none") as caught:
        noisy_copy(bad_dir, tmp_path / "noisy", 0, 0)
    for reason in ("missing", "unreadable", "empty", "non_finite", "silent", "stereo"):
        assert f"utterance '{reason}': {reason}" in str(caught.value)


def test_wrong_arguments(tmp_path, good_dir):
    with pytest.raises(DataError, match="no SNR given"):
        mixed_snr_copy(good_dir, tmp_path / "noisy", [])
    with pytest.raises(DataError, match="SNR nan"):
        noisy_copy(good_dir, tmp_path / "noisy", math.nan, 0)
    with pytest.raises(DataError, match="output is the input"):
        noisy_copy(good_dir, good_dir, 0, 0)


PINNED = [-0.3912045013998665, 0.9674163745683514, -1.1558597903625536, -0.5077194250382205]
