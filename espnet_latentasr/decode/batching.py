"""Batches of clips of similar length, and clips that are too long; knows lengths and ids only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized

from espnet_latentasr.data.audio import SAMPLE_RATE
from espnet_latentasr.errors import DataError

USUAL_SECONDS = 30  # clips of up to this length make batches of full size


def _samples(clip: Sized | int) -> int:
    return clip if isinstance(clip, int) else len(clip)


def check_lengths(clips: Mapping[str, Sized | int], limit: int | None) -> None:
    """Refuse clips (samples, or their number) longer than the recogniser hears at once; none is cut.

    Raises:
        DataError: naming the first such utterance, its length and the limit.
    """
    for utt_id, clip in clips.items():
        if limit is not None and _samples(clip) > limit:
            raise DataError(
                f"utterance '{utt_id}': {_samples(clip) / SAMPLE_RATE:.2f} s, but this recogniser hears "
                f"{limit / SAMPLE_RATE:g} s at once; split it at a pause, or leave it out"
            )


def batches_by_length(clips: Mapping[str, Sized | int], size: int) -> Iterator[list[str]]:
    """Yield ids of clips (samples, or their number), shortest first: batches then carry little padding.

    A batch has at most ``size`` clips, and with its padding no more audio than ``size`` clips of 30 s,
    so that a few long recordings do not take the memory of many short ones (one clip always fits).
    """
    budget = size * USUAL_SECONDS * SAMPLE_RATE
    batch: list[str] = []
    for utt_id in sorted(clips, key=lambda utt_id: (_samples(clips[utt_id]), utt_id.encode())):
        if len(batch) == size or (batch and (len(batch) + 1) * _samples(clips[utt_id]) > budget):
            yield batch
            batch = []
        batch.append(utt_id)
    if batch:
        yield batch
