"""Kaldi archives from elsewhere: matrices and audio, never code; knows no utterance.

The library that reads them runs entries that end in ``|`` in a shell, and unpickles what an archive
marks as a pickle: both are code from a data file, so both are refused before the library sees them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import kaldiio
import kaldiio.matio
import numpy as np

from espnet_latentasr.errors import DataError

PICKLE = b"PKL"
_PLACE = re.compile(r"(?P<path>.+?)(?::(?P<offset>\d+))?(?:\[[\d:,]*\])?")


def refuse_command(place: str, where: str = "") -> None:
    """Refuse an entry of a table that is a command.

    Raises:
        DataError: naming it; ``where`` begins the message.
    """
    if "|" in place:
        raise DataError(f"{where}'{place}' is a command; commands are never run: give a file")


def load_mat(place: str) -> np.ndarray | tuple[int, np.ndarray]:
    """Read one entry from ``file``, ``file:offset`` or ``file:offset[range]``.

    Returns:
        A matrix; of an entry that is audio its rate and samples, as the library gives them.

    Raises:
        DataError: a command, or an entry that holds code.
        OSError, ValueError: no such file, or nothing that can be read there.
    """
    refuse_command(place)
    found = _PLACE.fullmatch(place)
    with open(found["path"], "rb") as file:
        file.seek(int(found["offset"] or 0))
        _refuse_pickle(file.read(len(PICKLE)), place)
    return kaldiio.load_mat(place)


def load_ark(path: str | Path) -> Iterator[tuple[str, np.ndarray]]:
    """Yield (id, matrix) of an archive as they come.

    Raises:
        DataError: no such file, or an entry that holds code.
    """
    if not Path(path).is_file():
        raise DataError(f"{path}: no such file; an archive of matrices expected")
    with open(path, "rb") as file:
        while (utt_id := kaldiio.matio.read_token(file)) is not None:
            _refuse_pickle(file.read(len(PICKLE)), f"{path}: '{utt_id}'")
            file.seek(-len(PICKLE), 1)
            yield utt_id, kaldiio.matio.read_kaldi(file)


def _refuse_pickle(head: bytes, where: str) -> None:
    if head == PICKLE:
        raise DataError(f"{where}: holds a pickle, which is code; it is not loaded: write it again")
