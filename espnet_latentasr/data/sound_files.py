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

ENTRY = re.compile(r"(.+\.ark):\d+")


def file_of(path: str | Path) -> str:
    """Return the file behind an entry of ``wav.scp``: ``x.ark`` of ``x.ark:1234``, else the path."""
    found = ENTRY.fullmatch(str(path))
    return found[1] if found else str(path)


class ArchiveEntry:
    """One clip of an archive, with the attributes and methods of `soundfile.SoundFile` that we use.

    Raises:
        OSError: an offset at which no clip begins, or an entry that is no audio.
    """

    format, subtype = "ARK", "ARK"

    def __init__(self, path: str) -> None:
        import kaldiio

        try:
            # Looked at first: kaldiio would also unpickle what an entry says is a pickle.
            with open(file_of(path), "rb") as file:
                offset = file.seek(int(path.rpartition(":")[2]))
                head = file.read(8)
                if not head.startswith((b"RIFF", b"AUDIO")):
                    raise ValueError("neither RIFF nor AUDIO")
                length = int.from_bytes(head[4:], "little")
                if head[:4] == b"RIFF" and length < PIPED and offset + 8 + length > file.seek(0, 2):
                    raise ValueError("cut off")
            found = kaldiio.load_mat(path)
            a, b = found
            rate, samples = (a, b) if isinstance(a, int) else (b, a)
            self.samplerate, samples = int(rate), np.asarray(samples)
        except Exception as error:  # kaldiio raises whatever its parsers do
            raise OSError(f"no audio begins there ({error!r}); is the .scp of another .ark?") from error
        if samples.dtype.kind == "i":
            samples = samples / np.float64(-int(np.iinfo(samples.dtype).min))
        self.samples = samples.astype(np.float32).reshape(len(samples), -1)
        self.frames, self.channels, self.position = *self.samples.shape, 0

    def seek(self, frame: int) -> None:
        """Go to a sample."""
        self.position = frame

    def read(self, frames: int, dtype: str = "float32", always_2d: bool = True) -> np.ndarray:
        """Return samples (S, C) from the present one on."""
        return self.samples[self.position : self.position + frames]


@contextmanager
def open_sound(path: str | Path) -> Iterator[soundfile.SoundFile | ArchiveEntry]:
    """Open a whole sound file or an entry of a Kaldi archive, whatever its name ends in.

    Raises:
        OSError: it cannot be read as audio; the message says what it is, if its bytes tell.
    """
    if ENTRY.fullmatch(str(path)):
        yield ArchiveEntry(str(path))
        return
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
        yield file
