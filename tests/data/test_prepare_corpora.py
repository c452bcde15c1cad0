"""Published corpora as Kaldi directories, each from a small copy in its published layout."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from published_layouts import TREES, clip_bytes, copy_fixture, hub_row, write_parquet  # noqa: F401

from espnet_latentasr.bin import prepare
from espnet_latentasr.data import corpora, corpus_set, hub
from espnet_latentasr.data.audio import read_audio
from espnet_latentasr.data.corpora import PREPARE, gigaspeech_text, tedlium_text, written_as
from espnet_latentasr.data.corpus_set import bounded_map, plain_id, utterance_ids
from espnet_latentasr.data.kaldi_dir import KaldiDir
from espnet_latentasr.data.layouts import Row
from espnet_latentasr.data.published import SetName, get_published, parse_set_name
from espnet_latentasr.errors import ConfigError, DataError

COMMIT = "0" * 40


@pytest.fixture
def run(copy, tmp_path):
    """Return a function that writes a corpus's copy once and prepares it below ``data``."""

    def prepared(name: str, **options):
        root = tmp_path / "corpora" / name
        root = root if root.exists() else copy(name)
        options = {"downloads": tmp_path / "downloads", "threads": 2} | options
        return PREPARE[name](tmp_path / "data", root, **options)

    return prepared


def load(tmp_path: Path, name: str) -> KaldiDir:
    return KaldiDir.load(tmp_path / "data" / name)


# what one test set of each corpus must hold: a part, texts in C order, speakers, languages
EXPECTED = {
    "common_voice": ("de", ['Say "de test" 0', 'Say "de test" 1'], 1, {"de"}),
    "fleurs": ("cmn_hans_cn", ["cmn_hans_cn test 0", "cmn_hans_cn test 1"], 0, {"zh"}),
    "voxpopuli": ("en", ["mister test 1", "mister test 0"], 1, {"en"}),
    "librispeech": ("other", ["Chapter test-other 0.", "Chapter test-other 1."], 1, {"en"}),
    "gigaspeech": ("en", ["And test, so what?"], 0, {"en"}),
    "peoples_speech": ("clean", [f"people test{s}{n}" for s in "01" for n in "012"], 0, {"en"}),
    "ascend": ("main", ["我们 go 吧,快 test", "好的 test", "okay test"], 2, {"zh", "en"}),
    "ami": ("sdm", ["Okay test."] * 2, 1, {"en"}),
    "tedlium": ("release1", ["it's for test", "thank you test"], 1, {"en"}),
    "mls": ("polish", ["polish test 0", "polish test 1"], 1, {"pl"}),
    "minds14": ("ko-KR", ["card 0", "card 1"], 0, {"ko"}),
}  # fmt: skip


@pytest.mark.parametrize("name", list(TREES))
def test_each_corpus(run, tmp_path, name):
    part, texts, speakers, languages = EXPECTED[name]
    report = run(name, parts=[part], splits=["test"])
    assert list(report) == [f"{name}_{part}_test"]
    data = load(tmp_path, f"{name}_{part}_test")
    assert [data.text[utt] for utt in data.utts] == texts
    assert len({spk for utt, spk in data.utt2spk.items() if spk != utt}) == speakers
    assert set(data.languages().values()) == languages
    assert all(utt.startswith(get_published(name).prefix) for utt in data.utts)
    for utt in data.utts:  # what stage 3 will do
        source = data.source(utt)
        assert len(read_audio(source.path, utt, span=source[1:])) > 4000
    about = json.loads((tmp_path / f"data/{name}_{part}_test/prepared.json").read_text())
    assert about["licence"] and about["utterances"] == len(texts) and about["speakers"] == speakers
    assert about["revision"] is None  # of a copy nothing is known
    score = (tmp_path / f"data/{name}_{part}_test/score_lang").read_text()
    assert score == ("zh-en\n" if name == "ascend" else f"{get_published(name).parts[part]}\n")


