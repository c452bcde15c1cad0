"""Overlap of sets by id, speaker, text and audio."""

import numpy as np
import pytest
import soundfile

from espnet_latentasr.analysis.overlap import overlap, read_material
from espnet_latentasr.data.kaldi_dir import KaldiDir
from espnet_latentasr.errors import DataError
from espnet_latentasr.text.normalize import get_normalizer

BASIC = get_normalizer("whisper_basic")


@pytest.fixture
def make_set(tmp_path):
    """Write a data directory of {utterance: (speaker, text, samples)}; return its path."""

    def make(name, utterances, form="wav", segments=None):
        folder = tmp_path / name
        folder.mkdir()
        wav = {}
        for utt, (_, _, samples) in utterances.items():
            wav[utt] = str(folder / f"{utt}.{form}")
            soundfile.write(wav[utt], np.asarray(samples, dtype=np.int16), 16000, subtype="PCM_16")
        text = {utt: entry[1] for utt, entry in utterances.items()}
        speakers = {utt: entry[0] for utt, entry in utterances.items()}
        KaldiDir(folder, wav, text, speakers).save(folder)
        return folder

    return make


NOISE = np.random.default_rng(0).integers(-999, 999, 4000)


def test_each_kind_of_overlap(make_set):
    train = make_set("train", {"s1-a": ("s1", "Hello there", NOISE), "s2-b": ("s2", "x", NOISE[:2000])})
    test = make_set(
        "test",
        {
            "s1-a": ("s1", "new words", NOISE[:3000]),  # id and speaker
            "s3-c": ("s3", "hello, there!", NOISE + 1),  # text
            "s4-d": ("s4", "other", NOISE),  # audio, in another format
        },
        form="flac",
    )
    found = overlap(read_material(train, BASIC), read_material(test, BASIC))
    assert (found.train, found.test, found.utterances) == ("train", "test", 3)
    assert (found.ids, found.speakers, found.texts, found.audio) == (
        ("s1-a",), ("s1-a",), ("s3-c",), ("s4-d",),
    )  # fmt: skip


def test_a_set_overlaps_itself_wholly(make_set):
    one = make_set("one", {"s1-a": ("s1", "p", NOISE), "s2-b": ("s2", "q", NOISE[:1000])})
    found = overlap(read_material(one, BASIC), read_material(one, BASIC))
    assert found.ids == found.speakers == found.texts == found.audio == ("s1-a", "s2-b")


def test_only_audio_of_equal_length_is_read(make_set):
    train = make_set("train", {"s1-a": ("s1", "p", NOISE)})
    test = make_set("test", {"s2-b": ("s2", "q", NOISE[:1000])})
    for folder, count in ((train, 4000), (test, 1000)):
        utt = next(iter(KaldiDir.load(folder).text))
        (folder / "utt2num_samples").write_text(f"{utt} {count}\n")
        (folder / f"{utt}.wav").unlink()
    assert overlap(read_material(train, BASIC), read_material(test, BASIC)).audio == ()


def test_without_audio(make_set):
    one = make_set("one", {"s1-a": ("s1", "p", NOISE)})
    (one / "s1-a.wav").unlink()
    material = read_material(one, BASIC, audio=False)
    assert overlap(material, material).audio is None
    with pytest.raises(DataError, match=r"wav.scp: utterance 's1-a'"):
        read_material(one, BASIC)


def test_segments_count_their_own_samples(make_set):
    whole = make_set("whole", {"rec": ("rec", "p", NOISE)})
    folder = whole.parent / "cut"
    data = KaldiDir.load(whole)
    segments = {"s1-a": "rec 0 0.125", "s1-b": "rec 0.125 -1"}
    KaldiDir(folder, data.wav, {"s1-a": "p", "s1-b": "q"}, dict.fromkeys(segments, "s1"),
             segments=segments).save(folder)  # fmt: skip
    half = make_set("half", {"s2-a": ("s2", "r", NOISE[:2000])})
    found = overlap(read_material(half, BASIC), read_material(folder, BASIC))
    assert found.audio == ("s1-a",)
