"""Matched-pairs sentence-segment word error test; knows alignments as strings of operations only.

The test of Gillick and Cox (1989) in the form of NIST's ``sc_stats -t mapsswe``: errors come in
bursts, so words are not independent, but segments of speech between stretches that both systems
got right nearly are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

BUFFER_WORDS = 2


@dataclass(frozen=True)
class MatchedPairs:
    """Result of the test; ``mean`` and ``sd`` are of system minus baseline errors per segment.

    ``z`` = mean / (sd / sqrt(segments)) and its two-sided normal ``p``.  Where no segment differs,
    z is 0 and p is 1; where all differ by the same amount, or there is one segment only, there is
    no spread to test against and both are NaN.
    """

    segments: int
    mean: float
    sd: float
    z: float
    p: float


def mapsswe(
    baseline: Sequence[str], system: Sequence[str], buffer_words: int = BUFFER_WORDS
) -> MatchedPairs:
    """Test whether two systems make equally many errors per segment.

    Args:
        baseline, system: alignment of each utterance with the same reference, one letter of C, S,
            D, I per column, left to right (U,).
        buffer_words: so many words in a row, right in both systems, end a segment.

    Raises:
        ValueError: different utterances, or alignments with references of different lengths.
    """
    errors = segment_errors(baseline, system, buffer_words)
    difference = errors[:, 1] - errors[:, 0]
    n = len(difference)
    if not difference.any():
        return MatchedPairs(n, 0.0, 0.0, 0.0, 1.0)
    mean = float(difference.mean())
    sd = float(difference.std(ddof=1)) if n > 1 else float("nan")
    z = mean / (sd / math.sqrt(n)) if sd > 0 else float("nan")
    return MatchedPairs(n, mean, sd, z, math.erfc(abs(z) / math.sqrt(2)))


def segment_errors(
    baseline: Sequence[str], system: Sequence[str], buffer_words: int = BUFFER_WORDS
) -> np.ndarray:
    """Return the errors of both systems (segments, 2) in each segment where one makes an error.

    A segment lasts until ``buffer_words`` words in a row are right in both systems with nothing
    inserted between them, or until its utterance ends.  Arguments and errors as in `mapsswe`.
    """
    if len(baseline) != len(system):
        raise ValueError(f"{len(baseline)} and {len(system)} alignments; the same utterances expected")
    if buffer_words < 1:
        raise ValueError(f"{buffer_words} buffer words; at least 1 expected")
    (inserted1, wrong1, ends), (inserted2, wrong2, ends2) = map(_by_word, (baseline, system))
    if not np.array_equal(ends, ends2):
        lengths = [np.diff(e, prepend=-1) - 1 for e in (ends, ends2)]
        first = int(np.flatnonzero(lengths[0] != lengths[1])[0])
        raise ValueError(
            f"alignment {first + 1} of {len(ends)} has {lengths[0][first]} reference words in one "
            f"system and {lengths[1][first]} in the other; the same reference expected"
        )
    errors = np.stack([inserted1 + wrong1, inserted2 + wrong2], axis=1)
    places = np.flatnonzero(errors.any(axis=1))
    if not len(places):
        return np.zeros((0, 2), dtype=np.int64)
    # Right words between one erroneous place and the next; the first place's own word is among
    # them if its errors are words inserted before it.
    own = ~(wrong1 | wrong2)[places[:-1]]
    right = np.diff(places) - 1 + own
    utterance = np.searchsorted(ends, places)
    begins = np.flatnonzero(np.r_[True, (right >= buffer_words) | (np.diff(utterance) > 0)])
    return np.add.reduceat(errors[places], begins, axis=0)


def _by_word(alignments: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return insertions before, and wrongness of, each reference word; and where utterances end.

    Every utterance has one place more than words, its end, which is never wrong.
    """
    joined = "".join(f"{a}|" for a in alignments).encode("ascii", "replace")
    letters = np.frombuffer(joined, dtype=np.uint8)
    known = np.isin(letters, np.frombuffer(b"CSDI|", dtype=np.uint8)).all()
    if not known or int((letters == ord("|")).sum()) != len(alignments):
        raise ValueError("an alignment has another letter than C, S, D and I")
    place = np.flatnonzero(letters != ord("I"))
    inserted = np.diff(place, prepend=-1) - 1
    at = letters[place]
    ends = np.flatnonzero(at == ord("|"))
    return inserted, (at == ord("S")) | (at == ord("D")), ends