def test_audio_is_listed_and_not_copied_unless_embedded(run, tmp_path):
    run("librispeech", parts=["clean"], splits=["test"])
    run("tedlium", parts=["release1"], splits=["test"])
    run("peoples_speech", parts=["clean"], splits=["test"])
    assert not (tmp_path / "data/librispeech_clean_test/audio").exists()
    ted = load(tmp_path, "tedlium_release1_test")
    assert ted.segments and list(ted.wav) == ["AlGore_test"]
    people = load(tmp_path, "peoples_speech_clean_test")
    path = Path(people.wav["ps-test00"])
    assert path.parent == tmp_path / "data/peoples_speech_clean_test/audio"
    assert path.read_bytes() == clip_bytes("test00")


def test_all_parts_and_splits_of_a_copy(run, tmp_path, caplog):
    report = run("common_voice")
    assert set(report) == {
        f"common_voice_{p}_{s}" for p in ("en", "de", "eu") for s in ("train", "dev", "test")
    }
    basque = load(tmp_path, "common_voice_eu_test")
    assert set(basque.languages().values()) == {"auto"}  # Qwen3-ASR has no name for it
    assert (tmp_path / "data/common_voice_eu_test/score_lang").read_text() == "auto\n"
    assert caplog.text.count("common_voice: part 'eu' has no language of text/languages.yaml") == 1
    with pytest.raises(ConfigError, match="part 'eu' has no language"):
        run("common_voice", unknown="error")


def test_what_is_left_out_is_written_down(run, tmp_path):
    about = run("voxpopuli", parts=["en"], splits=["test"])["voxpopuli_en_test"]
    assert len(about["without_words"]) == 1 and "asr_test.tsv:4" in about["without_words"][0]
    about = run("gigaspeech", splits=["test"])["gigaspeech_en_test"]
    assert about["without_words"][0].endswith("'<MUSIC>'") and about["speaker_unknown"] == 1


def test_the_first_utterances_of_a_set(run, tmp_path):
    run("peoples_speech", parts=["clean"], splits=["test"], limit=4)
    assert len(load(tmp_path, "peoples_speech_clean_test_4").utts) == 4
    assert not (tmp_path / "data/peoples_speech_clean_test").exists()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"limit": 0}, "limit 0: at least 1"),
        ({"case": "upper"}, "case 'upper': one of sentence, lower, published"),
        ({"splits": ["valid"]}, "split 'valid': one of train, dev, test"),
    ],
)
def test_wrong_options(run, options, message):
    with pytest.raises(ConfigError, match=message):
        run("mls", **options)


# ---- texts and ids -----------------------------------------------------------------------------


def test_texts():
    assert gigaspeech_text("A <COMMA> B <PERIOD>") == "A, B." and gigaspeech_text(" <NOISE> ") == ""
    assert tedlium_text("[UH] it 's{NOISE} o'clock <unk> they 're") == "it's o'clock they're"
    assert (
        written_as("I SEE, OK?", "sentence") == "I see, ok?"
        and written_as("I SEE", "sentence") == "I see."
    )
    assert written_as(" ", "sentence") == "" and written_as("Ab c", "published") == "Ab c"


SETS = ["librispeech_clean_test", "mls_dutch_test", "fleurs_en_us_test", "minds14_ko-KR_test"]
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=50)


@settings(max_examples=12)
@given(st.lists(st.tuples(st.sampled_from(SETS), names, st.one_of(st.just(""), names)), max_size=5))
def test_any_ids_make_a_kaldi_directory(rows):
    """Kaldi's rule (ids begin with their speaker and sort as speakers do) holds in any mixture."""
    ids = dict(utterance_ids(parse_set_name(name), Row(utt, "x", "", "", spk)) for name, utt, spk in rows)
    if ids:
        wav, text = dict.fromkeys(ids, "a.wav"), dict.fromkeys(ids, "x")
        assert KaldiDir(Path("set"), wav, text, ids).spk2utt


