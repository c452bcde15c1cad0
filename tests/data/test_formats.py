"""Formats in and out: round trips, what each reader understands, and what it refuses by name."""

import gzip
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from espnet_latentasr.bin import convert_data as command
from espnet_latentasr.data.formats import READERS, WRITERS, KaldiOptions, ReadOptions, convert
from espnet_latentasr.data.formats.base import write_jsonl
from espnet_latentasr.data.formats.kaldi import ORIGINAL, safe_name
from espnet_latentasr.data.kaldi_dir import KaldiDir, read_kaldi_table, write_kaldi_table
from espnet_latentasr.errors import ConfigError, DataError


@pytest.fixture
def whole(tmp_path, make_dir, tone):
    """Three clips of two speakers in two languages, a file each."""
    clips = {utt: (tone(0.5 + i / 8, 8000), 8000) for i, utt in enumerate(["s1-a", "s1-b", "s2-c"])}
    path = make_dir(tmp_path, clips)
    data = replace(
        KaldiDir.load(path),
        text={"s1-a": "ein  Wort", "s1-b": "שלום 👍🏽", "s2-c": "你好\u3000吗"},
        utt2spk={"s1-a": "s1", "s1-b": "s1", "s2-c": "s2"},
        utt2lang={"s1-a": "de", "s1-b": "he", "s2-c": "zh"},
    )
    return data.save(path)


@pytest.fixture
def parts(tmp_path, make_dir, tone):
    """Three parts of two recordings."""
    path = make_dir(tmp_path / "parts", {"r1": (tone(2.0), 16000), "r2": (tone(1.0, 44100), 44100)})
    wav = KaldiDir.load(path).wav
    segments = {"s1-a": "r1 0 0.75", "s1-b": "r1 0.7534 1.25", "s2-c": "r2 0.1 0.9"}
    text = {utt: f"words {utt}" for utt in segments}
    spk, lang = {"s1-a": "s1", "s1-b": "s1", "s2-c": "s2"}, dict.fromkeys(text, "en")
    return KaldiDir(path, wav, text, spk, lang, segments).save(path)


def manifest(folder, name, rows):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder / name


ROUND_TRIPS = ["kaldi", "lhotse", "nemo"]


@pytest.mark.parametrize("name", ROUND_TRIPS)
@pytest.mark.parametrize("kind", ["whole", "parts"])
def test_round_trip(tmp_path, request, name, kind, files_of):
    data = request.getfixturevalue(kind)
    there, back = tmp_path / "there", tmp_path / "back"
    done = convert("kaldi", name, [data.path], there)
    assert done.utterances == 3
    inputs = [there / "manifest.jsonl"] if name == "nemo" else [there]
    convert(name, "kaldi", inputs, back)
    found = KaldiDir.load(back)
    assert (found.text, found.utt2spk, found.utt2lang) == (data.text, data.utt2spk, data.utt2lang)
    for utt in data.utts:
        assert os.path.samefile(found.source(utt).path, data.source(utt).path)
        assert found.source(utt)[1:] == pytest.approx(data.source(utt)[1:], abs=1e-6)
    assert (back / ORIGINAL).exists() is False
    first = files_of(there)
    convert("kaldi", name, [data.path], there)
    assert files_of(there) == first


def test_registry():
    assert {*READERS} - {"kaldi"} == {*WRITERS} - {"parquet"}
    with pytest.raises(ConfigError, match=r"--from 'lhotze': did you mean 'lhotse'\?"):
        convert("lhotze", "kaldi", [], Path("x"))
    with pytest.raises(DataError, match="0 inputs"):
        convert("kaldi", "lhotse", [], Path("x"))


def test_command(tmp_path, whole, capsys):
    out = str(tmp_path / "out")
    command.main(["--from", "kaldi", "--to", "lhotse", "--input", str(whole.path), "--output", out])
    assert capsys.readouterr().out == (
        f"{out}/recordings.jsonl.gz, {out}/supervisions.jsonl.gz: 3 utterances\n"
    )
    with pytest.raises(SystemExit):
        command.main(["--from", "csv", "--to", "kaldi", "--input", "x", "--output", "y"])


