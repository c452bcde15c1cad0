"""Bad input: every reader reads a damaged file or refuses it by name, in bounded time and memory."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import struct
import tempfile
import zipfile
from pathlib import Path

import fuzzing
import fuzzing_readers
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from espnet_latentasr import reading
from espnet_latentasr.errors import ConfigError, DataError

EXAMPLES = 12
STEP = st.tuples(st.sampled_from(fuzzing.NAMES), *[st.integers(0, (1 << 16) - 1)] * 2)


@contextlib.contextmanager
def seeded(reader: fuzzing.Reader):
    """Yield (folder, file, content) of the reader's valid input."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "in"
        root.mkdir()
        path = reader.seed(root)
        yield root, path, path.read_bytes()


def check(reader: fuzzing.Reader) -> None:
    with seeded(reader) as (root, path, data):
        reader.read(path)  # the valid file is read
        for steps in fuzzing.ALWAYS:
            found = fuzzing.run_case(reader, root, path, fuzzing.mutate(data, steps))
            assert found.good, f"{reader.name} {steps}: {found}"

        # Without shrinking: the steps are few, and tools/fuzz.py --keep gives the file.
        @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
        @given(st.lists(STEP, min_size=1, max_size=3))
        def damaged(steps):
            found = fuzzing.run_case(reader, root, path, fuzzing.mutate(data, steps))
            assert found.good, f"{reader.name} {steps}: {found}"

        damaged()


def named(readers):
    return pytest.mark.parametrize("reader", readers, ids=lambda reader: reader.name)


@named(fuzzing_readers.READERS)
def test_damaged_files_are_read_or_refused_by_name(reader):
    check(reader)


@named(fuzzing_readers.MODEL_READERS)
def test_damaged_model_files_are_read_or_refused_by_name(reader):
    check(reader)


# ---- what a few bytes announce ------------------------------------------------------------------


def refused(path: Path, data: bytes, read, match: str, error=DataError) -> None:
    """``read(path)`` refuses ``data`` without having taken memory for what it announces."""
    path.write_bytes(data)
    with pytest.raises(error, match=match) as caught:
        with fuzzing.limits():
            read(path)
    assert str(path) in str(caught.value)
    assert not any(isinstance(one, MemoryError) for one in fuzzing._chain(caught.value))


FLOATS = b"u1 \0BFM \4" + struct.pack("<i", 1 << 30) + b"\4" + struct.pack("<i", 1 << 20)


@pytest.mark.parametrize(
    ("entry", "match"),
    [
        (FLOATS, "4503599627370496 bytes, 0 are there"),
        (FLOATS + bytes(64), "64 are there"),
        (b"u1 \0BFV \4" + struct.pack("<i", 9) + bytes(32), "announces 36 bytes, 32 are there"),
        # Taken as "all that is left": the next entry's numbers would be this one's.
        (b"u1 \0BFV \4" + struct.pack("<i", -1) + bytes(32), "announces -4 bytes"),
        (b"u1 \0B\4" + struct.pack("<i", (1 << 31) - 1) + bytes(50), "2147483647 numbers are announced"),
        (b"u1 \0BCM " + struct.pack("<ffii", 0, 1, 1 << 30, 1 << 30), "announces 8589934592 bytes"),
        (b"u1 AUDIO\x08" + b"\xff" * 8 + bytes(8), "bytes, 8 are there"),
        (b"u1 NPY\x08" + b"\xff" * 8 + bytes(8), "bytes, 8 are there"),
        (b"\0" * 10_000, "no id of an entry at byte 0"),
    ],
)
def test_an_archive_gets_no_more_memory_than_it_fills(tmp_path, entry, match):
    refused(tmp_path / "x.ark", entry, fuzzing_readers.read_ark, match)


def test_entries_that_are_whole_stay_readable(tmp_path):
    for form in ("float", "double", "compressed", "text", "vectors", "npy", "wav", "audio"):
        (tmp_path / "x.ark").write_bytes(fuzzing_readers.ark(form))
        fuzzing_readers.read_ark(tmp_path / "x.ark")