def test_ids_stay_readable_and_speakers_stay_apart():
    libri, voice, fleurs = map(
        parse_set_name, ("librispeech_clean_test", "common_voice_en_test", "fleurs_en_us_test")
    )
    assert utterance_ids(libri, Row("1089-134686-0000", "", "", "", "1089")) == (
        "ls1089-1089_134686_0000", "ls1089"
    )  # fmt: skip
    # FLEURS numbers its files anew in every language.
    assert utterance_ids(fleurs, Row("17", "", "", "")) == ("fl-en_us_17",) * 2
    one, two = (utterance_ids(voice, Row("u", "", "", "", spk))[1] for spk in ("a b", "a_b"))
    assert one != two == "cva_b"
    assert len(plain_id("x" * 200)) == 16


def test_threads_keep_the_order_and_read_ahead_little():
    taken = []
    jobs = (taken.append(n) or n for n in range(1000))
    results = bounded_map(lambda n: n * n, jobs, threads=2)
    assert [next(results) for _ in range(3)] == [0, 1, 4]
    assert len(taken) < 100
    assert list(results) == [n * n for n in range(3, 1000)]


# ---- interrupted and incomplete ----------------------------------------------------------------


def test_a_finished_set_is_left_as_it_is_and_a_changed_copy_made_anew(run, tmp_path):
    first = run("mls", parts=["polish"])
    stamp = (table := tmp_path / "data/mls_polish_test/text").stat().st_mtime_ns
    assert run("mls", parts=["polish"]) == first and table.stat().st_mtime_ns == stamp
    source = tmp_path / "corpora/mls/mls_polish/test/transcripts.txt"
    source.write_text(source.read_text().replace("polish test 1", "other words"))
    run("mls", parts=["polish"])
    assert "other words" in load(tmp_path, "mls_polish_test").text.values()


def test_an_interrupted_run_goes_on(run, tmp_path, monkeypatch):
    """Killed while embedded audio is written: no set is there; the rerun writes only what lacks."""
    real, written = corpus_set.atomic_path, []

    def watched(path):
        if len(written) == 3 and written[-1] != "go on":
            raise KeyboardInterrupt
        written.append(Path(path).name)
        return real(path)

    monkeypatch.setattr(corpus_set, "atomic_path", watched)
    with pytest.raises(KeyboardInterrupt):
        run("peoples_speech", parts=["clean"], splits=["test"], threads=1)
    folder = tmp_path / "data/peoples_speech_clean_test"
    assert not (folder / "wav.scp").exists() and len(list(folder.glob("audio/*.wav"))) == 3
    before = set(written)
    written.append("go on")
    run("peoples_speech", parts=["clean"], splits=["test"], threads=1)
    assert len(load(tmp_path, folder.name).utts) == 6
    assert not before & set(written[4:]) and len(written) == 7


def test_a_half_written_set_is_not_taken_for_a_finished_one(run, tmp_path):
    run("mls", parts=["polish"], splits=["test"])
    (tmp_path / "data/mls_polish_test/wav.scp").unlink()
    run("mls", parts=["polish"], splits=["test"])
    assert len(load(tmp_path, "mls_polish_test").utts) == 2


def test_a_test_set_never_loses_an_utterance(run, copy, tmp_path, caplog):
    root = copy("librispeech")
    (root / "LibriSpeech/test-clean/1089/7/1089-7-0001.flac").unlink()
    (root / "LibriSpeech/train-clean-100/103/7/103-7-0000.flac").write_bytes(b"")
    with pytest.raises(
        DataError, match=r"not whole: 1 of 2 utterances .*trans.txt:2: no such file: .*0001"
    ):
        run("librispeech", parts=["clean"], splits=["test"])
    assert not (tmp_path / "data/librispeech_clean_test/wav.scp").exists()
    about = run("librispeech", parts=["clean"], splits=["train"])["librispeech_clean_train"]
    assert about["utterances"] == 1 and "empty file" in about["missing"]["ls103-103_7_0000"]
    assert about["missing_files"] == ["any of train called train-clean-360"]
    assert "librispeech_clean_train: missing: file any of train" in caplog.text
    # It is not finished: once the rest is there, it is read again.
    (root / "LibriSpeech/train-clean-100/103/7/103-7-0000.flac").write_bytes(b"something")
    about = run("librispeech", parts=["clean"], splits=["train"])["librispeech_clean_train"]
    assert about["utterances"] == 2


