"""Error rates of a test set: knows texts keyed by utterance id; knows no file and no speaker.

Errors are pooled over the set and then divided by the pooled reference length; utterances never
have rates of their own that get averaged.  Empty hypotheses and empty references count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from espnet_latentasr import __version__
from espnet_latentasr.errors import DataError
from espnet_latentasr.text.edit_distance import COST_MODEL, Alignment, Counts, align
from espnet_latentasr.text.normalize import Normalizer
from espnet_latentasr.text.units import tokenize


@dataclass(frozen=True)
class ErrorRate:
    """A scored test set: the alignment of every utterance, and what can be counted from them.

    ``utterances`` is in C-locale order of the ids.
    """

    unit: str
    normalizer: str
    normalizer_version: str
    utterances: Mapping[str, Alignment]

    @cached_property
    def counts(self) -> Counts:
        """Pooled counts of the set."""
        return sum((a.counts for a in self.utterances.values()), start=Counts())

    @cached_property
    def sentence_errors(self) -> int:
        """Number of utterances with at least one error."""
        return sum(1 for a in self.utterances.values() if a.counts.errors)

    @property
    def rates(self) -> dict[str, float]:
        """Percentages under sclite's column names; NaN where there is nothing to divide by."""
        return percentages(self.counts, len(self.utterances), self.sentence_errors)

    def headline(self) -> str:
        """Return the result in one line, with the empty hypotheses that hide in a good rate."""
        c = self.counts
        empty = sum(not alignment.hypothesis for alignment in self.utterances.values())
        return (
            f"{self.unit} {self.rates['Err']:.2f} % [ {c.errors} / {c.reference_length}, "
            f"{c.insertions} ins, {c.deletions} del, {c.substitutions} sub ], "
            f"{len(self.utterances)} utterances, {empty} empty hypotheses"
        )

    def summary(self) -> dict:
        """Return what ``score.json`` holds: identity of the measure, counts and rates (percent).

        A rate that does not exist (no reference token in the whole set) is None.
        """
        counts = self.counts
        return {
            "unit": self.unit,
            "normalizer": self.normalizer,
            "normalizer_version": self.normalizer_version,
            "cost_model": COST_MODEL,
            "espnet_latentasr_version": __version__,
            "counts": {
                "sentences": len(self.utterances),
                "reference_length": counts.reference_length,
                "correct": counts.correct,
                "substitutions": counts.substitutions,
                "deletions": counts.deletions,
                "insertions": counts.insertions,
                "errors": counts.errors,
                "sentence_errors": self.sentence_errors,
            },
            "rates": {key: None if math.isnan(rate) else rate for key, rate in self.rates.items()},
        }


def percentages(counts: Counts, sentences: int, sentence_errors: int) -> dict[str, float]:
    """Return sclite's six percentages of pooled counts; NaN where there is nothing to divide by."""
    length = counts.reference_length
    return {
        "Corr": _percent(counts.correct, length),
        "Sub": _percent(counts.substitutions, length),
        "Del": _percent(counts.deletions, length),
        "Ins": _percent(counts.insertions, length),
        "Err": _percent(counts.errors, length),
        "S.Err": _percent(sentence_errors, sentences),
    }


def score(
    refs: Mapping[str, str], hyps: Mapping[str, str], unit: str, normalizer: Normalizer
) -> ErrorRate:
    """Normalise both sides alike, cut them into ``unit`` tokens and align each utterance.

    Raises:
        DataError: the two sides do not hold the same utterances, or hold none.
    """
    check_same_ids(refs, hyps)
    utterances = {
        utt: align(tokenize(normalizer(refs[utt]), unit), tokenize(normalizer(hyps[utt]), unit))
        for utt in sorted(refs, key=str.encode)
    }
    return ErrorRate(unit, normalizer.name, normalizer.version, utterances)


def _percent(part: int, whole: int) -> float:
    # Divide first, as sclite does: its tables round this very number.
    return part / whole * 100.0 if whole else float("nan")


def check_same_ids(refs: Mapping[str, str], hyps: Mapping[str, str]) -> None:
    """Refuse two sides that do not hold the same utterances, or hold none."""
    missing, extra = refs.keys() - hyps.keys(), hyps.keys() - refs.keys()
    if missing or extra:
        raise DataError(
            f"references ({len(refs)} utterances) and hypotheses ({len(hyps)}) must have the same "
            f"ids: {len(missing)} without hypothesis{_some(missing)}, {len(extra)} without "
            f"reference{_some(extra)}; decode the whole set, or score against the set decoded"
        )
    if not refs:
        raise DataError("no utterance to score; at least one reference and hypothesis expected")


def _some(ids: Iterable[str]) -> str:
    first = sorted(ids, key=str.encode)[:4]
    return f" ({', '.join(first[:3])}{', ...' if len(first) > 3 else ''})" if first else ""
