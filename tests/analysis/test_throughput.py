"""Throughput and overhead by batch size, by hand."""

import json

import numpy as np
import pytest

from espnet_latentasr.analysis.throughput import Measured, read_measured, throughput
from espnet_latentasr.errors import DataError

AUDIO = np.array([8.0, 12.0])
FROZEN = Measured(4, "frozen", np.array([4, 3]), AUDIO, np.array([1.0, 2.0]), 10)
LATENT = Measured(4, "latent", np.array([4, 3]), AUDIO, np.array([1.5, 2.0]), 11)


def test_by_hand():
    found = throughput(LATENT, FROZEN)
    assert found.utterances == pytest.approx(7 / 3.5)
    assert found.rtf == pytest.approx(3.5 / 20)
    assert found.ratio == pytest.approx(3.5 / 3)
    assert found.paired == pytest.approx((1.05, 1.25, 1.45))
    alone = throughput(FROZEN)
    assert (alone.rtf, alone.ratio, alone.paired) == (pytest.approx(3 / 20), None, None)


def test_what_cannot_be_compared():
    other = Measured(4, "x", LATENT.utterances, AUDIO[::-1], LATENT.seconds, 0)
    with pytest.raises(ValueError, match="different batches"):
        throughput(other, FROZEN)
    with pytest.raises(ValueError, match="no throughput"):
        throughput(Measured(4, "x", AUDIO, AUDIO, np.zeros(2), 0))


def test_file(tmp_path):
    path = tmp_path / "batch_sizes.json"
    row = {"batch_size": 2, "configuration": "a", "utterances": [2], "audio": [3.0], "seconds": [1.0],
           "peak_bytes": 5}  # fmt: skip
    path.write_text(json.dumps({"device": "cpu", "rows": [row]}))
    device, (found,) = read_measured(path)
    assert (device, found.batch_size, found.peak_bytes, found.seconds.tolist()) == ("cpu", 2, 5, [1.0])
    for damage in ({"rows": [{}]}, {"device": "cpu", "rows": [row | {"audio": [1, 2]}]}):
        path.write_text(json.dumps(damage))
        with pytest.raises(DataError, match="batch_sizes.json: not the file of .*measure again"):
            read_measured(path)