def test_missing_shards(run, copy, tmp_path):
    root = copy("peoples_speech")
    (root / "clean/test-00000-of-00002.parquet").unlink()
    (root / "clean/train-00001-of-00002.parquet").unlink()
    for limit in (None, 2):  # the first two would be other ones
        with pytest.raises(DataError, match="1 files are missing.*file test-00000-of-00002.parquet"):
            run("peoples_speech", parts=["clean"], splits=["test"], limit=limit)
    about = run("peoples_speech", parts=["clean"], splits=["train"])["peoples_speech_clean_train"]
    assert about["missing_files"] == ["train-00001-of-00002.parquet"] and about["utterances"] == 3


def test_nothing_usable(run, copy):
    for path in copy("mls").glob("mls_polish/train/audio/*/*/*.flac"):
        path.unlink()
    with pytest.raises(DataError, match="mls_polish_train: none of 2 utterances is usable"):
        run("mls", parts=["polish"], splits=["train"])


def test_an_id_that_is_there_twice(run, copy):
    table = copy("mls") / "mls_polish/test/transcripts.txt"
    table.write_text(table.read_text() + "3_55_000000\tagain\n")
    with pytest.raises(
        DataError, match=r"transcripts.txt:3: utterance 'mls3-3_55_000000' .* is also at .*:1"
    ):
        run("mls", parts=["polish"], splits=["test"])


def test_embedded_audio_of_an_unknown_kind(run, copy):
    row = {"audio": {"bytes": b"\x1aE\xdf\xa3", "path": "a.webm"}, "text": "a", "id": "1"}
    write_parquet(
        copy("peoples_speech") / "clean/test-00000-of-00002.parquet", [row | {"duration_ms": 1}]
    )
    with pytest.raises(DataError, match="neither WAV, FLAC, Ogg nor MP3"):
        run("peoples_speech", parts=["clean"], splits=["test"])


def test_a_set_of_another_origin(run, tmp_path):
    (tmp_path / "data/mls_polish_test").mkdir(parents=True)
    (tmp_path / "data/mls_polish_test/wav.scp").write_text("a a.wav\n")
    with pytest.raises(DataError, match="not made from a published corpus"):
        run("mls", parts=["polish"], splits=["test"])


# ---- the hub -----------------------------------------------------------------------------------


def test_the_hub_needs_a_commit(tmp_path):
    with pytest.raises(ConfigError, match="mls: revision 'main' is no commit"):
        corpora.prepare_mls(tmp_path, parts=["polish"], revision="main")
    with pytest.raises(ConfigError, match="tedlium: no revision is known; give .* --revision"):
        corpora.prepare_tedlium(tmp_path, parts=["release1"])


def test_the_hub_needs_its_library(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        DataError, match="mls_polish_test: .*needs the package datasets .*pip install datasets"
    ):
        corpora.prepare_mls(tmp_path, parts=["polish"], splits=["test"], revision=COMMIT)


