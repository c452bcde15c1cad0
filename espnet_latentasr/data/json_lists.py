"""Long lists in JSON files, read piece by piece: knows JSON, nothing of what the elements mean."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHUNK = 1 << 20  # characters read at once


def read_array(path: Path, key: str) -> Iterator[Any]:
    """Yield the elements of a list of a JSON object, one at a time: ``GigaSpeech.json`` has gigabytes.

    Raises:
        KeyError: no such list.  JSONDecodeError: a file that is cut off, or no JSON.
    """
    decoder, start = json.JSONDecoder(), re.compile(rf'"{key}"\s*:\s*\[')
    with open(path, encoding="utf-8") as file:
        text = file.read(CHUNK)
        while not (found := start.search(text)):
            if not (block := file.read(CHUNK)):
                raise KeyError(key)
            text += block
        place = found.end()
        while True:
            place = re.compile(r"[\s,]*").match(text, place).end()
            if text.startswith("]", place):
                return
            try:
                element, place = decoder.raw_decode(text, place)
            except json.JSONDecodeError:
                # Twice as much each time, so that a long element is not begun again and again.
                if not (block := file.read(max(CHUNK, len(text) - place))):
                    raise
                text, place = text[place:] + block, 0
                continue
            yield element
