"""Finished results on disk at once, so that a killed job goes on behind them and none fill the memory.

A journal is one line of JSON that says what its rows were made with, then one line per utterance.  Ids
and places in the file are all that is kept in memory; knows JSON, not what a row means.
"""

from __future__ import annotations

import fcntl
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Self

from espnet_latentasr.fileio import Busy, naming

FORMAT = {"journal": 1}  # another number for rows that older code could not have written


class Journal:
    """The rows of one job; use it as a context manager.

    Args:
        path: the file; it is made, or continued if its first line is ``identity``.
        identity: what all rows depend on.
        keys: what the row of each utterance depends on; a row with another key is not used.

    Raises:
        Busy: another process is writing this very file.
        WriteError: the disk refuses it.
    """

    def __init__(self, path: Path, identity: Mapping[str, Any], keys: Mapping[str, str]) -> None:
        self.path, self._keys = path, keys
        self._places: dict[str, int] = {}
        with naming(path), ExitStack() as stack:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Without a buffer, which would be written once more, and fail again, when the file is closed.
            self._out = stack.enter_context(open(path, "ab", buffering=0))
            self._lock()
            self._continue(json.dumps(FORMAT | dict(identity), ensure_ascii=False).encode() + b"\n")
            self._in = stack.enter_context(open(path, "rb"))
            self._files = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def __contains__(self, utt_id: str) -> bool:
        return utt_id in self._places

    def __len__(self) -> int:
        return len(self._places)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._out, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(
                f"{self.path}: another process is at work on this share; wait for it, or end it first"
            ) from None
        except OSError as error:
            logging.warning("%s: no locks there (%s): never start a job twice", self.path, error)

    def _continue(self, header: bytes) -> None:
        """Find the rows of an earlier run; what a kill cut off is taken away."""
        with open(self.path, "rb") as file:
            found = file.readline()
            if found == header:
                self._find(file, len(header))
                return
        if found:
            logging.warning("%s: of another model, rule or version; begun anew", self.path)
        self._out.truncate(0)
        self._append(header)

    def _find(self, file: BinaryIO, place: int) -> None:
        for line in file:
            if not line.endswith(b"\n"):
                self._out.truncate(place)
                return
            try:
                row = json.loads(line)
            except ValueError:
                logging.warning("%s: damaged at byte %d; that row is made again", self.path, place)
                row = {"utt_id": None, "key": None}
            if row["utt_id"] in self._keys and self._keys[row["utt_id"]] == row["key"]:
                self._places[row["utt_id"]] = place
            place += len(line)

    def _append(self, data: bytes) -> None:
        with naming(self.path):
            while data:
                data = data[self._out.write(data) :]

    def add(self, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
        """Append rows by utterance and hand them to the system; a later row replaces an earlier one."""
        place, lines = self._out.seek(0, 2), []
        places: dict[str, int] = {}
        for utt_id, content in rows:
            row = {"utt_id": utt_id, "key": self._keys[utt_id], "row": content}
            lines.append(json.dumps(row, ensure_ascii=False).encode() + b"\n")
            places[utt_id] = place
            place += len(lines[-1])
        self._append(b"".join(lines))
        self._places |= places

    def read(self, ids: Iterable[str]) -> Iterator[dict[str, Any]]:
        """Yield the rows of these utterances, one in memory at a time."""
        for utt_id in ids:
            self._in.seek(self._places[utt_id])
            yield json.loads(self._in.readline())["row"]

    def remove(self) -> None:
        """Delete the file: what it held is written elsewhere."""
        self.path.unlink()
