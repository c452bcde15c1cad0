"""Text normalisers by name: knows which function stands behind a name; knows no language.

A score means nothing without the normaliser that made it, so a `Normalizer` carries its name and
the version of its code, and a missing one is an error: another one would give another number.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version

from espnet_latentasr.errors import DataError

PACKAGE = "whisper-normalizer"

# name -> (module, class, keyword arguments); the module is imported when the name is first used.
_WHISPER = {
    "whisper_en": ("whisper_normalizer.english", "EnglishTextNormalizer", {}),
    "whisper_basic": ("whisper_normalizer.basic", "BasicTextNormalizer", {}),
    # whisper_basic replaces every combining mark by a blank, which takes the vowels out of Hindi
    # and Thai words and cuts the words apart; this one keeps the marks.
    "whisper_basic_marks": (
        "whisper_normalizer.basic",
        "BasicTextNormalizer",
        {"preserve_marks": True},
    ),
}
NORMALIZERS = (*_WHISPER, "none")


@dataclass(frozen=True)
class Normalizer:
    """A text normaliser with its identity; calling it also strips blanks at both ends."""

    name: str
    version: str
    function: Callable[[str], str] = field(repr=False, compare=False)

    def __call__(self, text: str) -> str:
        return self.function(text).strip()


@cache
def get_normalizer(name: str) -> Normalizer:
    """Return the normaliser called ``name``, one of `NORMALIZERS`.

    >>> get_normalizer("whisper_basic")("Überraschung, l'été!")
    'überraschung l été'

    Raises:
        DataError: unknown name, or its package is not installed.
    """
    if name == "none":
        return Normalizer("none", "identity", str)
    if name not in _WHISPER:
        near = difflib.get_close_matches(name, NORMALIZERS, n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise DataError(f"unknown normaliser '{name}'; {hint}known: {', '.join(NORMALIZERS)}")
    module, cls, options = _WHISPER[name]
    try:
        function = getattr(importlib.import_module(module), cls)(**options)
    except ImportError as error:
        raise DataError(
            f"normaliser '{name}' needs the package {PACKAGE} ({error}); pip install {PACKAGE}"
        ) from error
    return Normalizer(name, f"{PACKAGE} {version(PACKAGE)}", function)
