"""Files that others wrote: text, JSON and CSV with errors that name file and line; knows no content.

What a file holds is never trusted: a line has a limit, text must be UTF-8, JSON may neither be nested
without end nor give a key twice, and nothing that a library raises for bad input gets out as it is.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from espnet_latentasr.errors import DataError

# Bytes of a line.  The longest that we write (a thousand candidates with tokens) have under 2 MB.
MAX_LINE = 1 << 26
BOM = b"\xef\xbb\xbf"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def decode_line(raw: bytes, where: str, raises: type[ValueError] = DataError) -> str:
    """Return one line as text.

    Raises:
        ``raises``: bytes that are not UTF-8; says which and at which column.
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise raises(
            f"{where}: byte {raw[error.start]:#04x} at column {error.start + 1} is not UTF-8; convert "
            "the file, for instance with iconv -t UTF-8, or get it again"
        ) from None


def read_text(path: str | Path, what: str, raises: type[ValueError] = DataError) -> str:
    """Return a whole file of text without a byte-order mark; line ends stay as they are.

    Args:
        what: the file should be, for the message.

    Raises:
        ``raises``: it cannot be read, or is not UTF-8; names file and line.
    """
    try:
        data = Path(path).read_bytes().removeprefix(BOM)
    except OSError as error:
        raise raises(f"{path}: cannot be read ({error.strerror or error}); {what} expected") from None
    except ValueError as error:  # a path that another file names may hold anything
        raise raises(f"{str(path)!r}: no path ({error}); {what} expected") from None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        start = data.rfind(b"\n", 0, error.start) + 1
        line = data.count(b"\n", 0, start) + 1
        decode_line(data[start:].partition(b"\n")[0], f"{path}:{line}", raises)
        raise


def read_lines(path: str | Path, what: str) -> Iterator[tuple[int, str]]:
    """Yield (number, line without its line break) of a text file, one at a time; ``.gz`` is unpacked.

    Raises:
        DataError: it cannot be read or unpacked, is not UTF-8, or has a line over `MAX_LINE`.
    """
    number = 0
    try:
        with (gzip.open if str(path).endswith(".gz") else open)(path, "rb") as file:
            while raw := file.readline(MAX_LINE + 1):
                number += 1
                if len(raw) > MAX_LINE:
                    raise DataError(
                        f"{path}:{number}: a line of over {MAX_LINE} bytes; {what} expected, is it that?"
                    )
                raw = raw.removeprefix(BOM) if number == 1 else raw
                yield number, decode_line(raw, f"{path}:{number}").rstrip("\r\n")
    except (OSError, EOFError, zlib.error) as error:
        where = f"{path}:{number + 1}" if number else f"{path}"
        raise DataError(
            f"{where}: cannot be read ({error}); {what} expected, is the file cut off?"
        ) from None


def parse_json(
    text: str, where: str, what: str, raises: type[ValueError] = DataError, halves: bool = False
) -> Any:
    """Return the value of a JSON text.

    Args:
        halves: let halves of surrogate pairs pass, for callers that can say whose text has them.

    Raises:
        ``raises``: no JSON, nested without end, a key given twice, or text that no file can hold.
    """
    try:
        value = json.loads(text, object_pairs_hook=_unique_keys)
        if not halves and _SURROGATE.search(text):  # half a pair, that is: a whole one is a character
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        return value
    except RecursionError:
        problem = "nested too deeply"
    except UnicodeEncodeError:
        problem = "half of a surrogate pair, which is no character"
    except ValueError as error:
        problem = str(error)
    raise raises(f"{where}: {problem}; {what} expected, is the file cut off?")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice[:80]!r} is there twice")
    return found


def read_json(
    path: str | Path, what: str, kind: type = dict, raises: type[ValueError] = DataError
) -> Any:
    """Return what a JSON file holds, which must be an object, or another ``kind``.

    Raises:
        ``raises``: see `read_text` and `parse_json`; or a value of another kind.
    """
    found = parse_json(read_text(path, what, raises), f"{path}", what, raises)
    if not isinstance(found, kind):
        raise raises(f"{path}: {type(found).__name__} found; {what} expected")
    return found


def read_csv(
    path: str | Path, columns: Sequence[str], what: str, **style: Any
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (``file:line``, row) of a table with a header.

    Args:
        columns: that there must be at least; others are kept.
        style: as `csv.reader` takes it.

    Raises:
        DataError: see `read_text`; no such columns, one twice, or a row of another length.
    """
    rows = csv.reader(io.StringIO(read_text(path, what), newline=""), strict=True, **style)
    where = f"{path}:1"
    try:
        header = next(rows, [])
        if missing := [name for name in columns if name not in header]:
            raise DataError(
                f"{where}: no '{missing[0]}' in columns {', '.join(header)[:500]!r}; {what} expected"
            )
        if len(set(header)) != len(header):
            raise DataError(f"{where}: a column is there twice in {header}; {what} expected")
        for cells in rows:
            where = f"{path}:{rows.line_num}"
            if not cells:
                continue
            if len(cells) != len(header):
                raise DataError(
                    f"{where}: {len(cells)} fields, {len(header)} expected ({', '.join(header)}); the "
                    "file may be cut off: write it again"
                )
            yield where, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise DataError(f"{path}:{rows.line_num}: {error}; {what} expected") from None


def parse_number(
    where: str, row: Any, key: str, convert: Callable[[Any], Any] = float, finite: bool = True
) -> Any:
    """Return ``row[key]`` as a number.

    Args:
        convert: ``float`` or ``int``.
        finite: refuse NaN and infinity.

    Raises:
        DataError: it is not there or none; the message has the place, the key and the value.
    """
    try:
        value = row[key]
        # Python's own notation is none of a file's: 1_0 is ten.
        odd = isinstance(value, str) and "_" in value
        if odd or isinstance(value, bool) or (convert is int and isinstance(value, float)):
            raise ValueError("no whole number" if convert is int else "no number")
        found = convert(value)
        if finite and not math.isfinite(found):
            raise ValueError("not finite")
        return found
    except (KeyError, IndexError):
        raise DataError(f"{where}: '{key}' is not there; a number expected") from None
    except (TypeError, ValueError, OverflowError) as error:
        what = "a whole number" if convert is int else "a number"
        raise DataError(f"{where}: '{key}' is {row[key]!r:.200}, {what} expected ({error})") from None