# ---- Kaldi -------------------------------------------------------------------------------------


def test_kaldi_from_elsewhere(tmp_path, whole):
    """Unsorted tables, paths relative to where a recipe ran, speakers that are no prefix, no language."""
    recipe = tmp_path / "recipe"
    (recipe / "data" / "train").mkdir(parents=True)
    (recipe / "downloads").mkdir()
    rows = {"wav.scp": [], "text": [], "utt2spk": []}
    for utt in reversed(whole.utts):
        (recipe / "downloads" / f"{utt}.wav").write_bytes(Path(whole.wav[utt]).read_bytes())
        rows["wav.scp"].append(f"{utt[3:]} downloads/{utt}.wav")
        rows["text"].append(f"{utt[3:]} {whole.text[utt]}")
        rows["utt2spk"].append(f"{utt[3:]} {utt[:2]}")
    for name, lines in rows.items():
        (recipe / "data" / "train" / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match="no utt2lang; give the language .* --lang"):
        convert("kaldi", "kaldi", [recipe / "data" / "train"], tmp_path / "out")
    read = ReadOptions(language="German")
    convert("kaldi", "kaldi", [recipe / "data" / "train"], tmp_path / "out", read)
    found = KaldiDir.load(tmp_path / "out")
    assert found.text == whole.text
    assert set(found.utt2lang.values()) == {"de"}
    assert found.wav["s1-a"] == str(recipe / "downloads" / "s1-a.wav")


def test_missing_audio_is_counted_and_named(tmp_path, whole):
    for utt in ("s1-b", "s2-c"):
        os.unlink(whole.wav[utt])
    with pytest.raises(DataError, match=r"2 of 3 utterances have no audio file: .*'s1-b' \(.*s1-b.wav\)"):
        convert("kaldi", "kaldi", [whole.path], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_another_set_is_not_replaced(tmp_path, whole):
    out = tmp_path / "out"
    convert("kaldi", "kaldi", [whole.path], out)
    convert("kaldi", "kaldi", [whole.path], out)
    write_kaldi_table(whole.path / "text", whole.text | {"s1-a": "anders"})
    with pytest.raises(DataError, match="another set is there"):
        convert("kaldi", "kaldi", [whole.path], out)
    convert("kaldi", "kaldi", [whole.path], out, write=KaldiOptions(overwrite=True))
    assert KaldiDir.load(out).text["s1-a"] == "anders"


def nemo(tmp_path, whole, *rows):
    """Convert rows of a NeMo manifest about the first clip of ``whole``."""
    rows = [{"audio_filepath": whole.wav["s1-a"], "text": "x", "lang": "en"} | row for row in rows]
    return convert("nemo", "kaldi", [manifest(tmp_path, "m.json", rows)], tmp_path / "out")


def test_ids_become_file_names(tmp_path, whole):
    names = ["a b/c\t1", "ünï\u00a0x", " lead", "e\u0301"]
    done = nemo(tmp_path, whole, *({"utt_id": name} for name in names))
    data = KaldiDir.load(tmp_path / "out")
    assert data.utts == sorted(["a_b_c_1", "ünï_x", "lead", "é"], key=str.encode)
    assert read_kaldi_table(tmp_path / "out" / ORIGINAL) == {
        "a_b_c_1": "a b/c\t1", "ünï_x": "ünï\u00a0x", "lead": "lead", "é": "e\u0301",
    }  # fmt: skip
    assert "4 ids changed, 4 without speaker" in str(done)
    assert safe_name("///") == "_"
    with pytest.raises(DataError, match=r"m.json:2: .*'a/b': its id becomes 'a_b', as that of 'a b'"):
        nemo(tmp_path, whole, {"utt_id": "a b"}, {"utt_id": "a/b"})


def test_speakers(tmp_path, whole):
    rows = [{"utt_id": "u1", "speaker": "Ann B"}, {"utt_id": "u2", "speaker": 7}, {"utt_id": "u3"}]
    nemo(tmp_path, whole, *rows)
    data = KaldiDir.load(tmp_path / "out")
    assert data.utt2spk == {"Ann_B-u1": "Ann_B", "7-u2": "7", "u3": "u3"}
    crossing = [{"utt_id": "a-b", "speaker": "a"}, {"utt_id": "a-a-c", "speaker": "a-a"}]
    with pytest.raises(DataError, match="sort as the speakers do"):
        nemo(tmp_path, whole, *crossing, {"utt_id": "a-0", "speaker": "a"})
    options = KaldiOptions(utt_as_speaker=True, overwrite=True)
    convert("nemo", "kaldi", [tmp_path / "m.json"], tmp_path / "out", write=options)
    assert KaldiDir.load(tmp_path / "out").utt2spk == {u: u for u in ("a-b", "a-a-c", "a-0")}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": ""}, r"1 of 1 utterances have no transcript: .*m.json:1: utterance 'u'"),
        ({"text": None}, "have no transcript"),
        ({"text": 5}, r"m.json:1: 'text' is 5, str or NoneType expected"),
        ({"text": "\ud83d"}, r"m.json:1: utterance 'u': character 1 is half"),
        ({"lang": None}, "1 of 1 utterances name no language: .*--lang"),
        ({"lang": "englsh"}, r"m.json:1: utterance 'u': unknown language 'englsh'; did you mean 'en'"),
        ({"audio_filepath": None}, "'audio_filepath' is None, str expected"),
        ({"audio_filepath": "gone.wav"}, r"have no audio file: .*gone.wav"),
        ({"audio_filepath": "x_OP_0..9_CL_.tar"}, "tarred shards are not read"),
        ({"offset": 0.1}, "offset 0.1 without a duration"),
        ({"offset": 0.1, "duration": 9}, r"utterance 'u': 9.0 s from 0.1 s, .* has 0.500 s"),
        ({"duration": "1"}, "'duration' is '1', int or float expected"),
    ],
)
def test_bad_row(tmp_path, whole, row, message):
    with pytest.raises(DataError, match=message):
        nemo(tmp_path, whole, {"utt_id": "u"} | row)
    assert not (tmp_path / "out" / "wav.scp").exists()


