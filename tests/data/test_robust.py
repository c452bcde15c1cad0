"""Files and transcripts as they come: what is read, what is refused, and that it is named."""

import struct
import unicodedata

import kaldiio
import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from espnet_latentasr.bin import format_wav
from espnet_latentasr.data import format as stage
from espnet_latentasr.data.audio import AudioError, read_audio, read_header
from espnet_latentasr.data.format import format_data_dir
from espnet_latentasr.data.kaldi_dir import KaldiDir, write_kaldi_table
from espnet_latentasr.data.noise import mixed_snr_copy, noisy_copy
from espnet_latentasr.data.skipped import read_skipped
from espnet_latentasr.data.transcripts import folded, mend_transcript
from espnet_latentasr.errors import DataError

# name: options of soundfile.write; all are what users have, at 48 kHz.
FILES = {
    "x.wav": {},
    "x24.wav": {"subtype": "PCM_24"},
    "x32.wav": {"subtype": "PCM_32"},
    "float.wav": {"subtype": "FLOAT"},
    "double.wav": {"subtype": "DOUBLE"},
    "mulaw.wav": {"subtype": "ULAW"},
    "u8.wav": {"subtype": "PCM_U8"},
    "x.flac": {},
    "x24.flac": {"subtype": "PCM_24"},
    "x.mp3": {"format": "MP3"},
    "x.ogg": {"format": "OGG", "subtype": "VORBIS"},
    "x.opus": {"format": "OGG", "subtype": "OPUS"},
    "x.aiff": {},
    "x.au": {"format": "AU"},
    "x.sph": {"format": "NIST"},
    "x.w64": {"format": "W64"},
    "x.rf64": {"format": "RF64"},
    "x.caf": {"format": "CAF"},
}


def write(path, seconds=1.0, rate=48000, channels=1, **options):
    draw = np.random.default_rng(0).uniform(-0.3, 0.3, (round(seconds * rate), channels))
    tone = 0.3 * np.sin(2 * np.pi * 440 * np.arange(len(draw)) / rate)[:, None]
    soundfile.write(path, 0.1 * draw + tone, rate, **options)
    return path


@pytest.mark.parametrize("name", FILES)
def test_formats_under_any_name(tmp_path, name):
    path = write(tmp_path / name, **FILES[name])
    for other in (name, "wrong.wav", "wrong.mp3", "wrong.raw", "no_ending"):
        (tmp_path / other).write_bytes(path.read_bytes())
        samples = read_audio(tmp_path / other, "u")
        assert len(samples) == 16000
        assert np.abs(np.fft.rfft(samples)).argmax() == 440
        assert np.sqrt(np.mean(samples**2)) == pytest.approx(0.3 / np.sqrt(2), rel=0.03)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("share", [0.5, 0.97])
def test_a_cut_file_is_never_a_shorter_clip(tmp_path, name, share):
    data = write(tmp_path / name, **FILES[name]).read_bytes()
    (tmp_path / name).write_bytes(data[: round(len(data) * share)])
    with pytest.raises(AudioError, match=f"utterance 'u': unreadable: .*{name}"):
        read_audio(tmp_path / name, "u")


def test_ogg_that_ends_between_pages(tmp_path):
    data = write(tmp_path / "x.ogg", 8, format="OGG", subtype="VORBIS").read_bytes()
    (tmp_path / "x.ogg").write_bytes(data[: data.rindex(b"OggS")])
    with pytest.raises(AudioError, match="last Ogg page is not marked as the end"):
        read_audio(tmp_path / "x.ogg", "u")


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"", "0 bytes long"),
        (b"\x00\x00\x00\x20ftypM4A ", "M4A .*ffmpeg -i FILE -ar 16000 -ac 1"),
        (b"\x1aE\xdf\xa3 webm", "WebM .*ffmpeg"),
        (b"#!AMR\n", "AMR.*ffmpeg"),
        (b"\xff\xf1\x50\x80", "AAC.*ffmpeg"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"<!DOCTYPE html>", "web page.*download it again"),
        (b"\x1f\x8b\x08", "gzip"),
        (b"NIST_1A\n   1024\nsample_coding -s26 pcm,embedded-shorten-v2.00\n", "shorten.*ffmpeg"),
        (b"no audio in here", "Format not recognised"),
    ],
)
def test_what_is_no_audio_is_called_by_its_name(tmp_path, head, message):
    (tmp_path / "x.wav").write_bytes(head + b"\0" * 2000 * bool(head))
    with pytest.raises(AudioError, match=f"utterance 'u': unreadable.*{message}"):
        read_audio(tmp_path / "x.wav", "u")
    with pytest.raises(AudioError, match="unreadable"):
        read_header(tmp_path / "x.wav", "u")


