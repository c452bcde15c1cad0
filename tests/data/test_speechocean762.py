"""speechocean762 on a made-up tree of the published layout: sets, what they share, bad copies."""

import json
import shutil
import tarfile

import numpy as np
import pytest
import soundfile

from espnet_latentasr.bin import prepare
from espnet_latentasr.data import fetch, speechocean762
from espnet_latentasr.data.kaldi_dir import KaldiDir, read_kaldi_table
from espnet_latentasr.data.kaldi_source import import_kaldi_dir
from espnet_latentasr.data.speechocean762 import prepare_speechocean762, written
from espnet_latentasr.errors import DataError

# speaker -> age, then published utterance number -> transcript
TRAIN = {
    "0001": (6, {"000010011": "WE CALL IT BEAR", "000010035": "ZERO THREE FIVE ONE"}),
    "0005": (7, {"000050003": "IT'S A PIG", "000050010": "DORA CAN SEE THE SHEEP"}),
    "0006": (30, {"000060015": "THAT IS FINE", "000060020": "SEE YOU"}),
}
TEST = {
    "0003": (8, {"000030012": "MARK LIKES RED", "000030040": "IT IS A PIG"}),
    "0044": (41, {"000440005": "ZERO THREE FIVE ONE", "000440163": "CAN I PLAY WITH IT"}),
}


def write_part(root, name, speakers):
    folder = root / name
    folder.mkdir(parents=True)
    tables = {"wav.scp": [], "text": [], "utt2spk": [], "spk2age": [], "spk2gender": []}
    for spk, (age, utterances) in speakers.items():
        (root / "WAVE" / f"SPEAKER{spk}").mkdir(parents=True)
        tables["spk2age"].append(f"{spk}\t{age}")
        tables["spk2gender"].append(f"{spk} f")
        for utt, text in utterances.items():
            path = f"WAVE/SPEAKER{spk}/{utt}.WAV"
            samples = 0.1 * np.sin(np.arange(1600 * len(text.split())) / 9)
            soundfile.write(root / path, samples, 16000, "PCM_16", format="WAV")
            tables["wav.scp"].append(f"{utt}\t{path}")
            tables["text"].append(f"{utt}\t{text}")
            tables["utt2spk"].append(f"{utt} {spk}")
    for table, rows in tables.items():
        (folder / table).write_text("".join(f"{row}\n" for row in rows))


@pytest.fixture
def copy(tmp_path):
    root = tmp_path / "copy"
    write_part(root, "train", TRAIN)
    write_part(root, "test", TEST)
    return root


@pytest.fixture
def run(copy, tmp_path):
    """Prepare the copy with one dev speaker, below the folder ``data``."""
    return lambda **options: prepare_speechocean762(tmp_path / "data", copy, dev_speakers=1, **options)


def sets_of(tmp_path):
    return {path.parent.name: KaldiDir.load(path.parent) for path in tmp_path.glob("data/*/wav.scp")}


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_sets_share_no_speaker_and_no_sentence(run, tmp_path):
    report = run()
    sets = sets_of(tmp_path)
    assert set(sets) == {"train", "dev", "test", "test_seen"}
    assert len(sets["train"].spk2utt) == 2 and len(sets["dev"].spk2utt) == 1
    assert {*sets["train"].spk2utt, *sets["dev"].spk2utt} == {"so0001", "so0005", "so0006"}
    # "it is a pig" is "it's a pig" to the scorer, so both leave the test set
    assert sets["test"].text == {
        "so0003-000030012": "Mark likes red.", "so0044-000440163": "Can I play with it."
    }  # fmt: skip
    assert sets["test_seen"].utts == ["so0003-000030040", "so0044-000440005"]
    assert report["sets"]["test"] == {"utterances": 2, "speakers": 2, "children": 1, "seconds": 0.8}
    assert report["removed"]["test, now in test_seen: sentence is in train or dev"] == (
        sets["test_seen"].utts
    )
    assert read_kaldi_table(tmp_path / "data/test/spk2age") == {"so0003": "8", "so0044": "41"}
    assert set(sets["dev"].languages().values()) == {"en"}
    for data in sets.values():
        for utt in data.utts:
            assert soundfile.info(data.source(utt).path).samplerate == 16000


def test_the_draw_follows_the_seed_and_the_test_set_does_not(run, tmp_path):
    drawn, tests = set(), set()
    for seed in range(4):
        run(seed=seed)
        sets = sets_of(tmp_path)
        drawn.add(*sets["dev"].spk2utt)
        tests.add(tuple(sets["test"].utts))
    assert len(drawn) > 1 and len(tests) == 1
    run(seed=3)
    first = sets_of(tmp_path)["dev"].utts
    shutil.rmtree(tmp_path / "data")
    run(seed=3)
    assert sets_of(tmp_path)["dev"].utts == first


