"""Stage 3: what is converted, kept, skipped or refused, and what a rerun does."""

import os
import re

import numpy as np
import pytest
import soundfile

from espnet_latentasr.data import format as stage
from espnet_latentasr.data.audio import REMEDIES
from espnet_latentasr.data.format import JOURNAL, format_data_dir
from espnet_latentasr.data.kaldi_dir import KaldiDir, read_kaldi_table, write_kaldi_table
from espnet_latentasr.errors import DataError


@pytest.mark.parametrize("kind", ["train", "valid", "test"])
def test_good_set(tmp_path, good_dir, kind):
    report = format_data_dir(good_dir, tmp_path / "dump", kind)
    data, source = KaldiDir.load(tmp_path / "dump"), KaldiDir.load(good_dir)
    assert (data.text, data.utt2spk, data.utt2lang) == (
        source.text, source.utt2spk, source.utt2lang,
    )  # fmt: skip
    lengths = read_kaldi_table(tmp_path / "dump" / "utt2num_samples")
    for utt, path in data.wav.items():
        info = soundfile.info(path)
        assert (info.samplerate, info.channels, info.subtype) == (16000, 1, "PCM_16")
        assert info.frames == int(lengths[utt])
        assert abs(info.frames - 8000) <= 1
    assert (tmp_path / "dump" / "feats_type").read_text() == "raw\n"
    assert (tmp_path / "dump" / "spk2utt").exists()
    assert (tmp_path / "dump" / "skipped.tsv").read_text() == "utt\treason\tdetail\n"
    assert re.fullmatch(
        r"5 utterances in, 5 out \(0 reused, 0 with their own file, 0 saturated\), skipped "
        + " ".join(f"{reason}=0" for reason in REMEDIES),
        str(report),
    )


def test_final_files_keep_their_path(tmp_path, make_dir, tone):
    source = make_dir(tmp_path, {"a": (tone(), 16000), "b": (tone(), 16000)})
    soundfile.write(tmp_path / "audio" / "b.flac", tone(), 16000)
    wav = KaldiDir.load(source).wav | {"b": str(tmp_path / "audio" / "b.flac")}
    write_kaldi_table(source / "wav.scp", wav)
    report = format_data_dir(source, tmp_path / "dump", "test")
    formatted = KaldiDir.load(tmp_path / "dump")
    assert report.kept_path == 1
    assert formatted.wav == {"a": str(tmp_path / "dump" / "wavs" / "a.wav"), "b": wav["b"]}
    again = format_data_dir(tmp_path / "dump", tmp_path / "dump2", "test")
    assert again.kept_path == 2


def test_training_set_skips_by_name(tmp_path, bad_dir):
    report = format_data_dir(bad_dir, tmp_path / "dump", "train")
    assert KaldiDir.load(tmp_path / "dump").utts == ["good1", "good2"]
    rows = [row.split("\t") for row in (tmp_path / "dump" / "skipped.tsv").read_text().split("\n")]
    assert [row[:2] for row in rows[1:-1]] == [[reason, reason] for reason in sorted(REMEDIES)]
    assert all(f"{reason}=1" in str(report) for reason in REMEDIES)
    assert (report.entries, len(report.problems)) == (10, 8)


def test_test_set_loses_nothing(tmp_path, bad_dir, tone):
    with pytest.raises(DataError, match=r"8 of 10 utterances are unusable.*never loses") as caught:
        format_data_dir(bad_dir, tmp_path / "dump", "test")
    for reason in REMEDIES:
        assert f"utterance '{reason}': {reason}: " in str(caught.value)
    assert not (tmp_path / "dump" / "wav.scp").exists()
    assert (tmp_path / "dump" / "wavs" / "good2.wav").exists()
    for reason in REMEDIES:
        soundfile.write(tmp_path / "audio" / f"{reason}.wav", tone(hz=250), 16000)
    report = format_data_dir(bad_dir, tmp_path / "dump", "test")
    assert (report.entries, report.reused, report.problems) == (10, 2, [])
    assert KaldiDir.load(tmp_path / "dump").utts == KaldiDir.load(bad_dir).utts


def test_failed_rerun_leaves_no_old_set_behind(tmp_path, good_dir):
    format_data_dir(good_dir, tmp_path / "dump", "test")
    os.unlink(KaldiDir.load(good_dir).wav["b1"])
    with pytest.raises(DataError, match="1 of 5 .*'b1': missing"):
        format_data_dir(good_dir, tmp_path / "dump", "test")
    with pytest.raises(DataError, match="wav.scp: no such file"):
        KaldiDir.load(tmp_path / "dump")


