"""Eq. 4 by hand, and the random choices of training: their rates, edges and reproducibility."""

from __future__ import annotations

import pytest
import torch
from torch import tensor

from espnet_latentasr.latent.targets import anchor_noise, draw_depth, flip_negative, gain_target


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    "accuracy, base, ce, base_ce, expected",
    [
        (0.5, 0.3, 9.0, 1.0, 0.4833446),  # 0.9 tanh(0.6); the cross-entropy is not looked at
        (0.3, 0.5, 1.0, 9.0, -0.4833446),
        (0.5, 0.5, 1.0, 9.0, 0.0),
        (0.2, 0.0, 1.0, 1.0, 0.4833446),  # one of them is not zero: accuracy decides
        (0.0, 0.2, 1.0, 1.0, -0.4833446),
        (0.0, 0.0, 2.5, 3.0, 0.2204268),  # 0.9 tanh(0.5 * 0.5)
        (0.0, 0.0, 3.0, 2.5, -0.2204268),
        (0.0, 0.0, 1.0, 11.0, 0.6854348),  # clamped: 0.9 tanh(0.5 * 2)
        (0.0, 0.0, 11.0, 1.0, -0.6854348),
        (1.0, 0.0, 0.0, 0.0, 0.8955493),  # 0.9 tanh 3
    ],
)
def test_gain_target(accuracy, base, ce, base_ce, expected):
    target = gain_target(tensor([accuracy]), tensor([base]), tensor([ce]), tensor([base_ce]))
    assert target.item() == pytest.approx(expected, abs=1e-6)


def test_gain_target_row_by_row_and_with_other_constants():
    target = gain_target(
        tensor([0.5, 0.0]),
        tensor([0.3, 0.0]),
        tensor([1.0, 1.0]),
        tensor([1.0, 9.0]),
        alpha=0.5,
        gain=1.0,
        fallback_gain=1.0,
        fallback_clip=0.25,
    )
    # 0.5 tanh(0.2), 0.5 tanh(0.25)
    torch.testing.assert_close(target, tensor([0.0986877, 0.1224593]), atol=1e-6, rtol=0)


TARGET = tensor([0.5, -0.25, 0.0, 0.75])


@pytest.mark.parametrize("unit", ["minibatch", "utterance"])
def test_flips_at_the_edges(unit):
    assert torch.equal(flip_negative(TARGET, 0.0, unit, seeded()), TARGET)
    flipped = flip_negative(TARGET, 1.0, unit, seeded())
    assert flipped.tolist() == [-0.5, -0.25, 0.0, -0.75]


def test_a_minibatch_flips_as_a_whole():
    draws = [flip_negative(torch.ones(4), 0.3, "minibatch", seeded(n)).tolist() for n in range(400)]
    assert all(len(set(draw)) == 1 for draw in draws)
    share = sum(draw[0] < 0 for draw in draws) / len(draws)
    assert share == pytest.approx(0.3, abs=0.07)


def test_utterances_flip_by_themselves():
    flipped = flip_negative(torch.ones(5000), 0.3, "utterance", seeded())
    assert set(flipped.tolist()) == {1.0, -1.0}
    assert (flipped < 0).float().mean().item() == pytest.approx(0.3, abs=0.03)


@pytest.mark.parametrize("unit", ["minibatch", "utterance"])
def test_flips_follow_their_generator_only(unit):
    first = [flip_negative(torch.ones(3), 0.5, unit, seeded(n)).tolist() for n in range(20)]
    torch.manual_seed(123)
    second = [flip_negative(torch.ones(3), 0.5, unit, seeded(n)).tolist() for n in range(20)]
    assert first == second and len({tuple(draw) for draw in first}) > 1


def test_full_depth():
    assert draw_depth(6, 4, "full", 0.0, seeded()).tolist() == [4] * 6
    assert draw_depth(6, 4, "full", 1.0, seeded()).tolist() == [0] * 6


def test_full_depth_is_dropped_at_its_rate():
    depth = draw_depth(5000, 4, "full", 0.15, seeded())
    assert set(depth.tolist()) == {0, 4}
    assert (depth == 0).float().mean().item() == pytest.approx(0.15, abs=0.02)


def test_sampled_depth_is_uniform_over_one_to_all():
    depth = draw_depth(8000, 4, "sampled", 0.2, seeded())
    shares = [(depth == k).float().mean().item() for k in range(6)]
    assert shares == pytest.approx([0.2, 0.2, 0.2, 0.2, 0.2, 0.0], abs=0.02)
    assert draw_depth(50, 1, "sampled", 0.0, seeded()).tolist() == [1] * 50


@pytest.mark.parametrize("kind", ["full", "sampled"])
def test_depth_follows_its_generator_only(kind):
    first = draw_depth(50, 4, kind, 0.3, seeded(1))
    torch.manual_seed(99)
    assert torch.equal(first, draw_depth(50, 4, kind, 0.3, seeded(1)))
    assert not torch.equal(first, draw_depth(50, 4, kind, 0.3, seeded(2)))
    assert first.dtype == torch.int64


def test_noise_is_relative_to_each_state():
    hidden = torch.cat([torch.full((1, 4000), 2.0), torch.full((1, 4000), -0.1)])
    noise = anchor_noise(hidden, 0.5, True, seeded())
    assert noise.std(1).tolist() == pytest.approx([1.0, 0.05], rel=0.05)
    assert noise.mean(1).abs().max() < 0.1
    absolute = anchor_noise(hidden, 0.5, False, seeded())
    assert absolute.std(1).tolist() == pytest.approx([0.5, 0.5], rel=0.05)
    assert torch.equal(absolute, anchor_noise(hidden, 0.5, False, seeded()))
    assert torch.equal(anchor_noise(hidden, 0.0, True, seeded()), torch.zeros(2, 4000))
