"""Kaldi tables and directories: what is refused, with which words, and what a repair does."""

import subprocess
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espnet_latentasr.data.kaldi_dir import (
    KaldiDir,
    c_sorted,
    fix_data_dir,
    read_kaldi_table,
    write_kaldi_table,
)
from espnet_latentasr.errors import DataError

BAD_TABLES = {
    "bom": (b"\xef\xbb\xbfa x\n", r"text:1: .*byte-order mark.*fix_data_dir"),
    "crlf": (b"a x\nb y\r\n", r"text:2: utterance 'b': carriage return.*fix_data_dir"),
    "duplicate": (b"a x\na y\n", r"text:2: utterance 'a': duplicate id.*fix_data_dir"),
    "no_value": (b"a x\nb\n", r"text:2: utterance 'b': no value.*fix_data_dir"),
    "blank_value": (b"a x\nb  \t \n", r"text:2: utterance 'b': no value"),
    "ideographic_blank": ("a x\nb \u3000\n".encode(), r"text:2: utterance 'b': no value"),
    "blank_line": (b"a x\n\nb y\n", r"text:2: blank line"),
    "latin1": (b"a x\nb caf\xe9\n", r"text:2: utterance 'b': byte 0xe9 at column 6.*iconv"),
    "unsorted": (b"b y\na x\n", r"text:2: utterance 'a': comes after 'b'.*LC_ALL=C"),
    "leading_blank": (b" a x\n", r"text:1: .*without blanks"),
    "odd_blank_in_id": ("a\u00a0b x\n".encode(), r"text:1: .*without blanks"),
    "cut_off": (b"a x\nb y", r"text:2: utterance 'b': last line lacks its newline"),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_bad_table(tmp_path, name):
    content, message = BAD_TABLES[name]
    (tmp_path / "text").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_kaldi_table(tmp_path / "text")


def test_missing_table(tmp_path):
    with pytest.raises(DataError, match="text: no such file"):
        read_kaldi_table(tmp_path / "text")


def test_what_a_table_may_have(tmp_path):
    (tmp_path / "text").write_bytes("b\tzwei  \nä eins  zwei\na\n".encode())
    expected = {"b": "zwei", "ä": "eins  zwei", "a": ""}
    assert read_kaldi_table(tmp_path / "text", allow_empty=True, require_sorted=False) == expected
    (tmp_path / "text").write_bytes(b"")
    assert read_kaldi_table(tmp_path / "text") == {}


ids = st.text(st.characters(exclude_categories=["Z", "C"]), min_size=1).filter(
    lambda s: len(s.split()) == 1
)
values = st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"])).map(
    lambda s: s.strip(" \t")
)


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.dictionaries(ids, values, max_size=8))
def test_round_trip(tmp_path_factory, table):
    path = tmp_path_factory.mktemp("round") / "text"
    write_kaldi_table(path, table)
    assert read_kaldi_table(path, allow_empty=True) == table


def test_order_is_that_of_the_c_locale(tmp_path):
    table = {utt: "x" for utt in ["é", "a-1", "a", "B", "a_1", "Z", "a1", "中", "😀", "ａ"]}
    write_kaldi_table(tmp_path / "text", table)
    sort = subprocess.run(
        ["sort", "-c", tmp_path / "text"], env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"}, check=False
    )
    assert sort.returncode == 0
    assert c_sorted(table)[:3] == ["B", "Z", "a"]


@pytest.mark.parametrize(("utt", "value"), [("a b", "x"), ("", "x"), ("a", "x\ny"), ("a", "x\r")])
def test_write_refuses_what_it_could_not_read(tmp_path, utt, value):
    with pytest.raises(DataError, match="text: utterance"):
        write_kaldi_table(tmp_path / "text", {utt: value})
    assert not (tmp_path / "text").exists()


def small(tmp_path, **tables):
    wav = {"s1-a": "a.wav", "s1-b": "b.wav", "s2-c": "c.wav"}
    default = {
        "text": dict.fromkeys(wav, "hello"),
        "utt2spk": {utt: utt[:2] for utt in wav},
        "utt2lang": None,
    }
    return KaldiDir(tmp_path, **({"wav": wav} | default | tables))