def test_a_dev_part_of_the_copy_is_kept_without_the_sentences_of_train(copy, run, tmp_path):
    write_part(copy, "dev", {"0100": (9, {"001000001": "SEE YOU", "001000002": "NEW TO ALL"})})
    report = run()
    sets = sets_of(tmp_path)
    assert sets["dev"].utts == ["so0100-001000002"] and len(sets["train"].utts) == 6
    assert report["removed"]["dev: sentence is in train"] == ["so0100-001000001"]
    assert report["dev"] == "that of the copy"


def test_plain_kaldi_directories_keep_their_ids(tmp_path):
    for name, spk, text in (("train", "a", "ONE"), ("dev", "b", "TWO"), ("test", "c", "THREE")):
        write_part(tmp_path / "copy", name, {spk: (20, {f"{spk}-1": text})})
    report = prepare_speechocean762(tmp_path / "data", tmp_path / "copy", case="published")
    sets = sets_of(tmp_path)
    assert {name: data.text for name, data in sets.items()} == {
        "train": {"a-1": "ONE"}, "dev": {"b-1": "TWO"}, "test": {"c-1": "THREE"}
    }  # fmt: skip
    assert "test_seen" not in report["sets"] and report["sets"]["dev"]["children"] == 0


def test_provenance(run, tmp_path):
    report = run()
    assert json.loads((tmp_path / "data/speechocean762.json").read_text()) == report
    text = (tmp_path / "data/speechocean762.md").read_text()
    assert "| test | 2 | 2 | 1 | 0.0 |" in text and "whisper_en" in text
    assert "sentence is in train or dev: 2" in text and "Licence: Free for" in text


@pytest.mark.parametrize(
    "case, expected",
    [("published", "THEN I'M A CAT"), ("lower", "then i'm a cat"), ("sentence", "Then I'm a cat.")],
)
def test_cases(case, expected):
    assert written("THEN I'M A CAT", case) == expected


def test_unknown_case(run):
    with pytest.raises(DataError, match="case 'upper': one of sentence, lower, published"):
        run(case="upper")


# ---- reruns ------------------------------------------------------------------------------------


def test_a_rerun_leaves_finished_sets_and_mends_the_others(copy, run, tmp_path):
    report = run()
    table = tmp_path / "data/train/text"
    stamp = table.stat().st_mtime_ns
    assert run() == report and table.stat().st_mtime_ns == stamp
    (tmp_path / "data/test/wav.scp").unlink()  # as after a kill
    assert run() == report and "test" in sets_of(tmp_path)
    edit(copy / "test/text", "ZERO THREE FIVE ONE", "A NEW ONE")
    edit(copy / "test/text", "IT IS A PIG", "ANOTHER NEW ONE")
    run()
    sets = sets_of(tmp_path)
    assert "test_seen" not in sets and len(sets["test"].utts) == 4


def test_sets_of_another_origin_are_not_overwritten(run, tmp_path):
    (tmp_path / "data/test").mkdir(parents=True)
    with pytest.raises(DataError, match="data/test: there already, and not made from speechocean762"):
        run()


# ---- bad copies --------------------------------------------------------------------------------


