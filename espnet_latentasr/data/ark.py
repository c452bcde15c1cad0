"""Kaldi archives from elsewhere: matrices and audio, never code; knows no utterance.

The library that reads them runs entries that end in ``|`` in a shell, and unpickles what an archive
marks as a pickle: both are code from a data file, so both are refused before the library sees them.
It also believes what an entry's header says of its size: more than the file holds gets memory for it
first and then fewer numbers, a negative one the rest of the file.  Both are refused here.
"""

from __future__ import annotations

import io
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import kaldiio
import kaldiio.matio
import numpy as np
import soundfile

from espnet_latentasr.errors import DataError

PICKLE, AUDIO = b"PKL", b"AUDIO"
INTEGERS = b"\0B\4"  # how a vector of int32 begins; each of its numbers takes 5 bytes
FLAG = 5  # bytes by which the library tells the kinds of entries
MAX_ID = 4096
_PLACE = re.compile(r"(?P<path>.+?)(?::(?P<offset>\d{1,18}))?(?P<range>\[[\d:,]*\])?")


def refuse_command(place: str, where: str = "") -> None:
    """Refuse an entry of a table that is a command.

    Raises:
        DataError: naming it; ``where`` begins the message.
    """
    if "|" in place:
        raise DataError(f"{where}'{place}' is a command; commands are never run: give a file")


class _Bounded:
    """An open archive that gives what is asked for or refuses; ``lenient`` gives what is left instead."""

    def __init__(self, file: BinaryIO, lenient: bool = False) -> None:
        self.file, self.lenient = file, lenient
        self.size = os.fstat(file.fileno()).st_size
        self.before = 0

    def left(self) -> int:
        return max(0, self.size - self.file.tell())

    def read(self, size: int | None = None) -> bytes:
        self.before, left = self.file.tell(), self.left()
        if size is None or (self.lenient and size > left):
            return self.file.read(left)
        # Single bytes are read up to the file's end, and a flag may be all that there is.
        if size < 0 or (size > left and size not in (1, FLAG)):
            raise ValueError(f"its header announces {size} bytes, {left} are there: damaged or cut off")
        return self.file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        # The library goes back by a whole flag, also where there was less.
        if (offset, whence) == (-FLAG, 1):
            return self.file.seek(self.before)
        return self.file.seek(offset, whence)

    def tell(self) -> int:
        return self.file.tell()

    def seekable(self) -> bool:
        return True


def read_entry(file: BinaryIO, where: str, lenient: bool = False) -> Any:
    """Read the entry that begins at an open archive's position.

    Args:
        lenient: take what is there of an entry that announces more, as audio written to a pipe does.

    Returns:
        A matrix; of an entry that is audio its rate and samples, as the library gives them.

    Raises:
        DataError: an entry that holds code, is damaged or cut off, or is none.
    """
    start = file.tell()
    head = file.read(len(INTEGERS) + 4)
    file.seek(start)
    if head.startswith(PICKLE):
        raise DataError(f"{where}: holds a pickle, which is code; it is not loaded: write it again")
    bounded = _Bounded(file, lenient)
    try:
        if head.startswith(INTEGERS) and len(head) == len(INTEGERS) + 4:
            count = struct.unpack("<i", head[len(INTEGERS) :])[0]
            if not 0 <= 5 * count <= bounded.left():
                raise ValueError(f"{count} numbers are announced, {bounded.left()} bytes are there")
        if head.startswith(AUDIO):
            bounded.read(len(AUDIO))
            return _audio(bounded.read(int.from_bytes(bounded.read(bounded.read(1)[0]), "little")))
        return kaldiio.matio.read_kaldi(bounded)
    except Exception as error:  # the library raises whatever its parsers do
        raise DataError(
            f"{where}: no matrix or audio can be read at byte {start} ({type(error).__name__}: {error}); "
            "is the .scp of another .ark, or the archive cut off? write it again"
        ) from error


def _audio(data: bytes) -> tuple[int, np.ndarray]:
    """Rate and samples (S,) or (S, C) of a sound file, as the library gives them."""
    from espnet_latentasr.data.sound_files import read_frames

    with soundfile.SoundFile(io.BytesIO(data)) as file:
        samples = read_frames(file, file.frames, "float64")
        return file.samplerate, samples[:, 0] if file.channels == 1 else samples


def load_mat(place: str) -> np.ndarray | tuple[int, np.ndarray]:
    """Read one entry from ``file``, ``file:offset`` or ``file:offset[range]``.

    Returns:
        See `read_entry`.

    Raises:
        DataError: a command, or see `read_entry`.
        OSError: no such file.
    """
    refuse_command(place)
    found = _PLACE.fullmatch(place)
    if found is None or "\0" in place:
        raise DataError(f"{place!r:.500}: FILE, FILE:OFFSET or FILE:OFFSET[RANGE] expected")
    with open(found["path"], "rb") as file:
        file.seek(int(found["offset"] or 0))
        entry = read_entry(file, place)
    return entry if found["range"] is None else _part(entry, found["range"][1:-1], place)


def _part(entry: Any, ranges: str, place: str) -> Any:
    """Rows and columns of an entry; Kaldi's ranges hold their last one."""
    try:
        slices = kaldiio.matio._convert_to_slice(ranges)
        return (entry[0], entry[1][slices]) if isinstance(entry, tuple) else entry[slices]
    except (ValueError, RuntimeError, IndexError) as error:
        raise DataError(f"{place}: range [{ranges}]: {error}; [FIRST:LAST,..] expected") from None


def load_ark(path: str | Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yield (id, matrix) of an archive as they come.

    Raises:
        DataError: no such file, an entry without an id, or see `read_entry`.
    """
    if not os.path.isfile(path):
        raise DataError(f"{path}: no such file; an archive of matrices expected")
    with open(path, "rb") as file:
        while (utt_id := _next_id(file, path)) is not None:
            yield utt_id, read_entry(file, f"{path}: '{utt_id}'")


def _next_id(file: BinaryIO, path: str | Path) -> str | None:
    """The id up to the next blank, None at the end of the file."""
    start, raw = file.tell(), b""
    while (byte := file.read(1)) and byte != b" ":
        raw += byte
        if len(raw) > MAX_ID:
            break
    if not raw and not byte:
        return None
    try:
        if byte != b" " or not raw:
            raise ValueError("a blank behind an id expected")
        return raw.decode("utf-8")
    except ValueError as error:
        raise DataError(
            f"{path}: no id of an entry at byte {start}: {raw[:40]!r} ({error}); the archive is damaged "
            "or cut off: write it again"
        ) from None
