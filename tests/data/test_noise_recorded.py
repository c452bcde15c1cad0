"""Recorded noise: which piece an utterance hears, at which level, and what is written about it."""

import csv
import hashlib

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from espnet_latentasr.bin import add_noise
from espnet_latentasr.data import recorded_noise
from espnet_latentasr.data.kaldi_dir import KaldiDir, read_kaldi_table, write_kaldi_table
from espnet_latentasr.data.mixing import mix_at_snr, snr
from espnet_latentasr.data.noise import COLUMNS, mixed_snr_copy, noisy_copy
from espnet_latentasr.data.recorded_noise import (
    HOP,
    QUIETEST,
    NoiseFile,
    choose_noise,
    cut_noise,
    list_noise,
)
from espnet_latentasr.errors import DataError


@pytest.fixture
def noises(tmp_path):
    """A folder as MUSAN's: a long, a short, a stereo and an 8 kHz recording."""
    draw = np.random.default_rng(0)
    folder = tmp_path / "musan"
    for name, (seconds, rate, channels) in {
        "noise/free/long.wav": (3.0, 16000, 1),
        "noise/free/short.flac": (0.2, 16000, 1),
        "music/stereo.wav": (2.0, 16000, 2),
        "music/phone.wav": (2.0, 8000, 1),
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        samples = draw.uniform(-0.2, 0.2, (round(seconds * rate), channels)) + 0.05
        soundfile.write(folder / name, samples, rate)
    (folder / "LICENSE").write_text("not a recording")
    return folder


def rows_of(path):
    with open(path / "noise.tsv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert tuple(rows[0]) == COLUMNS
    return {row["utt"]: row for row in rows}


def test_same_piece_at_every_snr(tmp_path, good_dir, noises):
    tables, pieces = {}, {}
    for snr_db in (0, 10):
        mixed_snr_copy(good_dir, tmp_path / str(snr_db), [snr_db], 1, noise_from=noises)
        tables[snr_db] = rows_of(tmp_path / str(snr_db))
        clean = tmp_path / "clean"
        mixed_snr_copy(good_dir, clean, [None], 1, noise_from=noises)
        for utt, row in tables[snr_db].items():
            assert float(row["achieved"]) == pytest.approx(snr_db, abs=0.01)
            speech = soundfile.read(clean / "wavs" / f"{utt}.wav")[0]
            mix = soundfile.read(tmp_path / str(snr_db) / "wavs" / f"{utt}.wav")[0]
            noise = mix / float(row["gain"]) - speech
            pieces[snr_db, utt] = noise / np.sqrt(np.mean(noise**2))
    for utt in KaldiDir.load(good_dir).utts:
        assert [tables[s][utt][key] for s in (0, 10) for key in ("noise", "start", "fit")] == [
            tables[0][utt][key] for key in ("noise", "start", "fit")
        ] * 2
        assert np.mean(pieces[0, utt] * pieces[10, utt]) > 0.999
    assert len({row["noise"] for row in tables[0].values()}) > 1
    assert rows_of(tmp_path / "clean")["a1"]["noise"] == "-"


def test_piece_can_be_found_again_from_the_table(tmp_path, good_dir, noises):
    for path in noises.rglob("*"):
        if path.suffix and "long" not in path.name:
            path.unlink()
    mixed_snr_copy(good_dir, tmp_path / "noisy", [0], 4, noise_from=noises)
    row = rows_of(tmp_path / "noisy")["a1"]
    assert (row["noise"], row["fit"]) == ("noise/free/long.wav", "cropped")
    noise = soundfile.read(noises / row["noise"], dtype="float32")[0]
    start = round(float(row["start"]) * 16000)
    assert start % HOP == 0
    piece = (noise - noise.mean())[start : start + 8000]
    speech = soundfile.read(KaldiDir.load(good_dir).wav["a1"], dtype="float32")[0]
    mix = mix_at_snr(speech, piece, 0)
    written = soundfile.read(tmp_path / "noisy" / "wavs" / "a1.wav")[0]
    assert written == pytest.approx(mix.samples, abs=1 / 32768)
    assert float(row["gain"]) == pytest.approx(mix.gain)


def test_short_noise_starts_over():
    noise = np.arange(1.0, 1001.0, dtype="float32")
    piece, start = cut_noise(noise, 2500, key=2**127)
    assert start * 16000 % HOP == 0
    first = round(start * 16000)
    assert piece.tolist() == [1 + (first + i) % 1000 for i in range(2500)]


@settings(deadline=None, derandomize=True, max_examples=40)
@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(0, 2**128 - 1))
def test_a_piece_is_of_the_recording(length, wanted, key):
    noise = np.random.default_rng(length).standard_normal(length).astype("float32")
    piece, start = cut_noise(noise, wanted, key)
    first = round(start * 16000)
    assert len(piece) == wanted
    assert 0 <= first < length
    assert first + wanted <= length or length < wanted
    assert (piece == np.resize(np.roll(noise, -first), wanted)).all()


def test_pauses_are_not_taken_for_noise():
    noise = np.zeros(160000, dtype="float32")
    noise[48000:49600] = 0.5
    for key in range(0, 2**128, 2**128 // 50):
        piece, _ = cut_noise(noise, 1600, key)
        assert np.mean(piece**2) >= QUIETEST * np.mean(noise.astype(float) ** 2)
    with pytest.raises(DataError, match="all samples are the same"):
        cut_noise(np.zeros(100, dtype="float32"), 10, 0)


def test_choice_depends_on_seed_and_utterance_only():
    files = [NoiseFile(f"n{i}", "") for i in range(20)]
    first = {f"u{i}": choose_noise(files, 1, f"u{i}").noise_id for i in range(100)}
    assert first == {utt: choose_noise(files[::-1], 1, utt).noise_id for utt in first}
    assert first != {utt: choose_noise(files, 2, utt).noise_id for utt in first}
    more = {utt: choose_noise([*files, NoiseFile("new", "")], 1, utt).noise_id for utt in first}
    assert {more[utt] for utt in first if more[utt] != first[utt]} == {"new"}


def test_noise_scp_and_folders(tmp_path, noises):
    names = ["music/phone.wav", "music/stereo.wav", "noise/free/long.wav", "noise/free/short.flac"]
    assert [file.noise_id for file in list_noise(noises)] == names
    write_kaldi_table(noises / "noise.scp", {"b": "noise/free/long.wav", "a": "music/phone.wav"})
    for where in (noises, noises / "noise.scp"):
        assert [file.noise_id for file in list_noise(where)] == ["a", "b"]
    write_kaldi_table(noises / "noise.scp", {"a": "gone.wav"})
    with pytest.raises(DataError, match=r"noise 'a': no such file: .*gone.wav"):
        list_noise(noises)
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match="no noise there"):
        list_noise(tmp_path / "none")
    with pytest.raises(DataError, match="no such folder"):
        list_noise(tmp_path / "nowhere")


def test_clipping_is_counted(tmp_path, make_dir, tone, noises):
    source = make_dir(tmp_path, {"loud": (tone(peak=0.9), 16000), "low": (tone(peak=0.01), 16000)})
    mixed_snr_copy(source, tmp_path / "noisy", [0], 0, noise_from=noises)
    rows = rows_of(tmp_path / "noisy")
    assert int(rows["loud"]["clipped"]) > 0
    assert float(rows["loud"]["gain"]) < 1
    assert (rows["low"]["clipped"], rows["low"]["gain"]) == ("0", "1.0")
    for utt in rows:
        assert np.abs(soundfile.read(tmp_path / "noisy" / "wavs" / f"{utt}.wav")[0]).max() < 1


def test_bad_noise_is_named(tmp_path, good_dir, noises):
    for path in noises.rglob("*.*"):
        path.write_bytes(b"RIFF no audio")
    with pytest.raises(DataError, match=r"(short|long|phone|stereo)\..*noise of utterance '.*unreadable"):
        mixed_snr_copy(good_dir, tmp_path / "noisy", [0], 0, noise_from=noises)
    assert not (tmp_path / "noisy" / "wav.scp").exists()


def test_rerun_and_change_of_noise(tmp_path, good_dir, noises, files_of):
    copy = tmp_path / "noisy"
    mixed_snr_copy(good_dir, copy, [0], 1, noise_from=noises)
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*")}
    mixed_snr_copy(good_dir, copy, [0], 1, noise_from=noises)
    assert {path: path.stat().st_mtime_ns for path in copy.rglob("*")} == before
    first = files_of(copy / "wavs")
    noisy_copy(good_dir, copy, 0, 1)
    assert files_of(copy / "wavs") != first
    assert not (copy / "noise.tsv").exists()


def test_killed_copy_does_the_rest(tmp_path, good_dir, noises, monkeypatch):
    done = []

    def killed(function, jobs):
        for job in jobs:
            if len(done) == 2:
                raise KeyboardInterrupt
            done.append(job.utt_id)
            yield function(job)

    with pytest.raises(KeyboardInterrupt):
        mixed_snr_copy(good_dir, tmp_path / "noisy", [0], 1, killed, noise_from=noises)
    rest = []

    def counted(function, jobs):
        rest.extend(jobs)
        return map(function, jobs)

    mixed_snr_copy(good_dir, tmp_path / "noisy", [0], 1, counted, noise_from=noises)
    assert done == ["a1", "a2"]
    assert [job.utt_id for job in rest] == ["b1", "b2", "c1"]
    assert not list((tmp_path / "noisy").glob(".*"))
    assert rows_of(tmp_path / "noisy").keys() == {"a1", "a2", "b1", "b2", "c1"}


def test_skipping_is_asked_for_and_counted(tmp_path, bad_dir):
    with pytest.raises(DataError, match="--skip_unusable true"):
        mixed_snr_copy(bad_dir, tmp_path / "noisy", [0])
    copied = mixed_snr_copy(bad_dir, tmp_path / "noisy", [0], skip_unusable=True)
    assert copied.keys() == {"good1", "good2", "too_long", "too_short"}
    rows = (tmp_path / "noisy" / "skipped.tsv").read_text().splitlines()
    assert [row.split("\t")[0] for row in rows[1:]] == [
        "empty", "missing", "non_finite", "silent", "stereo", "unreadable",
    ]  # fmt: skip


def test_command(tmp_path, good_dir, noises, capsys):
    args = ["--data_dir", str(good_dir), "--output_dir", str(tmp_path / "n"), "--snr", "5"]
    add_noise.main([*args, "--noise_dir", str(noises), "--seed", "2"])
    assert capsys.readouterr().out == f"{tmp_path / 'n'}: 5 utterances, per SNR in dB: 5=5\n"
    assert rows_of(tmp_path / "n").keys() == read_kaldi_table(tmp_path / "n" / "utt2noise").keys()


def test_gaussian_copies_are_what_they_were(tmp_path, make_dir):
    """Integers only, so that no mathematical library can change the bytes."""
    ramp = ((np.arange(1600) * 37 % 201 - 100) / 1024).astype("float32")
    source = make_dir(tmp_path, {"u": (ramp, 16000)})
    assert noisy_copy(source, tmp_path / "n", 5, 3) == {"u": "3 5 5.0000 1.0"}
    pcm = soundfile.read(tmp_path / "n" / "wavs" / "u.wav", dtype="int16")[0]
    assert hashlib.sha256(pcm.astype("<i2").tobytes()).hexdigest()[:16] == GAUSSIAN
    assert not (tmp_path / "n" / "noise.tsv").exists()
    assert snr(ramp, pcm / 32768) == pytest.approx(5, abs=1e-3)
    assert recorded_noise.HOP == 160


GAUSSIAN = "9b06ad6fbf4f1136"
