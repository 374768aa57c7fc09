"""Simulated episodes of a plant under a linear controller."""

from dataclasses import dataclass

import numpy as np

from fleet_tools.baselines.linear_control.lqg import closed_loop
from fleet_tools.baselines.linear_control.systems import Controller, LinearSystem


@dataclass(frozen=True, eq=False)
class Rollouts:
    """Episodes of equal length.

    Attributes:
        x: States of the plant, (episodes, steps, n).
        y: Outputs of the plant, which the controller reads, (episodes, steps, p).
        u: Inputs that the controller returns in the same step, (episodes, steps, m).
    """

    x: np.ndarray
    y: np.ndarray
    u: np.ndarray

    def costs(self, system: LinearSystem) -> np.ndarray:
        """Returns x'Q x + u'R u of each step, (episodes, steps)."""
        state_costs = np.einsum("eti,ij,etj->et", self.x, system.Q, self.x)
        return state_costs + np.einsum("eti,ij,etj->et", self.u, system.R, self.u)


def simulate(
    system: LinearSystem,
    controller: Controller,
    rng: np.random.Generator,
    *,
    episodes: int = 1,
    steps: int = 100,
    initial_covariance: np.ndarray | None = None,
) -> Rollouts:
    """Simulates episodes from x[0] ~ N(0, initial_covariance), with the controller at rest.

    Args:
        system: The plant.
        controller: A controller of this plant.
        rng: Generator of the initial states and the noises.
        episodes: Number of episodes.
        steps: Number of steps of each episode, 100 in the paper.
        initial_covariance: Covariance of the initial state, (n, n); W, one step of noise, by
            default.

    Raises:
        LinearControlError: The controller has other inputs or outputs than the plant.
    """
    closed_loop(system, controller)  # checks that they fit
    start = system.W if initial_covariance is None else initial_covariance
    x_now = _draw(rng, start, episodes, 1)[:, 0]
    w = _draw(rng, system.W, episodes, steps)
    v = _draw(rng, system.V, episodes, steps)
    s = np.zeros((episodes, controller.shape[0]))
    x = np.empty((episodes, steps, system.n))
    y, u = np.empty((episodes, steps, system.p)), np.empty((episodes, steps, system.m))
    for t in range(steps):
        x[:, t] = x_now
        y[:, t] = x_now @ system.C.T + v[:, t]
        s = s @ controller.A.T + y[:, t] @ controller.B.T
        u[:, t] = s @ controller.C.T
        x_now = x_now @ system.A.T + u[:, t] @ system.B.T + w[:, t]
    return Rollouts(x, y, u)


def _draw(rng: np.random.Generator, covariance: np.ndarray, *shape: int) -> np.ndarray:
    values, vectors = np.linalg.eigh(covariance)  # unlike Cholesky, for singular matrices, too
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return rng.standard_normal((*shape, len(covariance))) @ root.T
