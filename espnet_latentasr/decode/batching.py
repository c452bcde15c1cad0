"""Batches of clips of similar length; knows lengths and ids only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized


def batches_by_length(clips: Mapping[str, Sized], size: int) -> Iterator[list[str]]:
    """Yield ids, shortest clips first, ``size`` at a time, so that batches carry little padding."""
    order = sorted(clips, key=lambda utt_id: (len(clips[utt_id]), utt_id.encode()))
    for start in range(0, len(order), size):
        yield order[start : start + size]