def test_texts_are_mended_and_counted(tmp_path, whole):
    done = nemo(tmp_path, whole, {"utt_id": "u", "text": " two\r\nlines\tof e\u0301 "})
    assert KaldiDir.load(tmp_path / "out").text == {"u": "two lines of é"}
    assert "1 texts brought to one line in NFC" in str(done)


# ---- NeMo --------------------------------------------------------------------------------------


def test_nemo_without_ids(tmp_path, parts):
    path = os.path.relpath(parts.wav["r1"], tmp_path)
    rows = [
        {"audio_filepath": path, "offset": 0.0, "duration": 0.5, "text": "x"},
        {"audio_filepath": path, "offset": 1.2345, "duration": 0.5, "text": "y"},
        {"audio_filepath": parts.wav["r2"], "duration": 1.0, "text": "z"},
    ]
    file = manifest(tmp_path, "m.jsonl", rows)
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    convert("nemo", "kaldi", [file], tmp_path / "out", write=KaldiOptions(language="en"))
    data = KaldiDir.load(tmp_path / "out")
    assert data.segments == {
        "r1-00000000": "r1 0 0.5", "r1-00001234": "r1 1.2345 1.7345", "r2": "r2 0 -1",
    }  # fmt: skip


# ---- Lhotse ------------------------------------------------------------------------------------


def lhotse(tmp_path, whole, recording=None, supervision=None):
    """Convert one recording and one supervision of the first clip of ``whole``."""
    source = {"type": "file", "channels": [0], "source": whole.wav["s1-a"]}
    rec = {"id": "r", "sources": [source], "sampling_rate": 8000, "num_samples": 4000, "duration": 0.5}
    sup = {"id": "u", "recording_id": "r", "start": 0.0, "duration": 0.5, "channel": 0, "text": "x"}
    folder = tmp_path / "manifests"
    manifest(folder, "my_recordings_all.jsonl", [rec | (recording or {})])
    manifest(folder, "my_supervisions_all.jsonl", [sup | (supervision or {})])
    return convert("lhotse", "kaldi", [folder], tmp_path / "out", write=KaldiOptions(language="en"))