def test_save_load_subset(tmp_path):
    data = small(tmp_path, utt2lang={"s1-a": "en", "s1-b": "en", "s2-c": "de"})
    saved = data.save(tmp_path / "d")
    assert saved == replace(data, path=tmp_path / "d") == KaldiDir.load(tmp_path / "d")
    assert (tmp_path / "d" / "spk2utt").read_text() == "s1 s1-a s1-b\ns2 s2-c\n"
    part = saved.subset(["s2-c"])
    assert part.utts == ["s2-c"]
    assert part.wav == {"s2-c": "c.wav"}
    assert saved.utts == ["s1-a", "s1-b", "s2-c"]
    with pytest.raises(DataError, match="no utterance 'x'"):
        saved.subset(["x"])
    part.save(tmp_path / "d")
    assert KaldiDir.load(tmp_path / "d").utts == ["s2-c"]


def test_save_removes_tables_that_no_longer_hold(tmp_path):
    segments = {"s1-a": "s1-a 0 1", "s1-b": "s1-b 1 -1", "s2-c": "s2-c 0.5 2"}
    data = small(tmp_path, segments=segments).save(tmp_path)
    assert data.source("s1-b") == ("b.wav", 1.0, None)
    replace(data, segments=None).save(tmp_path)
    assert not (tmp_path / "segments").exists()


BAD_DIRS = {
    "text without audio": (
        {"text": dict.fromkeys(["s1-a", "s1-b", "s2-c", "s2-d"], "hi")},
        r"text:4: utterance 's2-d' has no entry in wav.scp \(wav.scp has 3, text has 4.*fix_data",
    ),
    "audio without text": (
        {"text": dict.fromkeys(["s1-a", "s2-c"], "hi")},
        r"wav.scp:2: utterance 's1-b' has no entry in text \(text has 2, wav.scp has 3.*fix_data",
    ),
    "no speaker": ({"utt2spk": {"s1-a": "s1", "s1-b": "s1"}}, r"'s2-c' has no entry in utt2spk"),
    "no language": ({"utt2lang": {"s1-a": "en"}}, r"'s1-b' has no entry in utt2lang"),
    "no prefix": (
        {"utt2spk": {"s1-a": "s1", "s1-b": "bob", "s2-c": "s2"}},
        r"utt2spk: utterance 's1-b' has speaker 'bob'.*SPK-UTT",
    ),
    "two speakers in a field": (
        {"utt2spk": {"s1-a": "s1", "s1-b": "s1-b s1", "s2-c": "s2"}},
        r"'s1-b' has speaker",
    ),
    "speakers out of order": (
        {"utt2spk": {"s1-a": "s1-a", "s1-b": "s1", "s2-c": "s2"}},
        r"'s1-b' has speaker 's1' \(after speaker 's1-a'\)",
    ),
    "command": (
        {"wav": {"s1-a": "a.wav", "s1-b": "sox b.mp3 -t wav - |", "s2-c": "c.wav"}},
        r"utterance 's1-b'.*command",
    ),
    "segment of no recording": (
        {"segments": {"s1-a": "x 0 1", "s1-b": "s1-b 0 1", "s2-c": "s2-c 0 1"}},
        r"segments: utterance 's1-a': 'x 0 1' is not 'RECORDING START END'",
    ),
    "segment backwards": (
        {"segments": {"s1-a": "s1-a 2 1", "s1-b": "s1-b 0 1", "s2-c": "s2-c 0 1"}},
        r"'s1-a': span 2 to 1 s",
    ),
    "segment not a number": (
        {"segments": {"s1-a": "s1-a nan 1", "s1-b": "s1-b 0 1", "s2-c": "s2-c 0 1"}},
        r"'s1-a': span nan to 1 s",
    ),
    "empty": ({"wav": {}}, r"wav.scp: no utterance at all"),
}


@pytest.mark.parametrize("name", BAD_DIRS)
def test_bad_directory(tmp_path, name):
    tables, message = BAD_DIRS[name]
    with pytest.raises(DataError, match=message):
        small(tmp_path, **tables)


def test_slash_in_id(tmp_path):
    tables = ({"a/b": value} for value in ("a.wav", "hi", "a/b"))
    with pytest.raises(DataError, match="'a/b'.*must not contain '/'"):
        KaldiDir(tmp_path, *tables)