@pytest.mark.parametrize("streaming", [True, False])
def test_a_set_from_the_hub(tmp_path, monkeypatch, streaming):
    """What the library is asked, split by split, and what is made of its rows."""
    asked = []

    class Rows(list):
        def cast_column(self, column, feature):
            assert (column, feature) == ("audio", "undecoded")
            return self

    def load_dataset(name, config, **options):
        asked.append((name, config, options))
        key = options["split"].replace(".", "")
        return Rows(hub_row(f"{key}{n}", id=f"103-{key}-{n}", text=f"WORD {key} {n}", speaker_id=103)
                    for n in range(2))  # fmt: skip

    library = types.SimpleNamespace(load_dataset=load_dataset, Audio=lambda decode: "undecoded")
    monkeypatch.setitem(sys.modules, "datasets", library)
    options = {"parts": ["clean"], "splits": ["train"], "streaming": streaming, "threads": 1}
    (about,) = corpora.prepare_librispeech(tmp_path, **options).values()
    revision = get_published("librispeech").hub.revision
    assert asked == [
        ("openslr/librispeech_asr", "clean",
         {"split": f"train.{n}", "revision": revision, "streaming": streaming}) for n in (100, 360)
    ]  # fmt: skip
    assert (about["source"], about["revision"]) == ("hub: openslr/librispeech_asr", revision)
    data = KaldiDir.load(tmp_path / "librispeech_clean_train")
    assert data.text["ls103-103_train100_1"] == "Word train100 1." and len(data.utts) == 4
    assert Path(data.wav["ls103-103_train360_0"]).read_bytes() == clip_bytes("train3600")
    corpora.prepare_librispeech(tmp_path, **options)
    assert len(asked) == 2  # finished: the hub is not asked again


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("datasets") is None, reason="pip install datasets")
@pytest.mark.parametrize("streaming", [True, False])
def test_rows_of_the_library(tmp_path, monkeypatch, streaming):
    """The library itself, on a folder laid out as the data set is: a folder's path is an id to it."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "hub"
    rows = [hub_row(f"hub{n}", id=f"3_55_{n}", transcript=f"words {n}", speaker_id="3") for n in range(3)]
    write_parquet(root / "polish/test-00000-of-00001.parquet", rows)
    files = "  data_files:\n  - split: test\n    path: polish/test-*\n"
    (root / "README.md").write_text(f"---\nconfigs:\n- config_name: polish\n{files}---\n")
    corpus = get_published("mls")
    here = replace(corpus, hub=replace(corpus.hub, id=str(root)))
    found = list(hub.stream(SetName(here, "polish", "test"), COMMIT, streaming))
    assert [(row.id, row.text, row.speaker) for row in found] == [
        (f"3_55_{n}", f"words {n}", "3") for n in range(3)
    ]  # fmt: skip
    assert found[2].data == clip_bytes("hub2")
    with pytest.raises(DataError, match=r"german/test at 0+: cannot be read \(ValueError: .*--src"):
        list(hub.stream(SetName(here, "german", "test"), COMMIT, streaming))


# ---- the command -------------------------------------------------------------------------------


def test_command(copy, tmp_path, capsys):
    copy("mls")
    words = f"mls --src {tmp_path}/corpora/mls --out {tmp_path}/data --parts polish --splits test dev"
    prepare.main(f"{words} --downloads {tmp_path}/downloads".split())
    out = capsys.readouterr().out.splitlines()
    counts = "2 utterances, 1 speakers, 0 missing, 0 without words"
    assert out == [f"{tmp_path}/data/mls_polish_{split}: {counts}" for split in ("test", "dev")]
    assert soundfile.info(load(tmp_path, "mls_polish_dev").wav["mls2-2_55_000000"]).frames == 4800


def test_names_of_a_tier(tmp_path, capsys):
    prepare.main(f"fleurs --out {tmp_path} --parts plus8 --names true".split())
    assert capsys.readouterr().out == (
        "fleurs_hi_in_test fleurs_id_id_test fleurs_ms_my_test fleurs_nl_nl_test fleurs_pl_pl_test "
        "fleurs_th_th_test fleurs_tr_tr_test fleurs_vi_vn_test\n"
    )
    assert not list(tmp_path.iterdir())
