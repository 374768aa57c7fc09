"""Optimal linear quadratic Gaussian control, the cost J of any linear controller, and episodes."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.linalg

from fleet_tools.baselines.linear_control.systems import (
    Controller,
    LinearControlError,
    LinearSystem,
)

STABILITY_MARGIN = 1e-10
"""Distance of a spectral radius from one below which rounding could hide an instability. The system
then counts as unstable."""


def lqr(system: LinearSystem) -> tuple[np.ndarray, np.ndarray]:
    """Returns the optimal gain K, (m, n), of u = K x, and the Riccati solution P, (n, n).

    Eq. equ:LQR and equ:dct. Slip: in equ:dct the quadratic term has a plus; it is
    P = A'P A - A'P B (B'P B + R)^-1 B'P A + Q.

    Raises:
        LinearControlError: (A, B) is not stabilizable, or a mode on the unit circle does not enter
            the cost.
    """
    P = _riccati(system.A, system.B, system.Q, system.R)
    PB = P @ system.B
    K = -np.linalg.solve(system.B.T @ PB + system.R, PB.T @ system.A)
    return K, P


def kalman(system: LinearSystem) -> tuple[np.ndarray, np.ndarray]:
    """Returns the Kalman gain L, (n, p), and the covariance S, (n, n), of x[t] given y[:t].

    Eq. eq:Kalman_gain. L multiplies the innovation y[t] - C E[x[t] | y[:t]].

    Raises:
        LinearControlError: (A, C) is not detectable, or W does not excite a mode on the unit
            circle.
    """
    S = _riccati(system.A.T, system.C.T, system.W, system.V)
    SC = S @ system.C.T
    L = np.linalg.solve(system.C @ SC + system.V, SC.T).T
    return L, S


def optimal_controller(system: LinearSystem) -> Controller:
    """Returns theta* (eq. equ:dynamic_policy_para), the minimizer of J over all causal policies.

    With exact states (C = I, V = 0) it is the static law (0, I, K).
    """
    K, L = lqr(system)[0], kalman(system)[0]
    predicted = system.A + system.B @ K
    return Controller(predicted - L @ system.C @ predicted, L, K)


def optimal_cost(system: LinearSystem) -> float:
    """Returns J(theta*) by separation: tr(P W) + tr(K'(B'P B + R) K S_filtered).

    It uses no closed loop, so it is an independent check of `cost` (Astrom 1970, ch. 8).
    """
    K, P = lqr(system)
    L, S = kalman(system)
    filtered = S - L @ system.C @ S
    penalty = K.T @ (system.B.T @ P @ system.B + system.R) @ K
    return float(np.trace(P @ system.W) + np.trace(penalty @ filtered))


class ClosedLoop(NamedTuple):
    """Plant and controller as one system with the state z[t] = (x[t], s[t-1]).

        z[t+1] = F z[t] + G (w[t], v[t]),  u[t] = H z[t] + D v[t]

    Attributes:
        F: State matrix, (2n, 2n) if plant and controller have n states each.
        G: Matrix of the noises, (2n, n + p).
        H: Matrix from the state to u, (m, 2n).
        D: Matrix from the measurement noise to u, (m, p).
    """

    F: np.ndarray
    G: np.ndarray
    H: np.ndarray
    D: np.ndarray


def closed_loop(system: LinearSystem, controller: Controller) -> ClosedLoop:
    """Returns the closed loop of a plant and a controller.

    Raises:
        LinearControlError: The controller has other inputs or outputs than the plant.
    """
    states, p, m = controller.shape
    if (p, m) != (system.p, system.m):
        raise LinearControlError(
            f"The controller reads {p} outputs and drives {m} inputs; the plant has {system.p} "
            f"outputs and {system.m} inputs."
        )
    D, E = controller.C @ controller.B, controller.C @ controller.A
    F = np.block(
        [
            [system.A + system.B @ D @ system.C, system.B @ E],
            [controller.B @ system.C, controller.A],
        ]
    )
    G = np.block(
        [[np.eye(system.n), system.B @ D], [np.zeros((states, system.n)), controller.B]],
    )
    return ClosedLoop(F, G, np.hstack([D @ system.C, E]), D)


def cost(system: LinearSystem, controller: Controller) -> float:
    """Returns J (eq:Jpi), the long-run average cost per step, by a Lyapunov equation.

    It is `inf` unless the closed loop is internally stable with a margin of `STABILITY_MARGIN`,
    even if the unstable mode does not affect the cost.
    """
    loop = closed_loop(system, controller)
    covariance = lyapunov(loop.F, loop.G @ _noise(system) @ loop.G.T)
    if covariance is None:
        return np.inf
    u_covariance = loop.H @ covariance @ loop.H.T + loop.D @ system.V @ loop.D.T
    x_covariance = covariance[: system.n, : system.n]
    return float(np.trace(system.Q @ x_covariance) + np.trace(system.R @ u_covariance))


def spectral_radius(matrix: np.ndarray) -> float:
    """Returns the largest modulus of the eigenvalues."""
    return float(np.abs(np.linalg.eigvals(matrix)).max(initial=0.0))


def lyapunov(F: np.ndarray, N: np.ndarray) -> np.ndarray | None:
    """Returns the solution of X = F X F' + N, the sum of F^k N F'^k; None if F is not stable.

    It is computed by doubling (Smith 1968). For a positive semidefinite N all summands are positive
    semidefinite: there is no cancellation, and an unstable F never yields finite numbers.

    Args:
        F: State matrix, (k, k).
        N: Symmetric matrix, (k, k).
    """
    if spectral_radius(F) > 1.0 - STABILITY_MARGIN:
        return None
    X, power = N, F
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(64):  # 2^64 steps
            X = X + power @ X @ power.T
            power = power @ power
            if not (np.isfinite(power).all() and np.isfinite(X).all()):
                return None
            if np.linalg.norm(power) < 1e-12:
                return (X + X.T) / 2.0
    return None


def _noise(system: LinearSystem) -> np.ndarray:
    return np.asarray(scipy.linalg.block_diag(system.W, system.V))


def _riccati(A: np.ndarray, B: np.ndarray, Q: np.ndarray, R: np.ndarray) -> np.ndarray:
    try:
        return scipy.linalg.solve_discrete_are(A, B, Q, R)
    except np.linalg.LinAlgError as error:
        raise LinearControlError(
            "The Riccati equation has no stabilizing solution: the plant is not stabilizable and "
            "detectable. Give another plant."
        ) from error


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


def simulate(
    system: LinearSystem,
    controller: Controller,
    rng: np.random.Generator,
    *,
    episodes: int = 1,
    steps: int = 100,
) -> Rollouts:
    """Simulates episodes from x[0] ~ N(0, W), one step of noise, with the controller at rest.

    Args:
        system: The plant.
        controller: A controller of this plant.
        rng: Generator of the initial states and the noises.
        episodes: Number of episodes.
        steps: Number of steps of each episode, 100 in the paper.

    Raises:
        LinearControlError: The controller has other inputs or outputs than the plant.
    """
    closed_loop(system, controller)  # checks that they fit
    x_now = _draw(rng, system.W, episodes, 1)[:, 0]
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
