"""Batches of clips: every clip once, similar lengths together, bounded audio."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espnet_latentasr.data.audio import SAMPLE_RATE
from espnet_latentasr.decode.batching import USUAL_SECONDS, batches_by_length, check_lengths
from espnet_latentasr.errors import DataError


@settings(max_examples=50)
@given(st.lists(st.integers(0, 1300), max_size=40), st.integers(1, 8))
def test_every_clip_once_and_no_batch_too_large(seconds, size):
    clips = {f"utt{i}": range(s * SAMPLE_RATE) for i, s in enumerate(seconds)}
    batches = list(batches_by_length(clips, size))
    assert sorted(sum(batches, [])) == sorted(clips)
    lengths = [[len(clips[utt]) for utt in batch] for batch in batches]
    assert sum(lengths, []) == sorted(len(clip) for clip in clips.values())
    for batch in lengths:
        assert len(batch) <= size
        assert len(batch) == 1 or len(batch) * max(batch) <= size * USUAL_SECONDS * SAMPLE_RATE


def test_usual_clips_make_full_batches():
    clips = {f"utt{i:02d}": range((30 - i % 7) * SAMPLE_RATE) for i in range(10)}
    assert [len(batch) for batch in batches_by_length(clips, 4)] == [4, 4, 2]
    long = clips | {"long": range(1200 * SAMPLE_RATE)}
    assert [len(batch) for batch in batches_by_length(long, 4)] == [4, 4, 2, 1]


def test_too_long_a_clip_is_named():
    check_lengths({"a": range(10)}, None)
    check_lengths({"a": range(10)}, 10)
    with pytest.raises(DataError, match="utterance 'b'.*split it at a pause"):
        check_lengths({"a": range(10), "b": range(11)}, 10)
    with pytest.raises(DataError, match="utterance 'b'"):
        check_lengths({"a": 10, "b": 11}, 10)


def test_numbers_of_samples_do_as_well_as_samples():
    lengths = {f"utt{i:02d}": (3 * i % 7) * SAMPLE_RATE for i in range(12)}
    clips = {utt_id: range(n) for utt_id, n in lengths.items()}
    assert list(batches_by_length(lengths, 4)) == list(batches_by_length(clips, 4))
