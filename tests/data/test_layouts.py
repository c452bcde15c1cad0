"""Published layouts on small copies: `TREES` writes one of each corpus, as it is published."""

from __future__ import annotations

import csv
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
import soundfile

from espnet_latentasr.data import hub, layouts
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

CV = "client_id path sentence up_votes down_votes age gender accents variant locale segment".split()
MP3 = dict(format="MP3", subtype="MPEG_LAYER_III")


def tone(key: str, rate: int = 16000, seconds: float = 0.3) -> np.ndarray:
    """Return a tone (S,) whose pitch follows from a name, so that no two clips are equal."""
    hz = 150 + sum(key.encode()) % 900 + len(key)
    return 0.3 * np.sin(2 * np.pi * hz * np.arange(round(rate * seconds)) / rate)


def write_clip(path: Path, rate: int = 16000, seconds: float = 0.3, **style: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, tone(path.name, rate, seconds), rate, **style)


def clip_bytes(key: str, rate: int = 16000, **style: str) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, tone(key, rate), rate, **{"format": "WAV", **style})
    return buffer.getvalue()


def write_lines(path: Path, rows: list[list[str]], sep: str = "\t") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(sep.join(row) + "\n" for row in rows), encoding="utf-8")


def write_tar(path: Path, folder: Path) -> None:
    """Pack a folder under its own name, and remove it: as a fresh download is."""
    with tarfile.open(path, "w:*" if path.suffix == ".tar" else "w:gz") as tar:
        tar.add(folder, folder.name)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


def common_voice(root: Path) -> None:
    for locale in ("en", "de", "eu"):
        for split, speaker in (("train", "a" * 128), ("dev", "b" * 128), ("test", "c" * 128)):
            rows = [CV]
            for number in range(2):
                name = f"common_voice_{locale}_{split}{number}.mp3"
                write_clip(root / locale / "clips" / name, 32000, **MP3)
                text = f'Say "{locale} {split}" {number}'  # a quote that quotes nothing
                rows.append([speaker, name, text, "2", "0", "", "", "", "", locale, ""])
            write_lines(root / locale / f"{split}.tsv", rows)


def fleurs(root: Path) -> None:
    for config in ("en_us", "cmn_hans_cn", "af_za"):
        for split in ("train", "dev", "test"):
            folder = root / "data" / config / "audio" / split
            rows = []
            for number in range(2):
                name = f"{number}{len(config)}{len(split)}.wav"
                write_clip(folder / name)
                text = f"{config} {split} {number}"
                rows.append([str(number), name, text.upper(), text, "| ".join(text), "4800", "MALE"])
            write_lines(root / "data" / config / f"{split}.tsv", rows)
            write_tar(folder.with_suffix(".tar.gz"), folder)


def voxpopuli(root: Path) -> None:
    header = ["id", "raw_text", "normalized_text", "speaker_id", "split", "gender"]
    for split in ("train", "dev", "test"):
        rows = [header]
        for number, speaker in enumerate(("124746", "None")):
            utt = f"2018061{number}-0900-PLENARY-15-en_20180613-18:05:0{number}_{split}"
            write_clip(root / f"transcribed_data/en/2018/{utt}.ogg", format="OGG", subtype="VORBIS")
            rows.append([utt, "Mr. X", f"mister {split} {number}", f"{speaker}" if number else
                         f"{speaker}{split}", split, "female"])  # fmt: skip
        rows.append([utt + "9", "", "", "None", split, ""])  # no words: not transcribed
        write_clip(root / f"transcribed_data/en/2018/{utt}9.ogg", format="OGG", subtype="VORBIS")
        write_lines(root / f"transcribed_data/en/asr_{split}.tsv", rows)


def librispeech(root: Path) -> None:
    speakers = {"train-clean-100": "103", "dev-clean": "84", "test-clean": "1089"}
    speakers |= {"train-other-500": "25", "dev-other": "116", "test-other": "367"}
    for split, spk in speakers.items():
        folder = root / "LibriSpeech" / split / spk / "7"
        rows = [[f"{spk}-7-{n:04}", f"CHAPTER {split.upper()} {n}"] for n in range(2)]
        for utt, _ in rows:
            write_clip(folder / f"{utt}.flac")
        write_lines(folder / f"{spk}-7.trans.txt", rows, sep=" ")


def gigaspeech(root: Path) -> None:
    audios = []
    for subset in ("XS", "DEV", "TEST"):
        path = f"audio/youtube/P0000/YOU{subset}.opus"
        write_clip(root / path, seconds=1.0, format="OGG", subtype="OPUS")
        texts = (f"AND {subset} <COMMA> SO WHAT <QUESTIONMARK>", "<MUSIC>")
        segments = [
            {"sid": f"YOU{subset}_S{n}", "begin_time": [0.0, 0.31][n], "end_time": [0.31, 0.8][n],
             "channel": 0, "text_tn": text, "subsets": ["{XL}", f"{{{subset}}}"]}
            for n, text in enumerate(texts)
        ]  # fmt: skip
        audios.append({"aid": f"YOU{subset}", "path": path, "speaker": "N/A", "segments": segments})
    (root / "GigaSpeech.json").write_text(json.dumps({"dataset": "GigaSpeech", "audios": audios}))


