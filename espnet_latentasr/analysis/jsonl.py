"""JSON Lines with errors that name file and line; knows no field's meaning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from espnet_latentasr.errors import DataError
from espnet_latentasr.reading import parse_json, read_lines


def read_jsonl(path: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (``file:line: utterance 'id'``, row) of a file whose rows have ``utt_id``.

    Raises:
        DataError: no such file, a row that is not an object with ``utt_id``, or an id seen before.
    """
    path, seen = Path(path), set()
    if not path.is_file():
        raise DataError(f"{path}: no such file; decode this set first (stage 12)")
    what = "a JSON object with 'utt_id' in every line"
    for number, line in read_lines(path, what):
        row = parse_json(line, f"{path}:{number}: not a JSON object", what)
        utt = row.get("utt_id") if isinstance(row, dict) else None
        if not isinstance(utt, str):
            raise DataError(
                f"{path}:{number}: not a JSON object with 'utt_id'; the file may be cut off: decode this "
                "set again (stage 12)"
            )
        where = f"{path}:{number}: utterance '{utt}'"
        if utt in seen:
            raise DataError(f"{where}: a second row of this id; merge the shares again (stage 12)")
        seen.add(utt)
        yield where, row