def test_long_recordings(tmp_path):
    """25 minutes: one clip of it is read alone, the whole is refused before it is."""
    path = tmp_path / "long.wav"
    with open(path, "wb") as file:
        size = 25 * 60 * 8000
        file.write(b"RIFF" + struct.pack("<I", 36 + size) + b"WAVEfmt ")
        file.write(
            struct.pack("<IHHIIHH", 16, 1, 1, 8000, 8000, 1, 8) + b"data" + struct.pack("<I", size)
        )
        file.truncate(44 + size)  # sparse: samples of value 0, which is -1 in 8 bits
    with pytest.raises(AudioError, match=r"too_long: .*1500.000 s, 0.1 to 30 s expected"):
        read_audio(path, "u", limits=(0.1, 30))
    assert len(read_audio(path, "u", span=(1201.0, 1202.5), limits=(0.1, 30))) == 24000
    assert read_header(path, "u") == (8000, size, 1)


def test_integers_as_floats_are_refused(tmp_path):
    samples = (np.sin(np.arange(8000)) * 9000).astype("float32")
    soundfile.write(tmp_path / "x.wav", samples, 16000, subtype="FLOAT")
    with pytest.raises(AudioError, match="peak 8999.*are these integers"):
        read_audio(tmp_path / "x.wav", "u")
    soundfile.write(tmp_path / "x.wav", samples / 4500, 16000, subtype="FLOAT")  # loud: saturates
    assert np.abs(read_audio(tmp_path / "x.wav", "u")).max() == pytest.approx(2, abs=0.01)


def test_many_channels(tmp_path):
    write(tmp_path / "x.flac", 0.2, channels=8)
    with pytest.raises(AudioError, match=r"stereo: .*8 channel\(s\)"):
        read_audio(tmp_path / "x.flac", "u")
    assert len(read_audio(tmp_path / "x.flac", "u", channel=7)) == 3200


@pytest.mark.parametrize("kind", ["wav", "flac"])
def test_kaldi_archives(tmp_path, kind, make_dir, tone):
    pcm = (np.sin(np.arange(8000)) * 9000).astype("int16")
    ark, scp = str(tmp_path / "a.ark"), str(tmp_path / "a.scp")
    if kind == "wav":
        kaldiio.save_ark(ark, {"u1": (16000, pcm), "u2": (16000, pcm[::-1])}, scp=scp)
    else:
        clips = {"u1": (pcm, 16000), "u2": (pcm[::-1], 16000)}
        options = {"write_function": "soundfile", "write_kwargs": {"format": "flac"}}
        kaldiio.save_ark(ark, clips, scp=scp, **options)
    wav = dict(line.split() for line in open(scp))
    assert (read_audio(wav["u2"], "u2") * 32768 == pcm[::-1]).all()
    source = make_dir(tmp_path, {"u1": (tone(), 16000), "u2": (tone(), 16000)})
    write_kaldi_table(source / "wav.scp", wav)
    assert format_data_dir(source, tmp_path / "dump", "test").kept_path == 0
    assert format_data_dir(source, tmp_path / "dump", "test").reused == 2
    written = soundfile.read(KaldiDir.load(tmp_path / "dump").wav["u1"], dtype="int16")[0]
    assert (written == pcm).all()
    noisy_copy(source, tmp_path / "noisy", 10, 0)
    with pytest.raises(AudioError, match="unreadable.*no audio begins there"):
        read_audio(f"{ark}:1", "u")
    with pytest.raises(AudioError, match="missing"):
        read_audio(f"{tmp_path}/b.ark:5", "u")
    data = (tmp_path / "a.ark").read_bytes()
    (tmp_path / "a.ark").write_bytes(data[:-1000])
    with pytest.raises(AudioError, match="unreadable"):
        read_audio(wav["u2"], "u2")
    kaldiio.save_ark(ark, {"m": np.zeros((3, 4), dtype="float32")})
    with pytest.raises(AudioError, match="no audio begins there"):
        read_audio(f"{ark}:2", "u")
    kaldiio.save_ark(ark, {"p": {"never": "unpickled"}}, write_function="pickle")
    with pytest.raises(AudioError, match="neither RIFF nor AUDIO"):
        read_audio(f"{ark}:2", "u")


# ---- test sets that may lose utterances --------------------------------------------------------


def test_skipping_in_a_test_set_is_asked_for(tmp_path, bad_dir, capsys):
    with pytest.raises(DataError, match=r"8 of 10 .*never loses one.*or skip them on purpose"):
        format_data_dir(bad_dir, tmp_path / "dump", "test")
    args = ["--data_dir", str(bad_dir), "--output_dir", str(tmp_path / "dump"), "--kind", "test"]
    format_wav.main([*args, "--skip_unusable", "true"])
    assert "10 utterances in, 2 out" in (out := capsys.readouterr().out)
    assert all(f" {reason}=1" in out for reason in ("missing", "unreadable", "empty", "stereo"))
    assert KaldiDir.load(tmp_path / "dump").utts == ["good1", "good2"]
    assert len((tmp_path / "dump" / "skipped.tsv").read_text().splitlines()) == 9


