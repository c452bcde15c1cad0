"""Units of an error rate: knows how a text falls into tokens; knows no alignment, no normaliser."""

from __future__ import annotations

import re
from collections.abc import Callable

from espnet_latentasr.errors import DataError

SPACE = "<space>"  # how ESPnet's character tokenizer writes a blank

# Scripts written without blanks that mix with Latin words in code-switched speech: Han with its
# extensions and iteration marks, kana in full and half width.  Hangul is left in words.
_CJK = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U000323af"
)
_MIXED = re.compile(f"[{_CJK}]|[^{_CJK}\\s]+")


def _words(text: str) -> list[str]:
    return text.split()


def _characters(text: str) -> list[str]:
    return [SPACE if c == " " else c for c in " ".join(text.split())]


def _characters_nospace(text: str) -> list[str]:
    return list("".join(text.split()))


def _mixed(text: str) -> list[str]:
    return _MIXED.findall(text)


UNITS: dict[str, Callable[[str], list[str]]] = {
    "wer": _words,
    "cer": _characters,
    "cer_nospace": _characters_nospace,
    "mer": _mixed,
}


def tokenize(text: str, unit: str) -> list[str]:
    """Split ``text`` into the tokens that ``unit`` counts.

    ``wer``: words.  ``cer``: characters (Unicode code points) with ``<space>`` for a run of blanks,
    ESPnet's convention.  ``cer_nospace``: characters, blanks ignored, for zh, yue, ja, th.
    ``mer`` (mixed error rate): each CJK character by itself, everything else by word.

    >>> tokenize("我要 book 房间", "mer")
    ['我', '要', 'book', '房', '间']
    """
    if unit not in UNITS:
        raise DataError(f"unknown unit '{unit}'; known: {', '.join(UNITS)}")
    return UNITS[unit](text)
