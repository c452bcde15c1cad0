"""Text normalisers by name: knows which function stands behind a name; knows no language.

A score means nothing without the normaliser that made it, so a `Normalizer` carries its name and
the version of its code, and a missing one is an error: another one would give another number.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
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

JOB, WORTH_JOBS = 250, 4000  # texts in a job; fewer than the latter are done before a process is up


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


def prepare(normalizer: Normalizer, texts: Iterable[str], run: Callable = map) -> Normalizer:
    """Normalise each distinct text once; return the same normaliser, which then looks them up.

    Args:
        normalizer: what `get_normalizer` returned.
        run: a `map` over jobs, for instance one over processes; it is used for many texts only.
    """
    distinct = list(dict.fromkeys(texts))
    jobs = [(normalizer.name, distinct[i : i + JOB]) for i in range(0, len(distinct), JOB)]
    run = run if len(distinct) >= WORTH_JOBS else map
    done = (text for job in run(_normalize_job, jobs) for text in job)
    known = dict(zip(distinct, done, strict=True))
    return replace(
        normalizer, function=lambda text: known[text] if text in known else normalizer(text)
    )


def _normalize_job(job: tuple[str, list[str]]) -> list[str]:
    name, texts = job
    normalizer = get_normalizer(name)
    return [normalizer(text) for text in texts]
