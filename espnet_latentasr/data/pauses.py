"""Where to cut a long recording: knows samples only, neither words nor a recogniser.

Qwen3-ASR's own way with recordings of more than 20 minutes: cut where it is quiet, transcribe each part
alone, join the texts.  Parts do not overlap, so no word is heard twice.
"""

from __future__ import annotations

import math

import numpy as np

from espnet_latentasr.data.audio import SAMPLE_RATE

SPAN = 10 * SAMPLE_RATE  # how far around its ideal place a cut is looked for, in all
WINDOW = SAMPLE_RATE // 10  # a pause is judged by its 100 ms


def split_at_pauses(clip: np.ndarray, limit: int | None) -> list[tuple[int, int]]:
    """Cut a clip into parts of similar length at its quietest places.

    Args:
        clip: (S,) samples at 16 kHz.
        limit: most samples of a part (at least 400 ms); None: any number, and nothing is cut.

    Returns:
        (start, end) of each part, in samples; together they are the clip.  Each cut is the middle of the
        100 ms with the least energy within 5 s of where equal parts would end (less where ``limit`` is
        below 30 s: a third of it in all).
    """
    if limit is None or len(clip) <= limit:
        return [(0, len(clip))]
    span = min(SPAN, limit // 3)
    count = math.ceil(len(clip) / (limit - span))
    window = min(WINDOW, span)
    cuts = [0]
    for part in range(1, count):
        first = len(clip) * part // count - span // 2
        energy = np.cumsum(np.square(clip[first : first + span], dtype=np.float64))
        energy = energy[window - 1 :] - np.concatenate([[0.0], energy[: len(energy) - window]])
        cuts.append(first + int(energy.argmin()) + window // 2)
    return [*zip(cuts, [*cuts[1:], len(clip)])]
