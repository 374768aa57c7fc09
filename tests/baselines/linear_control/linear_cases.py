"""Random plants, controllers and transforms for the laws of linear control."""

import numpy as np
from hypothesis import strategies as st

from fleet_tools.baselines.linear_control.systems import Controller, LinearSystem

seeds = st.integers(0, 2**32 - 1)


def spd(rng: np.random.Generator, size: int) -> np.ndarray:
    root = rng.standard_normal((size, size))
    return root @ root.T / size + 0.1 * np.eye(size)


def random_system(rng: np.random.Generator) -> LinearSystem:
    """A controllable and observable plant, stable or not, with 1 to 4 states."""
    n, m, p = rng.integers(1, 5), rng.integers(1, 4), rng.integers(1, 5)
    A = rng.standard_normal((n, n))
    A *= rng.uniform(0.3, 1.3) / np.abs(np.linalg.eigvals(A)).max()
    B, C = rng.standard_normal((n, m)), rng.standard_normal((p, n))
    return LinearSystem(A, B, C, spd(rng, n), spd(rng, m), spd(rng, n), spd(rng, p))


def random_controller(rng: np.random.Generator, n=None, p=None, m=None) -> Controller:
    n, p, m = (rng.integers(1, 5) if size is None else size for size in (n, p, m))
    A = rng.standard_normal((n, n))
    A *= 0.9 / np.abs(np.linalg.eigvals(A)).max()
    return Controller(A, rng.standard_normal((n, p)), rng.standard_normal((m, n)))


def random_transform(rng: np.random.Generator, n: int, sign: int = 0) -> np.ndarray:
    """An element of GL(n) with a condition below 10 and, where asked, a determinant's sign."""
    left, right = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
    T = left @ np.diag(rng.uniform(0.5, 4.0, n)) @ right
    if sign and np.sign(np.linalg.det(T)) != sign:
        T[0] *= -1.0
    return T


def noisy(controller: Controller, rng: np.random.Generator, level: float) -> Controller:
    """The controller with each entry off by so many hundredths of it (level 0.01: one)."""

    def disturbed(matrix):
        return matrix * (1.0 + level * rng.standard_normal(matrix.shape))

    return Controller(*map(disturbed, (controller.A, controller.B, controller.C)))


def assert_same_controller(first: Controller, second: Controller, atol: float) -> None:
    np.testing.assert_allclose(first.to_vector(), second.to_vector(), rtol=0, atol=atol)


def assert_same_law(first: Controller, second: Controller, rtol: float) -> None:
    """Equal answers to every input, whatever the coordinates."""
    count = 2 * max(first.shape[0], second.shape[0])
    wanted = first.responses(count)
    scale = np.abs(wanted).max()
    np.testing.assert_allclose(second.responses(count), wanted, rtol=0, atol=rtol * scale)


def finite_differences(function, vector: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """The gradient of a function of a vector by central differences."""
    return np.array(
        [
            (function(vector + e) - function(vector - e)) / (2 * step)
            for e in step * np.eye(len(vector))
        ]
    )