def test_what_a_noisy_copy_skipped_is_not_forgotten(tmp_path, bad_dir):
    mixed_snr_copy(bad_dir, tmp_path / "noisy", [5], skip_unusable=True)
    report = format_data_dir(tmp_path / "noisy", tmp_path / "dump", "test", skip_unusable=True)
    assert report.earlier == ["empty", "missing", "non_finite", "silent", "stereo", "unreadable"]
    assert "6 skipped before: 'empty', 'missing', " in str(report)
    skipped = read_skipped(tmp_path / "dump" / "skipped.tsv")
    assert [(utt, reason) for utt, reason, _ in skipped] == [
        *((utt, utt) for utt in report.earlier), ("too_long", "too_long"), ("too_short", "too_short"),
    ]  # fmt: skip
    (tmp_path / "dump" / "skipped.tsv").write_text("utt\treason\tdetail\nx y\n")
    with pytest.raises(DataError, match="skipped.tsv:2: .*expected"):
        read_skipped(tmp_path / "dump" / "skipped.tsv")
    assert read_skipped(tmp_path / "none.tsv") == []


# ---- transcripts -------------------------------------------------------------------------------

KEPT = {
    "hebrew": "שלום עולם",
    "arabic, right to left mark": "مرحبا\u200f!",
    "persian joiner": "می\u200cخواهم",
    "chinese, wide blank": "你好\u3000世界",
    "thai": "สวัสดีครับ",
    "hindi": "नमस्ते दुनिया",
    "emoji family": "ok 👨\u200d👩\u200d👧 👍🏽",
    "case, signs and two blanks": "Ünï  Cödé: 3,5 % – “x”",
    "ligature and full width": "ﬁ Ａ ①",
}


@pytest.mark.parametrize("name", KEPT)
def test_scripts_pass_untouched(tmp_path, good_dir, name):
    texts = KaldiDir.load(good_dir).text | {"b1": KEPT[name]}
    write_kaldi_table(good_dir / "text", texts)
    assert format_data_dir(good_dir, tmp_path / "dump", "test").mended == []
    assert KaldiDir.load(tmp_path / "dump").text == texts


def test_transcripts_become_one_line_in_nfc(tmp_path, good_dir):
    decomposed = unicodedata.normalize("NFD", "é ö 각")
    odd = {"a1": decomposed, "a2": "tab\tand\x0bmore", "b1": "x\u2028y\ufeffz"}
    write_kaldi_table(good_dir / "text", KaldiDir.load(good_dir).text | odd)
    report = format_data_dir(good_dir, tmp_path / "dump", "test")
    written = KaldiDir.load(tmp_path / "dump").text
    assert [written[utt] for utt in odd] == ["é ö 각", "tab and more", "x y z"]
    assert report.mended == ["a1", "a2", "b1"]
    assert "3 transcripts brought to one line in NFC: 'a1', 'a2', 'b1'" in str(report)


def test_transcript_of_control_characters_only(tmp_path, good_dir):
    write_kaldi_table(good_dir / "text", KaldiDir.load(good_dir).text | {"a1": "\x00\x7f"})
    with pytest.raises(DataError, match="utterance 'a1': only control characters"):
        format_data_dir(good_dir, tmp_path / "dump", "test")
    assert format_data_dir(good_dir, tmp_path / "dump", "train").mended == ["a1"]


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_mending_is_done_once_and_gives_a_line(text):
    mended = mend_transcript(text)
    assert mend_transcript(mended) == mended == unicodedata.normalize("NFC", mended)
    assert len(mended.split("\n")) == 1
    assert not set(mended) & set("\r\t\v\f\x85\u2028\u2029\ufeff\x00")
    left = [c for c in unicodedata.normalize("NFC", text) if unicodedata.category(c) not in CHANGED]
    assert unicodedata.normalize("NFC", "".join(left)).replace("\ufeff", "").replace(" ", "") == (
        unicodedata.normalize("NFC", mended.replace(" ", ""))
    )
    assert folded(folded(text)) == folded(text)


CHANGED = {"Cc", "Zl", "Zp"}


def test_half_a_character():
    with pytest.raises(DataError, match="character 2 is half of a surrogate pair"):
        mend_transcript("x\ud83d")


# ---- ids ---------------------------------------------------------------------------------------


def test_ids_alike_but_for_case(tmp_path, make_dir, tone, monkeypatch):
    clips = dict.fromkeys(["a", "Straße", "b", "strasse", "A"], (tone(), 16000))
    source = make_dir(tmp_path, clips)
    report = format_data_dir(source, tmp_path / "dump", "test")
    assert sorted(report.alike) == [("A", "a"), ("Straße", "strasse")]
    assert "2 pairs of ids alike but for case: 'A'/'a', 'Straße'/'strasse'" in str(report)
    monkeypatch.setattr(stage, "_ignores_case", lambda folder: True)
    for copy in (
        lambda out: format_data_dir(source, out, "test"),
        lambda out: noisy_copy(source, out, 0, 0),
    ):
        with pytest.raises(DataError, match="ids 'A' and 'a' \\(2 such pairs\\) differ in case only"):
            copy(tmp_path / "again")


def test_file_system_with_case(tmp_path):
    (tmp_path / "x").touch()
    assert stage._ignores_case(tmp_path) is (tmp_path / "X").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
