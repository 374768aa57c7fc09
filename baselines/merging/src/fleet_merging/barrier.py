"""Barriers: the loss on the line between two models (section 3), and their distance."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike

from fleet_merging.average import interpolate
from fleet_merging.errors import MergeError
from fleet_merging.symmetry.table import State

Measure = Callable[[State], float]
"""Returns the loss of a model, or its performance in rollouts."""

POINTS = 11
"""Default number of points on a line."""


@dataclass(frozen=True)
class Barrier:
    """A barrier, with its curve.

    Attributes:
        height: Height of the barrier; infinite or NaN if the measure is.
        at: The lambda of the highest point.
        lambdas: Positions on the line, from 0, the first model, to 1, the second.
        values: Values of the measure at these positions.
    """

    height: float
    at: float
    lambdas: tuple[float, ...]
    values: tuple[float, ...]

    @classmethod
    def of_losses(cls, lambdas: ArrayLike, values: ArrayLike) -> Self:
        """Returns the barrier of a curve of losses; see `loss_barrier`."""
        losses = np.asarray(values, dtype=float)
        return cls._of(lambdas, losses, losses - (losses[0] + losses[-1]) / 2)

    @classmethod
    def of_performances(cls, lambdas: ArrayLike, values: ArrayLike) -> Self:
        """Returns the barrier of a curve of performances T, the higher the better.

        max over lambda of (T(one) + T(other)) / 2 - T((1 - lambda) one + lambda other).
        """
        performances = np.asarray(values, dtype=float)
        mean_of_ends = (performances[0] + performances[-1]) / 2
        return cls._of(lambdas, performances, mean_of_ends - performances)

    @classmethod
    def _of(cls, lambdas: ArrayLike, values: np.ndarray, heights: np.ndarray) -> Self:
        highest = int(np.argmax(heights))  # the first NaN, if there is one
        positions = tuple(np.asarray(lambdas, dtype=float).tolist())
        return cls(float(heights[highest]), positions[highest], positions, tuple(values.tolist()))


def loss_barrier(loss: Measure, one: State, other: State, points: int = POINTS) -> Barrier:
    """Measures max over lambda of L((1 - lambda) one + lambda other) - (L(one) + L(other)) / 2.

    It is never negative, since at one of the ends it is half the difference of the losses.

    Args:
        loss: L, such as the imitation loss on some data.
        one: A model.
        other: Another model, aligned with the first one to measure alignment.
        points: Number of lambdas, evenly spaced from 0 to 1; odd, so that 1/2 is one of them.

    Raises:
        MergeError: `points` is even, or below 3.
    """
    return Barrier.of_losses(*curve(loss, one, other, points))


def curve(
    measure: Measure, one: State, other: State, points: int = POINTS
) -> tuple[np.ndarray, np.ndarray]:
    """Measures models at evenly spaced lambdas; returns these and the values, (points,) both."""
    lambdas = lambdas_of(points)
    values = [float(measure(interpolate(one, other, float(position)))) for position in lambdas]
    return lambdas, np.array(values)


def lambdas_of(points: int) -> np.ndarray:
    """Returns an odd number of lambdas, evenly spaced from 0 to 1, shape (points,)."""
    if points < 3 or points % 2 == 0:
        raise MergeError(
            f"The number of points of a curve is {points}. Give an odd number, at least 3."
        )
    return np.linspace(0.0, 1.0, points)


@dataclass(frozen=True)
class NormRatio:
    """Relative difference of a parameter between two models, with Frobenius norms.

    The paper's appendix compares policies that learned the same data twice: "the weight different
    norm compared to the weight norm" is below 1%. This has two readings: `of_norms` is
    |norm(second) - norm(first)| / norm(first), for any order of the units, and `of_difference` is
    norm(second - first) / norm(first).
    """

    of_norms: float
    of_difference: float


def norm_ratios(first: State, second: State) -> dict[str, NormRatio]:
    """Returns the ratios of each parameter of floating-point numbers, by its name.

    Parameters that are zero in the first model have no ratio and are left out.
    """
    ratios: dict[str, NormRatio] = {}
    for name, weights in first.items():
        if not torch.is_floating_point(weights):
            continue
        one, other = weights.double(), second[name].double()
        norm = float(one.norm())
        if norm > 0:
            ratios[name] = NormRatio(
                abs(float(other.norm()) - norm) / norm, float((other - one).norm()) / norm
            )
    return ratios