def test_load_checks_files(tmp_path):
    small(tmp_path).save(tmp_path)
    (tmp_path / "spk2utt").write_text("s1 s1-a\n")
    with pytest.raises(DataError, match="spk2utt: disagrees with utt2spk"):
        KaldiDir.load(tmp_path)
    (tmp_path / "spk2utt").unlink()
    (tmp_path / "text").write_text("s1-a\ns1-b b\ns2-c c\n")
    with pytest.raises(DataError, match="text:1: utterance 's1-a': no value"):
        KaldiDir.load(tmp_path)
    assert KaldiDir.load(tmp_path, allow_empty_text=True).text["s1-a"] == ""
    (tmp_path / "wav.scp").unlink()
    with pytest.raises(DataError, match="wav.scp: no such file"):
        KaldiDir.load(tmp_path)


def test_fix_data_dir(tmp_path, files_of):
    src = tmp_path / "src"
    src.mkdir()
    (src / "wav.scp").write_bytes(b"\xef\xbb\xbfs2-c c.wav\r\ns1-a a.wav\r\ns1-b b.wav\r\n")
    (src / "text").write_bytes(
        "s1-b bee\n\ns1-a hi  you\ns1-a hi  you\ns9-x only text\ns2-c \u3000\n".encode()
    )
    (src / "utt2spk").write_bytes(b"s2-c s2\ns1-a s1\ns1-b s1")
    before = files_of(src)
    report = fix_data_dir(src, tmp_path / "dst")
    fixed = KaldiDir.load(tmp_path / "dst")
    assert fixed.text == {"s1-a": "hi  you", "s1-b": "bee"}
    assert report.kept == 2
    assert report.entries == {"wav.scp": 3, "text": 3, "utt2spk": 3}
    assert report.dropped == [
        ("s1-a", "repeated line in text"),
        ("s2-c", "no value in text"),
        ("s2-c", "not in text"),
        ("s9-x", "not in wav.scp, utt2spk"),
    ]
    assert files_of(src) == before
    again = fix_data_dir(tmp_path / "dst", tmp_path / "dst2")
    assert again.dropped == []
    assert files_of(tmp_path / "dst") == files_of(tmp_path / "dst2")


def test_fix_with_segments(tmp_path):
    src = tmp_path / "src"
    src.mkdir()
    (src / "wav.scp").write_text("r2 b.wav\nr1 a.wav\nr3 c.wav\n")
    (src / "segments").write_text("u2 r1 1 2\nu1 r1 0 1\nu3 r9 0 1\nu4 r2 0 1\n")
    (src / "text").write_text("u1 a\nu2 b\nu3 c\n")
    (src / "utt2spk").write_text("u1 u1\nu2 u2\nu3 u3\nu4 u4\n")
    report = fix_data_dir(src, tmp_path / "dst")
    assert KaldiDir.load(tmp_path / "dst").wav == {"r1": "a.wav"}
    assert report.dropped == [
        ("u3", "not in wav.scp (recording r9)"),
        ("u4", "not in text"),
        ("r2", "recording of no utterance"),
        ("r3", "recording of no utterance"),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"s1-a hi\ns1-a ho\n", r"text:2: utterance 's1-a' has two values, 'hi' and 'ho'"),
        (b"s1-a \xff\n", r"text:1: not UTF-8"),
        (b"s9-z hi\n", r"no utterance at all"),
    ],
)
def test_fix_refuses_to_decide(tmp_path, content, message):
    small(tmp_path / "src").save(tmp_path / "src")
    (tmp_path / "src" / "text").write_bytes(content)
    with pytest.raises(DataError, match=message):
        fix_data_dir(tmp_path / "src", tmp_path / "dst")
    assert not (tmp_path / "dst").exists()


def test_fix_in_place_is_refused(tmp_path):
    small(tmp_path).save(tmp_path)
    with pytest.raises(DataError, match="output is the input"):
        fix_data_dir(tmp_path, tmp_path / "." / "")
    (tmp_path / "text").unlink()
    with pytest.raises(DataError, match="text: no such file"):
        fix_data_dir(tmp_path, tmp_path / "dst")