def test_lhotse_parts_and_channels(tmp_path, whole):
    two = [
        {"type": "file", "channels": [c], "source": whole.wav[utt]}
        for c, utt in enumerate(["s1-a", "s1-b"])
    ]
    supervision = {"channel": 1, "start": 0.1, "duration": 0.3, "speaker": "u", "language": "German"}
    lhotse(tmp_path, whole, {"sources": two}, supervision)
    data = KaldiDir.load(tmp_path / "out")
    assert data.wav == {"r": whole.wav["s1-b"]}
    assert (data.segments, data.utt2lang) == ({"u": "r 0.1 0.4"}, {"u": "de"})


FILE = {"type": "file", "channels": [0], "source": "x.wav"}


@pytest.mark.parametrize(
    ("recording", "supervision", "message"),
    [
        ({"id": "s"}, {}, "utterance 'u': recording 'r' is not in .*recordings_all.jsonl"),
        ({"sources": [FILE | {"type": "command"}]}, {}, "type 'command', only 'file' .*never run"),
        ({"sources": [FILE | {"channels": [0, 1]}]}, {}, r"channels \[0, 1\].*sox IN OUT remix 1"),
        ({"transforms": [{"name": "Speed"}]}, {}, "recording 'r': transforms .*Speed"),
        ({}, {"channel": [0, 1]}, r"channels \[0, 1\], one expected"),
        ({}, {"channel": 3}, "no source of channel 3"),
        ({}, {"start": 0.4}, "utterance 'u': 0.5 s from 0.4 s, the recording has 0.5 s"),
        ({}, {"duration": None}, "'duration' is None, int or float expected"),
        ({}, {"text": None}, "1 of 1 utterances have no transcript"),
    ],
)
def test_lhotse_refuses(tmp_path, whole, recording, supervision, message):
    with pytest.raises(DataError, match=message):
        lhotse(tmp_path, whole, recording, supervision)


def test_lhotse_manifests_are_found_once(tmp_path, whole):
    lhotse(tmp_path, whole)
    manifest(tmp_path / "manifests", "recordings_more.jsonl", [])
    with pytest.raises(DataError, match=r"2 files \*recordings\*.*name both manifests"):
        convert("lhotse", "kaldi", [tmp_path / "manifests"], tmp_path / "out")
    with pytest.raises(DataError, match=r"0 files \*recordings\*.*lhotse cut decompose"):
        convert("lhotse", "kaldi", [manifest(tmp_path, "cuts.jsonl.gz", [])], tmp_path / "out")


def test_recordings_without_supervision_are_counted(tmp_path, whole):
    convert("kaldi", "lhotse", [whole.path], tmp_path / "l")
    rows = [json.loads(row) for row in gzip.open(tmp_path / "l" / "supervisions.jsonl.gz", "rt")]
    write_jsonl(tmp_path / "l" / "supervisions.jsonl.gz", rows[:1])
    done = convert("lhotse", "kaldi", [tmp_path / "l"], tmp_path / "out")
    assert str(done) == f"{tmp_path / 'out'}: 1 utterances, 2 recordings without supervision"


def test_damaged_jsonl(tmp_path, whole):
    convert("kaldi", "lhotse", [whole.path], tmp_path / "l")
    path = tmp_path / "l" / "supervisions.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"supervisions.jsonl.gz:\d: .*cut off"):
        convert("lhotse", "kaldi", [tmp_path / "l"], tmp_path / "out")
    for text, line in [('{"id": 1', 1), ("\n[]\n", 2)]:
        (tmp_path / "m.json").write_text(text)
        with pytest.raises(DataError, match=f"m.json:{line}: "):
            convert("nemo", "kaldi", [tmp_path / "m.json"], tmp_path / "out")


def test_several_channels_are_not_written(tmp_path, make_dir, tone):
    source = make_dir(tmp_path, {"a": (np.stack([tone(), tone()], 1), 16000)})
    with pytest.raises(DataError, match="2 channels, one expected; format the set first"):
        convert("kaldi", "lhotse", [source], tmp_path / "out")


