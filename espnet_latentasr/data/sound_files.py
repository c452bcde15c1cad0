"""Opening audio: sound files whatever their name ends in, and entries of Kaldi archives.

An entry ``FILE.ark:OFFSET`` is what ``wav.scp`` holds for ESPnet's ``wav.ark`` and ``flac.ark``.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import soundfile

from espnet_latentasr.data.containers import PIPED, cut_off, what_is_it

ENTRY = re.compile(r"(.+\.ark):\d{1,18}")
# Hz.  Outside of this a header is damaged: brought to 16 kHz, a clip at 1 Hz would fill the memory.
RATES = (1000, 768_000)
# Numbers that are read at once: of compressed audio a header may announce hours that are not there.
BLOCK = 1 << 22


def file_of(path: str | Path) -> str:
    """Return the file behind an entry of ``wav.scp``: ``x.ark`` of ``x.ark:1234``, else the path."""
    found = ENTRY.fullmatch(str(path))
    return found[1] if found else str(path)


def read_frames(
    file: soundfile.SoundFile | ArchiveEntry, count: int, dtype: str = "float32"
) -> np.ndarray:
    """Read ``count`` samples (S, C), or fewer where the file ends: no more memory than it fills."""
    size = max(1, BLOCK // file.channels)
    blocks = []
    while not blocks or count > 0 and len(blocks[-1]) == size:
        blocks.append(file.read(min(count, size), dtype=dtype, always_2d=True))
        count -= len(blocks[-1])
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)


def _check_rate(rate: int) -> None:
    if not RATES[0] <= rate <= RATES[1]:
        raise OSError(f"sample rate {rate} Hz, {RATES[0]} to {RATES[1]} expected: its header is damaged")


class ArchiveEntry:
    """One clip of an archive, with the attributes and methods of `soundfile.SoundFile` that we use.

    Raises:
        OSError: an offset at which no clip begins, or an entry that is no audio.
    """

    format, subtype = "ARK", "ARK"

    def __init__(self, path: str) -> None:
        from espnet_latentasr.data.ark import read_entry

        try:
            with open(file_of(path), "rb") as file:
                offset = file.seek(int(path.rpartition(":")[2]))
                head = file.read(8)
                if not head.startswith((b"RIFF", b"AUDIO")):
                    raise ValueError("neither RIFF nor AUDIO")
                length = int.from_bytes(head[4:], "little")
                if head[:4] == b"RIFF" and length < PIPED and offset + 8 + length > file.seek(0, 2):
                    raise ValueError("cut off")
                file.seek(offset)
                a, b = read_entry(file, path, lenient=True)
            rate, samples = (a, b) if isinstance(a, int) else (b, a)
            self.samplerate, samples = int(rate), np.asarray(samples)
        except (OSError, ValueError, TypeError, OverflowError) as error:
            raise OSError(f"no audio begins there ({error!r}); is the .scp of another .ark?") from error
        _check_rate(self.samplerate)
        if samples.dtype.kind == "i":
            samples = samples / np.float64(-int(np.iinfo(samples.dtype).min))
        self.samples = samples.astype(np.float32)
        if self.samples.ndim == 1:
            self.samples = self.samples[:, None]
        self.frames, self.channels, self.position = *self.samples.shape, 0

    def seek(self, frame: int) -> None:
        """Go to a sample."""
        self.position = frame

    def read(self, frames: int, dtype: str = "float32", always_2d: bool = True) -> np.ndarray:
        """Return samples (S, C) from the present one on, and go behind them."""
        found = self.samples[self.position : self.position + frames]
        self.position += len(found)
        return found


@contextmanager
def open_sound(path: str | Path) -> Iterator[soundfile.SoundFile | ArchiveEntry]:
    """Open a whole sound file or an entry of a Kaldi archive, whatever its name ends in.

    Raises:
        OSError: it cannot be read as audio; the message says what it is, if its bytes tell.
    """
    if ENTRY.fullmatch(str(path)):
        yield ArchiveEntry(str(path))
        return
    if "\0" in str(path):
        raise OSError("a zero byte in its name")
    if lost := cut_off(path):
        raise OSError(f"cut off, {lost}")
    # By its name soundfile would take x.raw for samples without a header.
    raw = Path(path).suffix.lower() == ".raw"
    try:
        file = soundfile.SoundFile(io.BytesIO(Path(path).read_bytes()) if raw else path)
    except soundfile.SoundFileError as error:
        what = what_is_it(path)
        raise OSError(f"{error}{' It is ' if what else ''}{what}") from error
    with file:
        _check_rate(file.samplerate)
        yield file
