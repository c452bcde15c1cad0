"""Stage 4: limits, counts and the promise to test sets."""

import pytest

from espnet_latentasr.data.format import format_data_dir
from espnet_latentasr.data.kaldi_dir import KaldiDir, read_kaldi_table, write_kaldi_table
from espnet_latentasr.data.length_filter import drop_reason, filter_data_dir
from espnet_latentasr.errors import DataError


@pytest.fixture
def formatted(tmp_path, make_dir, tone):
    """Return a formatted set with a clip of 0.2, 0.5 and 2 s and one without transcript."""
    seconds = {"long": 2.0, "mute": 0.5, "ok": 0.5, "short": 0.2}
    source = make_dir(tmp_path, {utt: (tone(s), 16000) for utt, s in seconds.items()})
    write_kaldi_table(source / "text", KaldiDir.load(source).text | {"mute": ""})
    format_data_dir(source, tmp_path / "org", "train")
    return tmp_path / "org"


@pytest.mark.parametrize(
    ("num_samples", "text", "reason"),
    [
        (1600, "a", None),
        (1599, "a", "too_short"),
        (480000, "a", None),
        (480001, "a", "too_long"),
        (16000, " ", "empty_text"),
    ],
)
def test_drop_reason(num_samples, text, reason):
    assert drop_reason(num_samples, text) == reason


def test_training_set(tmp_path, formatted):
    report = filter_data_dir(formatted, tmp_path / "out", "train", limits=(0.3, 1.0))
    data = KaldiDir.load(tmp_path / "out")
    assert data.utts == ["ok"]
    assert read_kaldi_table(tmp_path / "out" / "utt2num_samples") == {"ok": "8000"}
    assert str(report) == "4 utterances in, 1 out, dropped too_long=1 too_short=1 empty_text=1"
    rows = (tmp_path / "out" / "filtered.tsv").read_text().splitlines()
    assert [row.split("\t")[:2] for row in rows[1:]] == [
        ["long", "too_long"], ["mute", "empty_text"], ["short", "too_short"],
    ]  # fmt: skip
    assert (tmp_path / "out" / "feats_type").read_text() == "raw\n"


def test_counts_are_reported_when_zero(tmp_path, formatted):
    write_kaldi_table(formatted / "text", dict.fromkeys(KaldiDir.load(formatted, True).utts, "x"))
    report = filter_data_dir(formatted, tmp_path / "out", "valid")
    assert str(report) == "4 utterances in, 4 out, dropped too_long=0 too_short=0 empty_text=0"


def test_test_set_loses_nothing(tmp_path, formatted):
    write_kaldi_table(formatted / "text", dict.fromkeys(KaldiDir.load(formatted, True).utts, "x"))
    report = filter_data_dir(formatted, tmp_path / "out", "test", limits=(0.3, 1.0))
    assert report.dropped == []
    assert KaldiDir.load(tmp_path / "out").utts == ["long", "mute", "ok", "short"]


def test_errors(tmp_path, formatted):
    with pytest.raises(DataError, match=r"nothing is left \(4 utterances in, 0 out, dropped"):
        filter_data_dir(formatted, tmp_path / "out", "train", limits=(10, 20))
    assert not (tmp_path / "out").exists()
    lengths = read_kaldi_table(formatted / "utt2num_samples")
    write_kaldi_table(formatted / "utt2num_samples", lengths | {"ok": "8e3"})
    with pytest.raises(DataError, match="'ok' has '8e3'"):
        filter_data_dir(formatted, tmp_path / "out", "train")
    lengths.pop("mute")
    write_kaldi_table(formatted / "utt2num_samples", lengths)
    with pytest.raises(DataError, match=r"'mute' is in only one.*\(it has 3, text has 4\)"):
        filter_data_dir(formatted, tmp_path / "out", "train")
    with pytest.raises(DataError, match="kind 'dev'"):
        filter_data_dir(formatted, tmp_path / "out", "dev")
