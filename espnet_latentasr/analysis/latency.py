"""What thinking costs: seconds per stage, real-time factor, overhead over the frozen model.

Seconds are wall time of a batch divided by its size, so one utterance's figure is its share.  Decodings
that ran in one job share encoding and prefill and differ in loop and decoding only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from espnet_latentasr.analysis.decoded import STAGES


@dataclass(frozen=True)
class Latency:
    """stages: mean seconds per utterance by `STAGES`.  rtf: compute over audio seconds.

    overhead: total seconds over the frozen model's, minus 1.  paired: quantiles 10, 50 and 90 % of the
    utterances' own ratios.  Both None without a baseline.
    """

    utterances: int
    stages: dict[str, float]
    mean: float
    median: float
    rtf: float
    overhead: float | None
    paired: tuple[float, float, float] | None


def latency(seconds: np.ndarray, audio: np.ndarray, baseline: np.ndarray | None = None) -> Latency:
    """Summarise one decoding.

    Args:
        seconds: (U, 4) by `STAGES`.  audio: (U,) seconds of audio.  baseline: (U, 4) of the frozen
            model on the same utterances in the same order.

    Raises:
        ValueError: shapes that differ, negative seconds, or no audio.
    """
    if seconds.shape != (len(audio), len(STAGES)) or (
        baseline is not None and baseline.shape != seconds.shape
    ):
        raise ValueError(f"seconds {seconds.shape} for {len(audio)} utterances: (U, 4) expected")
    if not (seconds >= 0).all() or not audio.sum() > 0:
        raise ValueError("seconds must not be negative and there must be audio")
    total = seconds.sum(1)
    overhead = paired = None
    if baseline is not None and (baseline.sum(1) > 0).all():
        frozen = baseline.sum(1)
        overhead = float(total.sum() / frozen.sum() - 1)
        paired = tuple(np.quantile(total / frozen, [0.1, 0.5, 0.9]).tolist())
    return Latency(
        len(audio),
        dict(zip(STAGES, seconds.mean(0).tolist())),
        float(total.mean()),
        float(np.median(total)),
        float(total.sum() / audio.sum()),
        overhead,
        paired,
    )
