"""Languages: knows name, normaliser and unit of each, from ``languages.yaml``; normalises nothing."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType

import yaml

from espnet_latentasr.errors import DataError


@dataclass(frozen=True)
class Language:
    """One language: how it is called, normalised and scored.

    ``name`` is the English name; it is what Qwen3-ASR reads and writes if ``qwen`` is true.
    ``units`` are the error rates to report, the main one first; ``spaces`` tells whether blanks
    separate words.
    """

    code: str
    name: str
    qwen: bool
    normalizer: str
    units: tuple[str, ...]
    spaces: bool

    def unit(self, unit: str) -> str:
        """Return the unit to count in: ``cer`` ignores blanks where blanks separate no words."""
        return "cer_nospace" if unit == "cer" and not self.spaces else unit


@cache
def load_languages() -> Mapping[str, Language]:
    """Return every known language by code."""
    table = yaml.safe_load((files(__package__) / "languages.yaml").read_text(encoding="utf-8"))
    rows = {
        code: Language(code=code, **row | {"units": tuple(row["units"])})
        for code, row in table.items()
    }
    return MappingProxyType(rows)


def get_language(code_or_name: str) -> Language:
    """Look a language up by its code (``yue``) or its English name (``Cantonese``), in any case.

    Raises:
        DataError: unknown language; the message has the nearest known one.
    """
    wanted = code_or_name.strip().lower()
    known: dict[str, Language] = {}
    for language in load_languages().values():
        known[language.code.lower()] = known[language.name.lower()] = language
    if wanted in known:
        return known[wanted]
    near = difflib.get_close_matches(wanted, known, n=1)
    hint = f"did you mean '{known[near[0]].code}' ({known[near[0]].name})?" if near else ""
    raise DataError(
        f"unknown language '{code_or_name}'; {hint or 'known codes: ' + ' '.join(load_languages())}"
        " (a new one is one line of espnet_latentasr/text/languages.yaml)"
    )