def test_no_copy(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty: no train/wav.scp; .*OpenSLR 101"):
        prepare_speechocean762(tmp_path / "data", tmp_path / "empty")


@pytest.mark.parametrize("table", ["text", "utt2spk", "wav.scp"])
def test_missing_table(copy, run, table):
    (copy / "test" / table).unlink()
    with pytest.raises(DataError, match=f"test/{table}: no such file"):
        run()


@pytest.mark.parametrize(
    "table, old, new, message",
    [
        ("train/utt2spk", "000050003 0005\n", "", "utterance '000050003' has no entry in utt2spk"),
        ("train/text", "000060020\tSEE YOU\n", "", "'so0006-000060020' has no entry in text"),
        ("train/text", "000060020\tSEE YOU", "000060020", "text:6: utterance '000060020': no value"),
        ("test/wav.scp", "000030012\t", "000030040\t", "wav.scp:2: utterance '000030040': duplicate id"),
    ],
)  # fmt: skip
def test_tables_that_disagree(copy, run, table, old, new, message):
    edit(copy / table, old, new)
    with pytest.raises(DataError, match=message):
        run()


def test_speaker_in_two_parts(copy, run):
    edit(copy / "test/utt2spk", " 0044", " 0005")
    with pytest.raises(DataError, match=r"speaker 'so0005' is in .* \(1 of them\)"):
        run()


def test_utterance_in_two_parts(copy, run):
    for table in ("wav.scp", "text", "utt2spk"):
        row = (copy / "train" / table).read_text().splitlines(keepends=True)[0]
        with open(copy / "test" / table, "a") as file:
            file.write(row)
    with pytest.raises(DataError, match="utterance 'so0001-000010011' is in"):
        run()


def test_too_few_speakers(copy, tmp_path):
    with pytest.raises(DataError, match="3 speakers asked for dev, but there are 3"):
        prepare_speechocean762(tmp_path / "data", copy, dev_speakers=3)


def test_nothing_left_to_test(copy, run):
    for text in ("MARK LIKES RED", "CAN I PLAY WITH IT"):
        edit(copy / "test/text", text, "SEE YOU")
    with pytest.raises(DataError, match="no utterance is left of 4: of each, its sentence is in train"):
        run()


def test_missing_files_are_counted_and_named(copy, run, tmp_path):
    (copy / "WAVE/SPEAKER0001/000010035.WAV").unlink()
    (copy / "WAVE/SPEAKER0044/000440163.WAV").write_bytes(b"RIFF")
    with pytest.raises(DataError, match=r"2 of 10 .*\(missing=1 unreadable=1\)") as raised:
        run()
    for named in ("'so0001-000010035': missing", "'so0044-000440163': unreadable"):
        assert named in str(raised.value)
    assert not (tmp_path / "data").exists()


def test_a_damaged_training_file_is_left_out_and_named(copy, run, tmp_path, caplog):
    path = copy / "WAVE/SPEAKER0001/000010035.WAV"
    path.write_bytes(path.read_bytes()[:2000])
    report = run()
    (problem,) = report["removed"]["unusable audio"]
    assert "'so0001-000010035': unreadable" in problem and "left out: " + problem in caplog.text
    counts = report["sets"]
    assert counts["train"]["utterances"] + counts["dev"]["utterances"] == 5
    assert counts["test_seen"]["utterances"] == 2  # its sentence counts as heard all the same


# ---- archive, commands -------------------------------------------------------------------------


def test_archive_and_download(copy, tmp_path, monkeypatch):
    archive = tmp_path / "downloads/speechocean762.tar.gz"
    archive.parent.mkdir()
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(copy, "speechocean762")
    asked = []
    monkeypatch.setattr(fetch, "download", lambda *words: asked.append(words) or archive)
    options = dict(downloads=tmp_path / "downloads", dev_speakers=1)
    report = prepare_speechocean762(tmp_path / "data", **options)
    assert asked[0][0][0] == "https://www.openslr.org/resources/101/speechocean762.tar.gz"
    digest = fetch.file_sha256(archive)
    assert report["archive_sha256"] == digest
    assert report["source"] == f"{tmp_path}/downloads/speechocean762-{digest[:12]}/speechocean762"
    assert prepare_speechocean762(tmp_path / "data", archive, **options) == report


def test_command(copy, tmp_path, capsys):
    words = f"speechocean762 --src {copy} --out {tmp_path}/data --dev_speakers 1 --nj 1 --case lower"
    prepare.main(words.split())
    out = capsys.readouterr().out
    assert f"{tmp_path}/data/test: 2 utterances, 2 speakers, 1 children, 0.8 seconds" in out
    assert "removed: 2 of test, now in test_seen" in out
    assert sets_of(tmp_path)["test"].text["so0003-000030012"] == "mark likes red"


def test_import_of_any_kaldi_directory(copy, tmp_path, capsys):
    """Paths below its own parent, no utt2lang: as a second test set is given."""
    prepare.main(f"kaldi --src {copy / 'test'} --out {tmp_path}/data --lang English --nj 1".split())
    assert capsys.readouterr().out == f"{tmp_path}/data/test: 4 utterances, 2 speakers\n"
    data = KaldiDir.load(tmp_path / "data/test")
    assert data.utts[0] == "spk0003-000030012" and data.utt2lang["spk0003-000030012"] == "en"
    import_kaldi_dir(copy / "test", tmp_path / "data", "en")  # again: the same
    edit(copy / "test/text", "MARK", "MIKE")
    with pytest.raises(DataError, match="another set is there"):
        import_kaldi_dir(copy / "test", tmp_path / "data", "en")
    shutil.rmtree(tmp_path / "data")
    with pytest.raises(DataError, match="unknown language 'klingonisch'|klingonisch"):
        import_kaldi_dir(copy / "test", tmp_path / "data", "klingonisch")
    (copy / "WAVE/SPEAKER0003/000030012.WAV").unlink()
    with pytest.raises(DataError, match=r"1 of 4 utterances are unusable \(missing=1\)"):
        import_kaldi_dir(copy / "test", tmp_path / "data", "en")


def test_many_unusable_are_not_all_named(tmp_path):
    speakers = {f"{n:04}": (9, {f"{n:05}0001": f"WORD {n}"}) for n in range(12)}
    write_part(tmp_path / "copy", "test", speakers)
    shutil.rmtree(tmp_path / "copy/WAVE")
    with pytest.raises(DataError, match=r"12 of 12 .*missing=12.* and 2 more"):
        import_kaldi_dir(tmp_path / "copy/test", tmp_path / "data", "en")


def test_published_data_place():
    about = fetch.published(speechocean762.NAME)
    assert about.language == "en" and all(url.startswith("https://") for url in about.urls)
    assert "minors" in about.licence
