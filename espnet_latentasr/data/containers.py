"""Audio containers by their bytes: knows what a file really is and whether its end is missing.

libsndfile goes by the content, not by the name, but reads a cut WAV, AIFF, AU, CAF, SPHERE or Ogg file
as a shorter clip without a word.  FLAC files, and MP3 files with a length in their header, are found
by decoding; of an MP3 without one nobody can tell.
"""

from __future__ import annotations

import os
from pathlib import Path

OGG_PAGE = 65307  # bytes at most
PIPED = 0x7FFF0000  # a WAV written to a pipe has a placeholder from here on, which says nothing
W64 = b"riff\x2e\x91\xcf\x11"
CONVERT = "ffmpeg -i FILE -ar 16000 -ac 1 NEW.wav makes a WAV file of it"

# First bytes (from an offset) of what libsndfile does not read, and what they are.
STRANGERS = (
    (4, b"ftyp", f"MP4 or M4A (AAC), which is not read; {CONVERT}"),
    (0, b"\x1aE\xdf\xa3", f"WebM or Matroska, which is not read; {CONVERT}"),
    (0, b"0&\xb2u", f"Windows Media (WMA), which is not read; {CONVERT}"),
    (0, b"#!AMR", f"AMR, which is not read; {CONVERT}"),
    (0, b"FLV", f"Flash video, which is not read; {CONVERT}"),
    (0, b"\xff\xf1", f"AAC (ADTS), which is not read; {CONVERT}"),
    (0, b"\xff\xf9", f"AAC (ADTS), which is not read; {CONVERT}"),
    (0, b"version https://git-lfs", "a Git LFS pointer, not the audio; run git lfs pull"),
    (0, b"<!DOCTYPE", "a web page, so its download failed; download it again"),
    (0, b"<html", "a web page, so its download failed; download it again"),
    (0, b"\x1f\x8b", "gzip-compressed; unpack it first"),
    (0, b"PK\x03\x04", "a ZIP archive; unpack it first"),
)


def what_is_it(path: str | Path) -> str:
    """Say what a file is that cannot be read as audio, and what to do; "" if its bytes do not tell."""
    with open(path, "rb") as file:
        head = file.read(64)
    if not head:
        return "0 bytes long"
    if b"sample_coding" in _sphere(path) and b"shorten" in _sphere(path):
        return f"SPHERE with shorten compression, which is not read; {CONVERT}"
    known = (what for at, magic, what in STRANGERS if head[at : at + len(magic)] == magic)
    return next(known, "")


def cut_off(path: str | Path) -> str:
    """Say what a file lacks at its end, "" if nothing is known to be missing."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        head = file.read(64)
        if head[:4] == b"OggS":
            file.seek(max(0, size - OGG_PAGE))
            return _ogg_end(file.read())
    lost = max(0, _announced(head, path) - size)
    return f"{lost} bytes fewer than its header says" if lost else ""


def _announced(head: bytes, path: str | Path) -> int:
    """Bytes a file should have by its header; 0 if that does not say."""
    if head[:4] == b"RIFF":
        announced = int.from_bytes(head[4:8], "little")
        return announced + 8 if announced < PIPED else 0
    if head[:4] == b"RF64" and head[12:16] == b"ds64":
        return int.from_bytes(head[20:28], "little") + 8
    if head[: len(W64)] == W64:
        return int.from_bytes(head[16:24], "little")
    if head[:4] == b"FORM":
        return int.from_bytes(head[4:8], "big") + 8
    if head[:4] == b"caff":
        return _announced_caf(path)
    if head[:4] in (b".snd", b"dns."):
        order = "big" if head[:4] == b".snd" else "little"
        start, length = (int.from_bytes(head[at : at + 4], order) for at in (4, 8))
        return start + length if length != 0xFFFFFFFF else 0
    return _announced_sphere(_sphere(path))


def _announced_caf(path: str | Path) -> int:
    """Follow the chunks of a CAF file to the end of the last one."""
    at, size = 8, os.path.getsize(path)
    with open(path, "rb") as file:
        while at + 12 <= size:
            file.seek(at)
            length = int.from_bytes(file.read(12)[4:], "big", signed=True)
            if length < 0:  # data up to the end of the file
                return 0
            at += 12 + length
    return at


def _sphere(path: str | Path) -> bytes:
    """Header of a NIST SPHERE file, b"" of any other."""
    with open(path, "rb") as file:
        head = file.read(16)
        size = head[8:15].strip()
        if head[:8] != b"NIST_1A\n" or not size.isdigit():
            return b""
        return head + file.read(max(0, int(size) - 16))


def _announced_sphere(header: bytes) -> int:
    fields = {row.split()[0]: row.split()[-1] for row in header.split(b"\n") if len(row.split()) == 3}
    try:
        numbers = (b"sample_count", b"channel_count", b"sample_n_bytes")
        count, channels, width = (int(fields[name]) for name in numbers)
    except (KeyError, ValueError):
        return 0
    coded = fields.get(b"sample_coding", b"pcm")
    return 0 if b"shorten" in coded else len(header) + count * channels * width


def _ogg_end(tail: bytes) -> str:
    """Check that the last page in ``tail`` is whole and marked as the stream's end."""
    at = tail.rfind(b"OggS")
    page = tail[at:] if at >= 0 else b""
    if len(page) < 27 or len(page) < 27 + page[26]:
        return "its last Ogg page is not whole"
    if len(page) < 27 + page[26] + sum(page[27 : 27 + page[26]]):
        return "its last Ogg page is not whole"
    return "" if page[5] & 4 else "its last Ogg page is not marked as the end of the stream"
