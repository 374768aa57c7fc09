"""How much is lost on the straight line between two models: the paper's two barriers (sec. 3)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from fleet_tools.baselines.merging.average import interpolate
from fleet_tools.baselines.merging.errors import FleetError
from fleet_tools.baselines.merging.symmetry.table import State
from fleet_tools.errors import MissingLibraryError

Measure = Callable[[dict], float]
"""A loss of a model, or a measure of its performance in rollouts."""


@dataclass(frozen=True)
class Barrier:
    """A barrier and the curve that it was read from.

    Args:
        height: The barrier; infinite or not a number where the measure is.
        at: The lambda where it stands.
        lambdas: From 0, the first model, to 1, the second.
        values: Of the measure there.
    """

    height: float
    at: float
    lambdas: tuple[float, ...]
    values: tuple[float, ...]

    @classmethod
    def of_losses(cls, lambdas: Sequence[float], values: Sequence[float]) -> Self:
        """The barrier of a curve of losses; see `loss_barrier`."""
        values = np.asarray(values, dtype=float)
        return cls._of(lambdas, values, values - (values[0] + values[-1]) / 2)

    @classmethod
    def of_performances(cls, lambdas: Sequence[float], values: Sequence[float]) -> Self:
        """The barrier of a curve of performances; see `performance_barrier`."""
        values = np.asarray(values, dtype=float)
        return cls._of(lambdas, values, (values[0] + values[-1]) / 2 - values)

    @classmethod
    def _of(cls, lambdas: Sequence[float], values: np.ndarray, heights: np.ndarray) -> Self:
        at = int(np.argmax(heights))  # of the first that is not a number, if one is
        lambdas = tuple(float(each) for each in lambdas)
        return cls(float(heights[at]), lambdas[at], lambdas, tuple(values.tolist()))

    @property
    def midpoint(self) -> float:
        """The measure halfway: of the plain average of the two."""
        return self.values[len(self.values) // 2]


def loss_barrier(loss: Measure, one: State, other: State, points: int = 11) -> Barrier:
    """max over lambda of L((1 - lambda) one + lambda other) - (L(one) + L(other)) / 2.

    It is never negative, but for the spacing of lambdas: at an end it is half a difference.

    Args:
        loss: L, such as the imitation loss on some data.
        one: A model.
        other: Another, aligned with it where alignment is to be judged.
        points: How many lambdas, evenly spaced with both ends; odd, so that 1/2 is one of them.

    Raises:
        FleetError: `points` is even, or below 3.
        ModelMismatchError: The models differ in form.
    """
    return Barrier.of_losses(*curve(loss, one, other, points))


def performance_barrier(
    performance: Measure, one: State, other: State, points: int = 11
) -> Barrier:
    """max over lambda of (T(one) + T(other)) / 2 - T((1 - lambda) one + lambda other).

    Args:
        performance: T, where more is better: accumulated reward, or the share of successes.
        one: As for `loss_barrier`.
        other: As for `loss_barrier`.
        points: As for `loss_barrier`.

    Raises:
        FleetError: `points` is even, or below 3.
        ModelMismatchError: The models differ in form.
    """
    return Barrier.of_performances(*curve(performance, one, other, points))


def curve(
    measure: Measure, one: State, other: State, points: int = 11
) -> tuple[np.ndarray, np.ndarray]:
    """Lambdas and the measure of (1 - lambda) one + lambda other at each, shape (points,) both.

    Raises:
        FleetError: `points` is even, or below 3.
        ModelMismatchError: The models differ in form.
    """
    lambdas = lambdas_of(points)
    values = [float(measure(interpolate(one, other, float(at)))) for at in lambdas]
    return lambdas, np.array(values)


def lambdas_of(points: int) -> np.ndarray:
    """So many lambdas, evenly spaced with both ends and the middle, shape (points,).

    Raises:
        FleetError: `points` is even, or below 3.
    """
    if points < 3 or points % 2 == 0:
        raise FleetError(f"A curve has {points} points. Give an odd number, at least 3.")
    return np.linspace(0.0, 1.0, points)


def plot(curves: dict[str, Barrier], path: str | Path, measure: str = "loss") -> None:
    """Draws curves, by name, into a picture whose kind its file's name tells.

    Raises:
        MissingLibraryError: matplotlib is absent.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingLibraryError(
            "A plot needs matplotlib. Install it with: python3 -m pip install matplotlib"
        ) from None
    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.subplots()
    for name, barrier in curves.items():
        axes.plot(barrier.lambdas, barrier.values, label=f"{name} (barrier {barrier.height:.3g})")
    axes.set(xlabel="λ", ylabel=measure, xlim=(0, 1))
    axes.legend(frameon=False)
    figure.savefig(path)
