"""Halting policies on explicit values."""

from __future__ import annotations

import math

import pytest
import torch

from espnet_latentasr.latent.halting import always, fixed, never, threshold

VALUES = torch.tensor([-0.5, 0.0, 0.25, 0.9])


@pytest.mark.parametrize("step", [0, 1, 4])
def test_never_and_always(step):
    assert never(VALUES, step).tolist() == [False] * 4
    assert always(VALUES, step).tolist() == [True] * 4
    assert never(VALUES, step).dtype == always(VALUES, step).dtype == torch.bool


@pytest.mark.parametrize("step", [0, 3])
@pytest.mark.parametrize(
    "theta, expected",
    [
        (-2.0, [True, True, True, True]),
        (0.0, [False, True, True, True]),
        (0.25, [False, False, True, True]),  # stops below theta, not at it
        (0.3, [False, False, False, True]),
        (math.inf, [False, False, False, False]),
    ],
)
def test_threshold_stops_below_theta_at_every_step(theta, expected, step):
    assert threshold(theta)(VALUES, step).tolist() == expected


def test_threshold_stops_at_a_value_that_is_no_number():
    assert threshold(-2.0)(torch.tensor([math.nan]), 0).tolist() == [False]


def test_fixed_depth_ignores_the_values():
    policy = fixed(2)
    assert [policy(VALUES, step).tolist() for step in (0, 1, 2, 3)] == [
        [True] * 4,
        [True] * 4,
        [False] * 4,
        [False] * 4,
    ]
    assert fixed(0)(VALUES, 0).tolist() == [False] * 4


def test_fixed_depth_per_row():
    policy = fixed(torch.tensor([0, 1, 2, 4]))
    assert policy(VALUES, 0).tolist() == [False, True, True, True]
    assert policy(VALUES, 1).tolist() == [False, False, True, True]
    assert policy(VALUES, 3).tolist() == [False, False, False, True]
    assert policy(VALUES, 4).tolist() == [False] * 4