def wav(rate: int = 16000, channels: int = 1, data: int = 640, size: int | None = None) -> bytes:
    """A WAV file of ``data`` bytes that says ``size`` of itself."""
    samples = (np.arange(data // 2) * 37 % 9000).astype("<i2").tobytes()
    said = data if size is None else size
    width = 2 * channels
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, channels, rate, rate * width, width, 16)
    return (
        b"RIFF"
        + struct.pack("<I", 36 + said)
        + b"WAVE"
        + form
        + struct.pack("<4sI", b"data", said)
        + samples
    )


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (wav(size=0x7FFE0000), "bytes fewer than its header says"),
        (wav(rate=1), "sample rate 1 Hz"),
        (wav(rate=2_000_000_000), "sample rate 2000000000 Hz"),
    ],
)
def test_a_sound_file_that_announces_hours(tmp_path, data, match):
    refused(tmp_path / "x.wav", data, fuzzing_readers.read_sound, match)


def test_a_flac_file_that_announces_days(tmp_path):
    data = bytearray(fuzzing_readers.sound("FLAC"))
    # STREAMINFO: 36 bits of total samples end at byte 26.
    data[21] |= 0x0F
    data[22:26] = b"\xff" * 4
    refused(
        tmp_path / "x.flac", bytes(data), fuzzing_readers.read_sound, "samples could be read|unreadable"
    )


def yaml_bomb() -> bytes:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]" for k in range(1, 12)]
    return "\n".join(lines).encode()


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (yaml_bomb(), "its aliases stand for"),
        (b"a: &a\n  b: *a\n", "line 1: an alias within its own anchor"),
        (b"a: " + b"[" * 2000, "nested too deeply"),
        (b"batch_size: 2001-99-99\n", "line 1: month must be in 1..12"),
        (b"a: 1\nb: !!int x\n", "line 2: invalid literal"),
        (b"? [a, b]\n: 1\n", "unhashable|no word"),
        (b"a: " + b"9" * 5000, "line 1: Exceeds the limit"),
        (b"a: 1\nb: \xff\n", ":2: byte 0xff at column 4 is not UTF-8"),
        (b'base: "x\\0y"\n', "expected one file name"),
    ],
)
def test_yaml_that_stands_for_more_than_it_says(tmp_path, data, match):
    refused(tmp_path / "x.yaml", data, fuzzing_readers.read_decode, match, ConfigError)


def test_aliases_that_are_used_as_meant_are_read(tmp_path):
    from espnet_latentasr.config import load_yaml

    (tmp_path / "x.yaml").write_text("a: &a {k: 1}\nb: *a\nc: [*a, *a]\n")
    assert load_yaml(tmp_path / "x.yaml") == {"a": {"k": 1}, "b": {"k": 1}, "c": [{"k": 1}, {"k": 1}]}


def test_a_line_without_end_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_LINE", 1 << 20)
    # 64 MB of blanks in 64 kB.
    data = gzip.compress(fuzzing_readers.ARPA[:20] + b" " * (1 << 26))
    refused(
        tmp_path / "x.arpa.gz", data, fuzzing_readers.read_lm, r"gz:\d+: a line of over 1048576 bytes"
    )


def test_a_pack_that_inflates(tmp_path):
    files = fuzzing_readers.pack_files()
    config = json.loads(files["config.json"])
    config["adapter"]["bytes"] = 1 << 27
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("config.json", json.dumps(config))
        with archive.open("adapter.safetensors", "w", force_zip64=True) as member:
            for _ in range(1 << 7):
                member.write(bytes(1 << 20))
    refused(tmp_path / "x.zip", buffer.getvalue(), fuzzing_readers.read_pack, "never packed so small")