def test_lhotse_itself_agrees(tmp_path, whole, parts):
    pytest.importorskip("lhotse")
    from lhotse import RecordingSet, SupervisionSet, validate_recordings_and_supervisions

    for data in (whole, parts):
        folder = tmp_path / data.utts[0] / str(data.segments is None)
        convert("kaldi", "lhotse", [data.path], folder)
        recordings = RecordingSet.from_jsonl(folder / "recordings.jsonl.gz")
        supervisions = SupervisionSet.from_jsonl(folder / "supervisions.jsonl.gz")
        validate_recordings_and_supervisions(recordings, supervisions)
        assert {s.id: s.text for s in supervisions} == data.text
        for s in supervisions:
            samples = recordings[s.recording_id].load_audio(offset=s.start, duration=s.duration)
            start, end = data.source(s.id)[1:]
            rate = recordings[s.recording_id].sampling_rate
            expected = soundfile.read(data.source(s.id).path, dtype="float32")[0]
            expected = expected[round(start * rate) : end and round(end * rate)]
            assert samples[0] == pytest.approx(expected, abs=1e-6)
        # What Lhotse writes itself, from the same directory of Kaldi, reads the same.
        (folder / "again").mkdir()
        recordings.to_file(folder / "again" / "recordings.jsonl.gz")
        supervisions.to_file(folder / "again" / "supervisions.jsonl.gz")
        convert("lhotse", "kaldi", [folder / "again"], folder / "back")
        assert KaldiDir.load(folder / "back").text == data.text


# ---- Hugging Face ------------------------------------------------------------------------------


def test_without_pyarrow_the_message_says_what_to_do(tmp_path, whole):
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from pathlib import Path\n"
        "from espnet_latentasr.data.formats import convert\n"
        f"convert('hf', 'kaldi', [Path('x')], Path({str(tmp_path / 'out')!r}))\n"
    )
    root = Path(command.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert "DataError: data sets of Hugging Face need the package pyarrow" in done.stderr
    assert "pip install pyarrow" in done.stderr


@pytest.fixture
def arrow():
    return pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")


COLUMNS = ReadOptions(id_column="id", speaker_column="speaker", language_column="language")


@pytest.mark.parametrize("name", ["hf", "parquet"])
@pytest.mark.parametrize("kind", ["whole", "parts"])
def test_hf_round_trip(tmp_path, request, arrow, name, kind):
    data = request.getfixturevalue(kind)
    there, back = tmp_path / "there", tmp_path / "back"
    convert("kaldi", name, [data.path], there)
    convert("hf", "kaldi", [there], back, replace(COLUMNS, output=back))
    found = KaldiDir.load(back)
    assert (found.text, found.utt2spk, found.utt2lang) == (data.text, data.utt2spk, data.utt2lang)
    for utt in data.utts:
        written = Path(found.wav[utt])
        assert written.parent == back / "audio"
        if data.segments is None:
            assert written.read_bytes() == Path(data.wav[utt]).read_bytes()
        else:
            start, end = data.source(utt)[1:]
            samples, rate = soundfile.read(data.source(utt).path, dtype="float32")
            expected = samples[round(start * rate) : round(end * rate)]
            assert (soundfile.read(written, dtype="float32")[0] == expected).all()


def table(tmp_path, arrow, columns, features=None, name="d.parquet"):
    pa, pq = arrow
    written = pa.table(columns)
    if features:
        info = json.dumps({"info": {"features": features}})
        written = written.replace_schema_metadata({"huggingface": info})
    pq.write_table(written, tmp_path / name)
    return tmp_path / name


def test_parquet_from_elsewhere(tmp_path, arrow, whole):
    clips = [{"bytes": Path(whole.wav[u]).read_bytes(), "path": f"x/{u}.wav"} for u in whole.utts]
    columns = {"audio": clips, "sentence": ["a", "b", "c"], "locale": [0, 1, 0]}
    labels = {"locale": {"names": ["de", "en"], "_type": "ClassLabel"}}
    path = table(tmp_path, arrow, columns, labels)
    read = ReadOptions(output=tmp_path / "out", language_column="locale")
    convert("hf", "kaldi", [path], tmp_path / "out", read)
    data = KaldiDir.load(tmp_path / "out")
    assert data.text == dict(zip(whole.utts, "abc", strict=True))
    assert list(data.utt2lang.values()) == ["de", "en", "de"]
    # Interrupted or repeated: what is written stays.
    times = {p: p.stat().st_mtime_ns for p in (tmp_path / "out" / "audio").iterdir()}
    convert("hf", "kaldi", [path], tmp_path / "out", read)
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "out" / "audio").iterdir()} == times


