"""The threshold's whole range from one pass: error rate against compute, Pareto front and knee."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from espnet_latentasr.analysis.decoded import error_rate
from espnet_latentasr.analysis.depths import errors_at, select_threshold, steps_run

PAPER_THETAS = (-2.0, -0.2, 0.0, 0.2, 0.5)


@dataclass(frozen=True)
class Point:
    """One threshold.  steps: computed per utterance.  delta: error rate minus the frozen one."""

    theta: float
    rate: float
    delta: float
    steps: float
    kept: float
    skip_rate: float


def sweep(
    values: np.ndarray,
    errors: np.ndarray,
    lengths: np.ndarray,
    thetas: Sequence[float],
    on_halt: str = "keep",
) -> list[Point]:
    """Error rate and steps of every threshold, in the order given.

    Args:
        values, errors: (U, N + 1).  lengths: (U,).
    """
    frozen = error_rate(errors[:, 0], lengths)
    points = []
    for theta in thetas:
        depth = select_threshold(values, theta, on_halt)
        rate = error_rate(errors_at(errors, depth), lengths)
        run = steps_run(values, theta)
        skipped = float(np.mean(run == 0))
        points.append(
            Point(float(theta), rate, rate - frozen, float(run.mean()), float(depth.mean()), skipped)
        )
    return points


def pareto_front(points: Sequence[Point]) -> list[Point]:
    """Points that no other one beats in both steps and error rate, by rising steps.

    Of points with equal steps and rate the first stays.
    """
    front: list[Point] = []
    for point in sorted(points, key=lambda p: (p.steps, p.rate)):
        if not front or point.rate < front[-1].rate:
            front.append(point)
    return front


def knee(front: Sequence[Point]) -> Point | None:
    """The front's point farthest below the line from its cheapest to its best point.

    Both axes are scaled to 0..1 first.  None: the front is one point or a straight line, so that no
    point stands out.
    """
    if len(front) < 3:
        return None
    first, last = front[0], front[-1]
    width, height = last.steps - first.steps, first.rate - last.rate
    below = [1 - (p.steps - first.steps) / width - (p.rate - last.rate) / height for p in front]
    best = int(np.argmax(below))
    return front[best] if below[best] > 1e-9 else None


def captured(point: Point, points: Sequence[Point]) -> float | None:
    """Share of the sweep's largest reduction that one threshold reaches; None: nothing is reduced."""
    best = min(p.delta for p in points)
    return point.delta / best if best < 0 else None
