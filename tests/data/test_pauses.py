"""Where long recordings are cut."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from espnet_latentasr.data.pauses import SPAN, split_at_pauses


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 400_000), st.integers(6400, 100_000), st.integers(0, 9))
def test_parts_tile_the_clip_within_the_limit(samples, limit, seed):
    clip = np.random.default_rng(seed).standard_normal(samples).astype(np.float32)
    parts = split_at_pauses(clip, limit)
    assert parts[0][0] == 0 and parts[-1][1] == samples
    assert all(end == start for (_, end), (start, _) in zip(parts, parts[1:]))
    assert all(0 < end - start <= limit for start, end in parts)
    # Never a crumb at the end: a recogniser makes up words for a tenth of a second.
    assert len(parts) == 1 or min(end - start for start, end in parts) >= limit // 6


def test_a_cut_lies_in_the_middle_of_the_only_pause():
    clip = np.ones(60 * 16000, np.float32)
    clip[27 * 16000 : 27 * 16000 + 1600] = 0.0
    assert split_at_pauses(clip, 40 * 16000) == [(0, 27 * 16000 + 800), (27 * 16000 + 800, 60 * 16000)]


def test_pauses_further_away_than_five_seconds_are_not_looked_for():
    clip = np.ones(60 * 16000, np.float32)
    clip[23 * 16000 : 24 * 16000] = 0.0
    ((_, cut), _) = split_at_pauses(clip, 40 * 16000)
    assert abs(cut - 30 * 16000) <= SPAN // 2


def test_short_clips_and_no_limit_stay_whole():
    clip = np.ones(100, np.float32)
    assert split_at_pauses(clip, 100) == split_at_pauses(clip, None) == [(0, 100)]
