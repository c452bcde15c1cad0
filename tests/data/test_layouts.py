"""Published layouts, read from the small copies of ``published_layouts``."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from published_layouts import (  # noqa: F401
    TREES,
    clip_bytes,
    copy_fixture,
    write_clip,
    write_parquet,
    write_tar,
)

from espnet_latentasr.data import hub, json_lists, layouts
from espnet_latentasr.data.corpus_source import Source, parts_there
from espnet_latentasr.data.published import (
    Layout,
    SetName,
    get_published,
    load_published,
    parse_set_name,
)
from espnet_latentasr.errors import ConfigError, DataError
from espnet_latentasr.text.languages import get_language


def rows_of(name: str, part: str, split: str, root: Path) -> list[layouts.Row]:
    source = Source(SetName(get_published(name), part, split), root, None, True, root / "unpacked")
    return list(source.rows())


# ---- the table of corpora ----------------------------------------------------------------------


def test_the_table_of_corpora():
    assert set(load_published()) == set(TREES)
    prefixes = [corpus.prefix for corpus in load_published().values()]
    assert len(set(prefixes)) == len(prefixes)
    for corpus in load_published().values():
        assert corpus.page.startswith("https://") and corpus.licence and corpus.citation
        if corpus.name not in ("common_voice", "gigaspeech", "tedlium"):  # of these no commit is known
            assert hub.check_revision(corpus.name, corpus.hub.revision)
        assert {"audio", "text", "id"} <= set(corpus.hub.columns)
        assert all(layout.reader in layouts.READERS for layout in corpus.local)


def test_the_configurations_of_fleurs():
    fleurs = get_published("fleurs")
    assert len(fleurs.parts) == 102
    tiers = [fleurs.expand([tier]) for tier in ("core12", "plus8", "plus10")]
    assert [len(tier) for tier in tiers] == [12, 8, 10]
    named = {fleurs.language(part) for tier in tiers for part in tier}
    assert len(named) == 30 and all(get_language(code).qwen for code in named)
    assert len(fleurs.expand(["core12", "en_us", "all"])) == 102


def test_languages_are_never_guessed():
    fleurs, voice, ascend = map(get_published, ("fleurs", "common_voice", "ascend"))
    assert fleurs.language("cmn_hans_cn") == "zh" and fleurs.language("nb_no") == "no"
    assert fleurs.language("zu_za") == "auto" and voice.language("tok") == "auto"  # open: any locale
    with pytest.raises(ConfigError, match="part 'zu_za' has no language"):
        fleurs.language("zu_za", "error")
    with pytest.raises(DataError, match=r"no part 'en_uk'; did you mean 'en_us'"):
        fleurs.language("en_uk")
    assert [ascend.row_language(x) for x in ("zh", "mixed", "en")] == ["zh", "zh", "en"]
    with pytest.raises(DataError, match="in 'Hakka', one of zh, en, mixed expected"):
        ascend.row_language("Hakka")
    assert ascend.units("main") == ("mer", "cer") and fleurs.units("th_th") == ("cer",)
    assert fleurs.units("en_us") == ("wer",) and fleurs.units("zu_za") == ()


def test_names_of_sets():
    name = parse_set_name("peoples_speech_clean_sa_test")
    assert (name.corpus.name, name.part, name.split) == ("peoples_speech", "clean_sa", "test")
    assert str(parse_set_name("common_voice_zh-CN_dev")) == "common_voice_zh-CN_dev"
    for wrong in ("fleurs_test", "test_text", "fleurs_en_us_valid"):
        with pytest.raises(DataError, match="as in fleurs_en_us_test"):
            parse_set_name(wrong)


# ---- readers -----------------------------------------------------------------------------------


def test_tsv_with_clips(copy):
    rows = rows_of("common_voice", "en", "test", copy("common_voice"))
    assert [row.text for row in rows] == ['Say "en test" 0', 'Say "en test" 1']
    assert rows[0].speaker == "c" * 128 and rows[0].id == "common_voice_en_test0"
    assert soundfile.info(rows[1].audio).samplerate == 32000
    assert rows[1].where.endswith("en/test.tsv:3")


def test_tsv_without_header_and_audio_in_an_archive(copy):
    rows = rows_of("fleurs", "cmn_hans_cn", "dev", copy("fleurs"))
    assert [(row.id, row.text, row.speaker) for row in rows] == [
        ("0113", "cmn_hans_cn dev 0", ""), ("1113", "cmn_hans_cn dev 1", "")
    ]  # fmt: skip
    assert all(soundfile.info(row.audio).frames == 4800 for row in rows)


@pytest.mark.parametrize("name, part", [("voxpopuli", "en"), ("mls", "polish")])
def test_archives_of_the_hub_whose_table_names_no_suffix(copy, name, part):
    """As the hub lays them out: the table beside the archives, names without what they end in."""
    root, table = copy(name), {"voxpopuli": "asr_test.tsv", "mls": "transcripts.txt"}[name]
    old = root / {"voxpopuli": "transcribed_data/en", "mls": "mls_polish/test"}[name]
    new = root / "data" / {"voxpopuli": "en", "mls": "mls_polish/test"}[name]
    clips = root / "clips"
    clips.mkdir()
    for path in [*old.rglob("*_test*.ogg"), *old.rglob("*.flac")]:
        sound, rate = soundfile.read(path)
        soundfile.write(clips / f"{path.stem}{'.wav' if name == 'voxpopuli' else '.flac'}", sound, rate)
    (new / {"voxpopuli": "test", "mls": "audio"}[name]).mkdir(parents=True)
    (old / table).rename(new / table)
    shutil.rmtree(old)
    write_tar(new / {"voxpopuli": "test/test_part_0.tar.gz", "mls": "audio/3_55.tar.gz"}[name], clips)
    rows = rows_of(name, part, "test", root)
    assert len(rows) >= 2 and all(Path(row.audio).is_file() for row in rows)


def test_an_archive_that_was_replaced(copy):
    root = copy("fleurs")
    before = rows_of("fleurs", "en_us", "test", root)
    clip = root / "test/045.wav"
    clip.parent.mkdir()
    soundfile.write(clip, np.zeros(1600), 16000)
    write_tar(root / "data/en_us/audio/test.tar.gz", clip.parent)
    after = rows_of("fleurs", "en_us", "test", root)
    assert [Path(row.audio).is_file() for row in before] == [True, True]
    assert sum(Path(row.audio).is_file() for row in after) <= 1


def test_a_speaker_that_is_not_published(copy):
    root = copy("voxpopuli")
    rows = rows_of("voxpopuli", "en", "test", root)
    assert [row.speaker for row in rows] == ["124746test", "", ""]
    assert all(Path(row.audio).is_file() for row in rows)
    # Only the test split of en_accented is published.
    (root / "transcribed_data/en").rename(root / "transcribed_data/en_accented")
    assert parts_there("voxpopuli", root) == ["en_accented"]
    with pytest.raises(DataError, match="no voxpopuli_en_accented_train there"):
        rows_of("voxpopuli", "en_accented", "train", root)


def test_csv(copy):
    rows = rows_of("ascend", "main", "test", copy("ascend"))
    assert [(row.language, row.text) for row in rows] == [
        ("zh", "好的 test"), ("mixed", "我们 go 吧,快 test"), ("en", "okay test")
    ]  # fmt: skip
    assert rows[2].speaker == "94" and Path(rows[2].audio).is_file()


def test_transcripts(copy):
    rows = rows_of("librispeech", "other", "test", copy("librispeech"))
    assert [(r.id, r.speaker, r.text) for r in rows][1] == ("367-7-0001", "367", "CHAPTER TEST-OTHER 1")
    rows = rows_of("mls", "polish", "dev", copy("mls"))
    assert rows[0].speaker == "2" and Path(rows[0].audio).is_file() and rows[0].text == "polish dev 0"


def test_another_suffix_and_a_first_clip_that_is_missing(copy):
    """The release in Opus: its first file lacks, and the others are still found."""
    root = copy("mls")
    for path in (root / "mls_polish/test").glob("audio/*/*/*.flac"):
        write_clip(path.with_suffix(".opus"), format="OGG", subtype="OPUS")
        path.unlink()
    (root / "mls_polish").rename(root / "mls_polish_opus")
    (root / "mls_polish_opus/test/audio/3/55/3_55_000000.opus").unlink()
    rows = rows_of("mls", "polish", "test", root)
    assert [Path(row.audio).is_file() for row in rows] == [False, True]
    assert rows[0].audio.endswith("3/55/3_55_000000.opus")


def test_stm(copy):
    rows = rows_of("tedlium", "release1", "test", copy("tedlium"))
    assert [row.span for row in rows] == [(0.0, 0.5), (1.2, 1.9)]  # what is to be ignored is not there
    assert rows[0].text == "{COUGH} it 's <sil> for(2) test" and rows[0].id == "AlGore_test_0.00_0.50"
    assert soundfile.info(rows[0].audio).frames == 32000


def test_json(copy):
    rows = rows_of("gigaspeech", "en", "dev", copy("gigaspeech"))
    assert [(row.id, row.span, row.speaker) for row in rows] == [
        ("YOUDEV_S0", (0.0, 0.31), ""), ("YOUDEV_S1", (0.31, 0.8), "")
    ]  # fmt: skip
    assert rows[0].text == "AND DEV <COMMA> SO WHAT <QUESTIONMARK>"


def test_parquet(copy):
    rows = rows_of("peoples_speech", "clean", "test", copy("peoples_speech"))
    assert [row.id for row in rows] == ["test00", "test01", "test02", "test10", "test11", "test12"]
    assert rows[3].data == clip_bytes("test10") and rows[3].audio == "test10.wav"
    assert rows_of("minds14", "ko-KR", "test", copy("minds14"))[1].id == "1"


def test_parts_that_a_copy_has(copy):
    assert parts_there("common_voice", copy("common_voice")) == ["de", "en", "eu"]
    assert parts_there("fleurs", copy("fleurs")) == ["af_za", "cmn_hans_cn", "en_us"]
    assert parts_there("mls", copy("mls")) == ["german", "polish"]


# ---- what is wrong -----------------------------------------------------------------------------


def read_one(path: Path, text: str, reader: str, **options) -> list[layouts.Row]:
    path.write_text(text, encoding="utf-8")
    layout = Layout(reader, ("*",), audio=("{name}",), **options)
    clips = layouts.Clips(layout, path.parent, {"part": "p", "split": "s"}, lambda archives: path.parent)
    return list(layouts.read_layout(layout, [path], clips))


COLUMNS = {"audio": "path", "text": "sentence", "id": "path"}


@pytest.mark.parametrize(
    "name, text, reader, message",
    [
        ("t.tsv", "path\tsentence\na.mp3\n", "table", r"t.tsv:2: 1 fields, 2 expected \(path, sent"),
        ("t.tsv", "file\tsentence\na\tb\n", "table", "t.tsv:2: no column 'path'; there are: file, sen"),
        ("t.stm", "a 1 b 0 1 <x> hi\na 1 b x 2 <x> hi\n", "stm", "t.stm:2: times in seconds .* 'x'"),
        ("t.stm", "a 1 b\n", "stm", "t.stm:1: 'FILE CHANNEL"),
        ("t.txt", "a-1 hello\n\n", "transcripts", "t.txt:2: 'ID TEXT' expected"),
        ("g.json", '{"audios": [{"path": "x"}]}', "segments", "g.json: not what GigaSpeech publishes"),
        ("g.json", '{"audios": ', "segments", "g.json: not what GigaSpeech publishes"),
    ],
)  # fmt: skip
def test_malformed_files(tmp_path, name, text, reader, message):
    with pytest.raises(DataError, match=message):
        read_one(tmp_path / name, text, reader, columns=COLUMNS)


def test_only_a_newline_ends_a_line(tmp_path):
    text = "a-1 one\u2028two\x85three\r\na-2 four\n"
    rows = read_one(tmp_path / "t.txt", text, "transcripts")
    assert [(row.id, row.text) for row in rows] == [("a-1", "one\u2028two\x85three"), ("a-2", "four")]


@pytest.mark.parametrize("name, reader", [("t.tsv", "table"), ("t.txt", "transcripts")])
def test_a_file_that_is_no_utf8(tmp_path, name, reader):
    (tmp_path / name).write_bytes("path\tsentence\na\tcaf\xe9\n".encode("latin-1"))
    layout = Layout(reader, ("*",), audio=("{name}",), columns=COLUMNS)
    clips = layouts.Clips(layout, tmp_path, {"part": "p", "split": "s"}, lambda archives: tmp_path)
    with pytest.raises(DataError, match=rf"{name}.*0xe9.*; (get the file|.* or get it) again"):
        list(layouts.read_layout(layout, [tmp_path / name], clips))


@given(st.lists(st.dictionaries(st.text(max_size=3), st.text('a"]},\\{', max_size=9)), max_size=5),
       st.integers(1, 40), st.sampled_from([None, 1]))  # fmt: skip
@settings(max_examples=30)
def test_a_long_list_is_read_piece_by_piece(elements, chunk, indent):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lists, "CHUNK", chunk)
        path = Path(folder) / "x.json"
        whole = json.dumps({"dataset": "x", "audios": elements, "more": [1]}, indent=indent)
        path.write_text(whole)
        assert list(json_lists.read_array(path, "audios")) == elements
        path.write_text(whole[: whole.index('"more"')].rstrip().rstrip(",")[:-1])  # without its "]"
        with pytest.raises(json.JSONDecodeError):
            list(json_lists.read_array(path, "audios"))


def test_two_files_of_one_name_in_archives(tmp_path):
    for folder in ("a", "b"):
        write_clip(tmp_path / folder / "1.wav")
    with pytest.raises(DataError, match=r"b/1.wav: the name is also that of .*a/1.wav"):
        layouts.index_files(tmp_path)


def test_nothing_of_a_corpus(tmp_path):
    with pytest.raises(DataError, match=r"no fleurs_en_us_test there: none of data/en_us/test.tsv, "):
        Source(SetName(get_published("fleurs"), "en_us", "test"), tmp_path, None, True, tmp_path)


def test_missing_shards():
    names = [Path(f"x/test-0000{n}-of-00004.parquet") for n in (0, 2)] + [Path("x/0001.parquet")]
    assert hub.missing_shards(names) == ["test-00001-of-00004.parquet", "test-00003-of-00004.parquet"]


def test_parquet_that_is_none(tmp_path, copy):
    root = copy("peoples_speech")
    pointer = root / "clean/test-00001-of-00002.parquet"
    pointer.write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(DataError, match=r"test-00001-of-00002.parquet: cannot be read .*git lfs pull"):
        rows_of("peoples_speech", "clean", "test", root)
    write_parquet(pointer, [{"sound": 1}])
    with pytest.raises(DataError, match="no column 'audio'; there are: sound"):
        rows_of("peoples_speech", "clean", "test", root)
    write_parquet(pointer, [{"audio": {"bytes": None, "path": None}, "text": "a", "id": "1"}])
    with pytest.raises(DataError, match="row 0: column 'audio' holds no audio"):
        rows_of("peoples_speech", "clean", "test", root)