def test_hf_refuses(tmp_path, arrow, whole):
    clip = {"bytes": Path(whole.wav["s1-a"]).read_bytes(), "path": "same.wav"}
    columns = {"audio": [clip, clip], "text": ["a", "b"], "transcription": ["A", "B"], "n": [1, 1]}
    read = ReadOptions(language="en", output=tmp_path / "out")

    def tried(columns, read=read):
        path = table(tmp_path, arrow, columns)
        return convert("hf", "kaldi", [path], tmp_path / "out", read, KaldiOptions(overwrite=True))

    with pytest.raises(
        DataError, match="which column has the text.*text or transcription.*--text_column"
    ):
        tried(columns)
    read = replace(read, text_column="text")
    with pytest.raises(DataError, match=r"id 'same' is there 2 times.*--id_column, or 'row'"):
        tried(columns, read)
    with pytest.raises(DataError, match="which column has the id"):
        tried(columns, replace(read, id_column="nr"))
    with pytest.raises(DataError, match="id '1' is there 2 times"):
        tried(columns, replace(read, id_column="n"))
    tried(columns, replace(read, id_column="row"))
    assert KaldiDir.load(tmp_path / "out").utts == ["row0000000", "row0000001"]
    with pytest.raises(DataError, match="utterance 'row0000000': neither bytes nor a path"):
        tried({"audio": [{"bytes": None, "path": None}], "text": ["a"]}, replace(read, id_column="row"))
    (tmp_path / "d.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="no data set that can be read"):
        convert("hf", "kaldi", [tmp_path / "d.parquet"], tmp_path / "out", read)
    with pytest.raises(DataError, match="neither a data set saved to disk nor Parquet"):
        convert("hf", "kaldi", [whole.path], tmp_path / "out", read)


def test_splits_and_paths(tmp_path, arrow, whole):
    convert("kaldi", "hf", [whole.path], tmp_path / "ds" / "test")
    (tmp_path / "ds" / "dataset_dict.json").write_text('{"splits": ["test"]}')
    with pytest.raises(DataError, match="split 'None'; name one with --split: test"):
        convert("hf", "kaldi", [tmp_path / "ds"], tmp_path / "out", COLUMNS)
    read = replace(COLUMNS, split="test", output=tmp_path / "out")
    convert("hf", "kaldi", [tmp_path / "ds"], tmp_path / "out", read)
    assert KaldiDir.load(tmp_path / "out").utts == whole.utts
    path = table(tmp_path, arrow, {"audio": [whole.wav["s1-a"]], "text": ["a"]})
    convert("hf", "kaldi", [path], tmp_path / "p", ReadOptions(language="en"))
    assert KaldiDir.load(tmp_path / "p").wav == {"s1-a": whole.wav["s1-a"]}


def test_datasets_itself_agrees(tmp_path, arrow, whole):
    datasets = pytest.importorskip("datasets")
    convert("kaldi", "hf", [whole.path], tmp_path / "disk")
    convert("kaldi", "parquet", [whole.path], tmp_path / "parquet")
    disk = datasets.load_from_disk(str(tmp_path / "disk"))
    assert isinstance(disk.features["audio"], datasets.Audio)
    rows = disk.data.to_pylist()
    assert {row["id"]: row["text"] for row in rows} == whole.text
    assert rows[0]["audio"]["bytes"] == Path(whole.wav["s1-a"]).read_bytes()
    made = datasets.Dataset(disk.data, info=disk.info)
    made.save_to_disk(str(tmp_path / "again"))
    convert(
        "hf", "kaldi", [tmp_path / "again"], tmp_path / "out", replace(COLUMNS, output=tmp_path / "out")
    )
    assert KaldiDir.load(tmp_path / "out").text == whole.text
