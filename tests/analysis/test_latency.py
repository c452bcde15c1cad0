"""Latency figures by hand."""

import numpy as np
import pytest

from espnet_latentasr.analysis.latency import latency

SECONDS = np.array([[1, 1, 1, 1], [1, 1, 2, 2], [1, 1, 0, 0]], dtype=float)
FROZEN = np.array([[1, 1, 0, 0], [1, 1, 0, 2], [1, 1, 0, 0]], dtype=float)
AUDIO = np.array([2.0, 4.0, 4.0])


def test_by_hand():
    found = latency(SECONDS, AUDIO, FROZEN)
    assert found.stages == {"encode": 1, "prefill": 1, "loop": 1, "decode": 1}
    assert (found.mean, found.median, found.rtf) == (4, 4, 1.2)
    assert found.overhead == pytest.approx(12 / 8 - 1)
    assert found.paired[1] == 1.5  # of 2, 1.5 and 1


def test_the_frozen_model_has_no_overhead_of_its_own():
    found = latency(FROZEN, AUDIO)
    assert (found.overhead, found.paired) == (None, None)
    assert latency(FROZEN, AUDIO, FROZEN).overhead == 0


def test_bad_input():
    with pytest.raises(ValueError, match=r"\(U, 4\) expected"):
        latency(SECONDS[:2], AUDIO)
    with pytest.raises(ValueError, match="negative"):
        latency(-SECONDS, AUDIO)
    with pytest.raises(ValueError, match="audio"):
        latency(SECONDS, AUDIO * 0)
