"""Mean and spread over seeds."""

import math
import statistics

import pytest

from espnet_latentasr.stats.seeds import mean_sd


def test_sample_deviation():
    values = [4.0, 7.0, 1.0]
    assert mean_sd(values) == (4.0, pytest.approx(statistics.stdev(values)), 3)
    assert mean_sd(values).sd == pytest.approx(3.0)


def test_one_seed_has_no_spread(recwarn):
    mean, sd, n = mean_sd([2.5])
    assert (mean, n) == (2.5, 1) and math.isnan(sd) and not recwarn


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [float("inf")]])
def test_refused(values):
    with pytest.raises(ValueError, match="finite numbers expected"):
        mean_sd(values)
