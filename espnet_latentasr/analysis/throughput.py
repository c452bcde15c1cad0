"""What a batch size buys and costs: throughput, overhead over the frozen recogniser, peak memory.

Every batch was decoded by all configurations in one process, one after the other, so that the ratio of
their seconds is of the same clips under the same load of the machine (``benchmarks/latency.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from espnet_latentasr.errors import DataError
from espnet_latentasr.reading import read_json

FILE = "batch_sizes.json"  # in the experiment's folder


@dataclass(frozen=True)
class Measured:
    """One configuration at one batch size over B batches (repeats included).

    utterances, audio, seconds: (B,) clips, seconds of audio and of compute of each batch.  peak_bytes:
    most memory while decoding (of the process on a CPU, of torch's tensors on a GPU).
    """

    batch_size: int
    configuration: str
    utterances: np.ndarray
    audio: np.ndarray
    seconds: np.ndarray
    peak_bytes: int


@dataclass(frozen=True)
class Throughput:
    """utterances: per second.  rtf: compute over audio seconds.

    ratio: seconds over the baseline's, all batches together; paired: quantiles 10, 50 and 90 % of the
    batches' own ratios.  Both None for the baseline itself.
    """

    utterances: float
    rtf: float
    ratio: float | None
    paired: tuple[float, float, float] | None


def throughput(measured: Measured, baseline: Measured | None = None) -> Throughput:
    """Summarise one configuration, beside the baseline on the same batches.

    Raises:
        ValueError: other batches than the baseline's, or no time at all.
    """
    total = float(measured.seconds.sum())
    if not total > 0:
        raise ValueError("batches without any seconds: there is no throughput")
    ratio = paired = None
    if baseline is not None:
        if not np.array_equal(measured.audio, baseline.audio):
            raise ValueError("the two configurations decoded different batches")
        ratio = total / float(baseline.seconds.sum())
        quantiles = np.quantile(measured.seconds / baseline.seconds, [0.1, 0.5, 0.9])
        paired = tuple(quantiles.tolist())
    rtf = total / float(measured.audio.sum())
    return Throughput(float(measured.utterances.sum()) / total, rtf, ratio, paired)


def read_measured(path: Path) -> tuple[str, list[Measured]]:
    """Device and rows of a measured file; the first configuration of a batch size is its baseline.

    Raises:
        DataError: not such a file.
    """
    found = read_json(path, "the file of benchmarks/latency.py (measure again)")
    try:
        rows = [
            Measured(
                int(row["batch_size"]),
                str(row["configuration"]),
                *(np.array(row[key], dtype=float) for key in ("utterances", "audio", "seconds")),
                int(row["peak_bytes"]),
            )
            for row in found["rows"]
        ]
        for row in rows:
            if len({len(row.utterances), len(row.audio), len(row.seconds)}) != 1:
                raise ValueError(f"batch size {row.batch_size}: columns of different length")
        return str(found["device"]), rows
    except (OverflowError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}: not the file of benchmarks/latency.py ({error!r}); measure again"
        ) from error
