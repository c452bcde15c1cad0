"""Examples by a rule that is fixed before looking: best corrections and worst regressions alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RULE = (
    "Chosen by rule, as many regressions as corrections: utterances by errors saved, then by errors "
    "saved per reference token, then by id. Best cases are no evidence; they show what kind of change "
    "is made."
)


@dataclass(frozen=True)
class Example:
    """One utterance whose errors changed; ``saved`` is negative for a regression."""

    utt: str
    reference: str
    frozen: str
    latent: str
    saved: int
    length: int
    steps: int


def corrections(
    utts: Sequence[str],
    texts: tuple[Sequence[str], Sequence[str], Sequence[str]],
    errors: tuple[np.ndarray, np.ndarray],
    lengths: np.ndarray,
    steps: np.ndarray,
    count: int = 5,
) -> tuple[list[Example], list[Example]]:
    """The ``count`` best corrections and worst regressions, fewer where there are fewer.

    Args:
        utts: U ids.  texts: references, frozen and latent hypotheses, normalised.  errors: frozen and
            latent (U,).  lengths, steps: (U,).
    """
    saved = np.asarray(errors[0]) - np.asarray(errors[1])
    share = saved / np.maximum(lengths, 1)
    ids = np.array([utt.encode() for utt in utts], dtype=object)

    def pick(sign: int) -> list[Example]:
        rows = [row for row in range(len(utts)) if sign * saved[row] > 0]
        rows.sort(key=lambda row: (-sign * saved[row], -sign * share[row], ids[row]))
        return [
            Example(
                utts[row],
                *(side[row] for side in texts),
                int(saved[row]),
                int(lengths[row]),
                int(steps[row]),
            )
            for row in rows[:count]
        ]

    return pick(1), pick(-1)