def test_stereo_is_mixed_only_when_asked(tmp_path, make_dir, tone):
    source = make_dir(tmp_path, {"a": (np.stack([tone(), np.zeros(8000)], 1), 16000)})
    with pytest.raises(DataError, match="stereo"):
        format_data_dir(source, tmp_path / "dump", "test")
    format_data_dir(source, tmp_path / "dump", "test", channel="mix")
    samples, _ = soundfile.read(tmp_path / "dump" / "wavs" / "a.wav")
    assert samples == pytest.approx(tone() / 2, abs=1 / 32768)


def test_limits_are_a_choice(tmp_path, make_dir, tone):
    source = make_dir(tmp_path, {"a": (tone(30.5, 8000), 8000)})
    with pytest.raises(DataError, match=r"too_long: .*30.500 s.*0.1 to 30 s expected"):
        format_data_dir(source, tmp_path / "dump", "test")
    assert format_data_dir(source, tmp_path / "dump", "test", limits=(0.1, 60)).problems == []


def test_segments_become_files(tmp_path, make_dir, tone):
    source = make_dir(tmp_path, {"rec": (tone(1.0), 16000)})
    table = {"u1": "rec 0 0.25", "u2": "rec 0.25 -1"}
    write_kaldi_table(source / "segments", table)
    for name in ("text", "utt2spk", "utt2lang", "spk2utt"):
        write_kaldi_table(source / name, {utt: utt for utt in table})
    format_data_dir(source, tmp_path / "dump", "test")
    lengths = read_kaldi_table(tmp_path / "dump" / "utt2num_samples")
    assert lengths == {"u1": "4000", "u2": "12000"}
    assert not (tmp_path / "dump" / "segments").exists()
    assert set(KaldiDir.load(tmp_path / "dump").wav) == {"u1", "u2"}


def test_nothing_left_is_an_error(tmp_path, make_dir):
    source = make_dir(tmp_path, {"a": (np.zeros(8000), 16000)})
    with pytest.raises(DataError, match="1 of 1 utterances are unusable, and none is left"):
        format_data_dir(source, tmp_path / "dump", "train")


def test_empty_transcript(tmp_path, good_dir):
    write_kaldi_table(good_dir / "text", KaldiDir.load(good_dir).text | {"a2": ""})
    with pytest.raises(DataError, match="'a2': no value"):
        format_data_dir(good_dir, tmp_path / "dump", "test")
    assert format_data_dir(good_dir, tmp_path / "dump", "train").problems == []


def test_wrong_arguments(tmp_path, good_dir):
    with pytest.raises(DataError, match="kind 'dev': one of train, valid, test"):
        format_data_dir(good_dir, tmp_path / "dump", "dev")
    with pytest.raises(DataError, match="output is the input"):
        format_data_dir(good_dir, good_dir, "test")


def test_source_is_never_overwritten(tmp_path, make_dir, tone):
    source = make_dir(tmp_path, {"a": (tone(rate=8000), 8000)})
    (tmp_path / "audio").rename(tmp_path / "wavs")
    write_kaldi_table(source / "wav.scp", {"a": str(tmp_path / "wavs" / "a.wav")})
    with pytest.raises(DataError, match="would overwrite its source"):
        format_data_dir(source, tmp_path, "test")
    assert soundfile.info(tmp_path / "wavs" / "a.wav").samplerate == 8000


@pytest.mark.parametrize("torn", [b"", b'{"utt_id": "b2", "finger'])
def test_rerun_after_a_kill_equals_an_undisturbed_run(
    tmp_path, good_dir, files_of, monkeypatch, torn
):
    dump = tmp_path / "dump"
    format_data_dir(good_dir, dump, "train")
    undisturbed = files_of(dump)
    dump.rename(tmp_path / "first")
    done = []

    def killed(job):
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(job.utt_id)
        return real(job)

    real = stage.format_utterance
    monkeypatch.setattr(stage, "format_utterance", killed)
    with pytest.raises(KeyboardInterrupt):
        format_data_dir(good_dir, dump, "train")
    assert not (dump / "wav.scp").exists()
    with open(dump / JOURNAL, "ab") as journal:
        journal.write(torn)
    monkeypatch.setattr(stage, "format_utterance", real)
    report = format_data_dir(good_dir, dump, "train")
    assert report.reused == 3
    assert files_of(dump) == undisturbed
    assert format_data_dir(good_dir, dump, "train").reused == 5
    assert files_of(dump) == undisturbed


def test_changed_source_or_lost_output_is_redone(tmp_path, good_dir, tone):
    dump = tmp_path / "dump"
    format_data_dir(good_dir, dump, "train")
    soundfile.write(KaldiDir.load(good_dir).wav["a1"], tone(0.25), 16000)
    (dump / "wavs" / "b1.wav").unlink()
    assert format_data_dir(good_dir, dump, "train").reused == 3
    assert read_kaldi_table(dump / "utt2num_samples")["a1"] == "4000"
    assert (dump / "wavs" / "b1.wav").exists()
    assert format_data_dir(good_dir, dump, "train", limits=(0.2, 30)).reused == 0