def ascend(root: Path) -> None:
    for split in ("train", "validation", "test"):
        rows = [["file_name", "transcription", "duration", "language", "original_speaker_id",
                 "session_id", "topic"]]  # fmt: skip
        for spk, language, text in ((7, "zh", "好的"), (7, "mixed", "我们 go 吧,快"), (9, "en", "okay")):
            name = f"waves/ses1_spk{spk}{split}_{language}_15.3200_0.7810.wav"
            write_clip(root / name)
            rows.append([name, f"{text} {split}", "0.3", language, f"{spk}{len(split)}", "1", "persona"])
        with open(root / f"{split}_metadata.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)


def tedlium(root: Path) -> None:
    for split in ("train", "dev", "test"):
        talk = f"AlGore_{split}"
        folder = root / "TEDLIUM_release1" / split
        write_clip(folder / "sph" / f"{talk}.sph", seconds=2.0, format="NIST", subtype="PCM_16")
        rows = [
            f"{talk} 1 {talk} 0.00 0.50 <o,f0,male> {{COUGH}} it 's <sil> for(2) {split}",
            f"{talk} 1 {talk} 0.50 0.90 <o,f0,male> ignore_time_segment_in_scoring",
            f"{talk} 1 inter_segment_gap 0.90 1.20 <o,,unknown>",
            f";; comment of {split}",
            f"{talk} 1 {talk} 1.20 1.90 <o,f0,male> thank you {split}",
        ]
        write_lines(folder / "stm" / f"{talk}.stm", [[row] for row in rows])


def mls(root: Path) -> None:
    for part in ("german", "polish"):
        for split, spk in (("train", "1"), ("dev", "2"), ("test", "3")):
            folder = root / f"mls_{part}" / split
            rows = [[f"{spk}_55_00000{n}", f"{part} {split} {n}"] for n in range(2)]
            for utt, _ in rows:
                write_clip(folder / "audio" / spk / "55" / f"{utt}.flac")
            write_lines(folder / "transcripts.txt", rows)


def write_parquet(path: Path, rows: list[dict], audio: str = "audio") -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pip install pyarrow")
    from pyarrow import parquet

    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=2)


def hub_row(key: str, rate: int = 16000, **columns: object) -> dict:
    return {"audio": {"bytes": clip_bytes(key, rate), "path": f"{key}.wav"}, **columns}


def peoples_speech(root: Path) -> None:
    for split in ("train", "validation", "test"):
        for shard in range(2):
            rows = [hub_row(key := f"{split}{shard}{n}", id=f"x/{key}.flac", text=f"people {key}",
                            duration_ms=300) for n in range(3)]  # fmt: skip
            write_parquet(root / f"clean/{split}-{shard:05}-of-00002.parquet", rows)


def ami(root: Path) -> None:
    for part in ("ihm", "sdm"):
        for split in ("train", "validation", "test"):
            about = {"text": f"OKAY {split.upper()}", "speaker_id": f"MEE06{len(split)}"}
            rows = [hub_row(key := f"{part}{split}{n}", audio_id=f"AMI_{key}", **about) for n in range(2)]
            write_parquet(root / part / split / "0000.parquet", rows)


def minds14(root: Path) -> None:
    for part in ("en-US", "ko-KR"):
        rows = [hub_row(f"{part}{n}", 8000, path=f"{part}~BALANCE/{n}.wav", transcription=f"card {n}")
                for n in range(2)]  # fmt: skip
        write_parquet(root / part / "train-00000-of-00001.parquet", rows)


TREES = {tree.__name__: tree for tree in (common_voice, fleurs, voxpopuli, librispeech, gigaspeech,
         ascend, tedlium, mls, peoples_speech, ami, minds14)}  # fmt: skip


@pytest.fixture
def copy(tmp_path):
    """Return a function that writes a corpus's copy below its name."""

    def write(name: str) -> Path:
        root = tmp_path / "corpora" / name
        root.mkdir(parents=True)
        TREES[name](root)
        return root

    return write


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
        # No commit can be known where the hub cannot be asked: an invented one would be worse than none.
        assert corpus.hub.revision is None
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


def test_a_speaker_that_is_not_published(copy):
    rows = rows_of("voxpopuli", "en", "test", copy("voxpopuli"))
    assert [row.speaker for row in rows] == ["124746test", "", ""]
    assert all(Path(row.audio).is_file() for row in rows)


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
