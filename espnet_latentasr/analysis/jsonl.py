"""JSON Lines with errors that name file and line; knows no field's meaning."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from espnet_latentasr.errors import DataError


def read_jsonl(path: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (``file:line: utterance 'id'``, row) of a file whose rows have ``utt_id``.

    Raises:
        DataError: no such file, a row that is not an object with ``utt_id``, or an id seen before.
    """
    path, seen = Path(path), set()
    if not path.is_file():
        raise DataError(f"{path}: no such file; decode this set first (stage 12)")
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
                utt = row["utt_id"]
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(
                    f"{path}:{number}: not a JSON object with 'utt_id' ({error!r}); the file may be cut "
                    "off: decode this set again (stage 12)"
                ) from error
            where = f"{path}:{number}: utterance '{utt}'"
            if utt in seen:
                raise DataError(f"{where}: a second row of this id; merge the shares again (stage 12)")
            seen.add(utt)
            yield where, row