@pytest.mark.parametrize(
    "header",
    [
        struct.pack("<Q", 1 << 60),
        struct.pack("<Q", 90)
        + b'{"w": {"dtype": "F32", "shape": [1099511627776], "data_offsets": [0, 8]}}'.ljust(90),
    ],
)
def test_an_adapter_that_announces_terabytes(tmp_path, header):
    refused(tmp_path / "x.safetensors", header + bytes(8), fuzzing_readers.read_adapter, "damaged")


def test_a_checkpoint_whose_shapes_are_not_in_it(tmp_path):
    import torch

    from espnet_latentasr.decode.loading import read_tensors

    wide = torch.as_strided(torch.zeros(4), (1 << 20, 1 << 20), (0, 0))
    buffer = io.BytesIO()
    torch.save({"method.w": wide}, buffer)
    refused(
        tmp_path / "x.pth", buffer.getvalue(), read_tensors, "method.w: shape .*16 bytes", ConfigError
    )
    for odd in (
        torch.zeros(2, dtype=torch.int64),
        torch.eye(2).to_sparse(),
        torch.tensor([float("nan")]),
    ):
        torch.save({"method.w": odd}, tmp_path / "x.pth")
        with pytest.raises(ConfigError, match=r"x\.pth: method\.w: "):
            read_tensors(tmp_path / "x.pth")


# ---- the shared readers ---------------------------------------------------------------------------


def test_lines_are_numbered_and_stripped(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(b"\xef\xbb\xbfa\r\n\nb c \xe2\x80\xa8d")
    assert list(reading.read_lines(path, "text")) == [(1, "a"), (2, ""), (3, "b c \u2028d")]
    with pytest.raises(DataError, match=r"no\.txt: cannot be read \(.*No such file.*; text expected"):
        list(reading.read_lines(tmp_path / "no.txt", "text"))
    path.write_bytes(b"a\nbc\xff\n")
    for read in (reading.read_text, lambda *args: list(reading.read_lines(*args))):
        with pytest.raises(DataError, match=r"x\.txt:2: byte 0xff at column 3 is not UTF-8"):
            read(path, "text")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": 1, "a": 2}', "key 'a' is there twice"),
        ("[" * 100_000, "nested too deeply"),
        ('"\\ud800"', "half of a surrogate pair"),
        ("9" * 5000, "Exceeds the limit"),
        ("{", "Expecting property name"),
    ],
)
def test_json_that_is_refused(text, problem):
    with pytest.raises(DataError, match=f"^here: .*{problem}"):
        reading.parse_json(text, "here", "a thing")


def test_json_that_is_read():
    assert reading.parse_json('{"a": "\\ud83d\\ude00"}', "here", "a thing") == {"a": "\U0001f600"}


@pytest.mark.parametrize(
    ("value", "convert", "found"),
    [("1.5", float, 1.5), ("7", int, 7), (3, float, 3.0), ("1_0", float, None),
     ("nan", float, None), (True, float, None), (2.5, int, None), (10**400, float, None),
     ("9" * 5000, int, None), ([], float, None)],
)  # fmt: skip
def test_numbers(value, convert, found):
    if found is None:
        with pytest.raises(DataError, match="^here: 'k' is .* number expected"):
            reading.parse_number("here", {"k": value}, "k", convert)
    else:
        assert reading.parse_number("here", {"k": value}, "k", convert) == found


def test_tables(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text('a,b\n1,"x\ny"\n\n2,z\n')
    rows = list(reading.read_csv(path, ("a",), "a table"))
    assert rows == [(f"{path}:3", {"a": "1", "b": "x\ny"}), (f"{path}:5", {"a": "2", "b": "z"})]
    for text, problem in (
        ("b\n1\n", "no 'a' in columns"),
        ("a,a\n", "there twice"),
        ("a,b\n1\n", "1 fields, 2"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=rf"x\.csv:\d: .*{problem}"):
            list(reading.read_csv(path, ("a",), "a table"))


def test_messages_stay_readable():
    error = DataError("begin " + "x" * 1_000_000 + " end")
    assert len(str(error)) < 10_000 and str(error).startswith("begin ") and str(error).endswith(" end")
    assert str(ConfigError("short")) == "short"
