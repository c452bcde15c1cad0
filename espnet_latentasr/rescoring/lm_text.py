"""What a language model is given of a hypothesis: casing, final period, length norm; knows no model.

A model trained on punctuated, cased text scores bare lower-case words badly in ways that have nothing
to do with the words; these options say explicitly what is changed before scoring.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from espnet_latentasr.errors import ConfigError, DataError

CASINGS = {"keep": str, "lower": str.lower, "upper": str.upper, "capitalize": str.capitalize}
PERIODS = ("none", "scored", "context")
NORMS = ("sum", "mean", "per_word")
_FINAL = (".", "!", "?", "\u3002", "\uff01", "\uff1f")  # the last three: ideographic


@dataclass(frozen=True)
class TextOptions:
    """How a text is prepared.

    ``casing``: keep | lower | upper | capitalize (first letter upper, the rest lower).
    ``final_period``: none | scored (append "." where no sentence end is, and score it) | context
    (append it as context only: its own term is left out).
    """

    casing: str = "keep"
    final_period: str = "none"

    def __post_init__(self) -> None:
        check_choice("casing", self.casing, CASINGS)
        check_choice("final_period", self.final_period, PERIODS)

    def prepare(self, text: str) -> tuple[str, str]:
        """Return the text in the wanted casing, and what is to be appended to it: a period or nothing."""
        text = CASINGS[self.casing](text)
        ends = self.final_period == "none" or not text or text.endswith(_FINAL)
        return text, "" if ends else "."


def check_choice(name: str, value: str, choices: Sequence[str] | Mapping[str, object]) -> None:
    """Refuse an unknown option value, naming the known ones."""
    if value not in choices:
        raise ConfigError(f"{name}: '{value}' is none of {', '.join(choices)}")


def normalised(terms: Sequence[float], text: str, norm: str) -> float | None:
    """Reduce the log-probabilities of one text's tokens (natural logarithm).

    Args:
        norm: ``sum``, ``mean`` (per scored token) or ``per_word`` (per blank-separated word of ``text``).

    Returns:
        The score, or None when nothing was scored: a sum of no terms would beat every real one.
    """
    if not terms:
        return None
    total = float(sum(terms))
    if norm == "sum":
        return total
    return total / (len(terms) if norm == "mean" else max(len(text.split()), 1))


class Scorer(Protocol):
    """Gives texts a log-probability.

    ``identity``: all that a score depends on besides the text; JSON.
    ``tolerance``: how far two computations of one score may differ (batching, number type).
    """

    identity: Mapping[str, object]
    tolerance: float

    def unknown(self, text: str) -> tuple[int, int]:
        """Number of unknown tokens of a text, and of all."""
        ...

    def score(self, texts: Mapping[str, str]) -> dict[str, float | None]:
        """Score each text; the value is the utterance it comes from, for messages."""
        ...


def refuse_unknown(scorer: Scorer, texts: Mapping[str, str], limit: float) -> None:
    """Refuse texts that are mostly unknown to the model: their scores would be noise.

    Args:
        texts: text -> an utterance that has it.

    Raises:
        DataError: more than ``limit`` of all tokens are unknown.
    """
    counts = {text: scorer.unknown(text) for text in texts}
    unknown, total = (sum(column) for column in zip(*counts.values())) if counts else (0, 0)
    if total and unknown > limit * total:
        worst = max(counts, key=lambda text: counts[text][0])
        raise DataError(
            f"{unknown} of {total} tokens are unknown to the language model (at most {limit:.0%} "
            f"accepted), for example in utterance '{texts[worst]}': {worst!r}; is it a model for another "
            "casing (casing: lower | upper) or language?"
        )
