"""Random plants, controllers and transforms for the laws of linear control."""

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from fleet_tools.baselines.linear_control.systems import Controller, LinearSystem

seeds = st.integers(0, 2**32 - 1)


def positive_definite(rng: np.random.Generator, size: int) -> np.ndarray:
    """Returns a random symmetric positive definite matrix, (size, size)."""
    root = rng.standard_normal((size, size))
    return root @ root.T / size + 0.1 * np.eye(size)


def random_system(rng: np.random.Generator) -> LinearSystem:
    """Returns a controllable and observable plant, stable or not, with 1 to 4 states."""
    n, m, p = int(rng.integers(1, 5)), int(rng.integers(1, 4)), int(rng.integers(1, 5))
    A = rng.standard_normal((n, n))
    A *= rng.uniform(0.3, 1.3) / np.abs(np.linalg.eigvals(A)).max()
    B, C = rng.standard_normal((n, m)), rng.standard_normal((p, n))
    Q, R = positive_definite(rng, n), positive_definite(rng, m)
    W, V = positive_definite(rng, n), positive_definite(rng, p)
    return LinearSystem(A, B, C, Q, R, W, V)


def random_controller(
    rng: np.random.Generator, n: int | None = None, p: int | None = None, m: int | None = None
) -> Controller:
    """Returns a stable controller; sizes that are not given are drawn from 1 to 4."""
    n, p, m = (int(rng.integers(1, 5)) if size is None else size for size in (n, p, m))
    A = rng.standard_normal((n, n))
    A *= 0.9 / np.abs(np.linalg.eigvals(A)).max()
    return Controller(A, rng.standard_normal((n, p)), rng.standard_normal((m, n)))


def random_transform(rng: np.random.Generator, n: int, sign: int = 0) -> np.ndarray:
    """Returns an element of GL(n) with a condition number below 10.

    Args:
        rng: Generator.
        n: Size.
        sign: Sign of the determinant, 1 or -1; any if 0.
    """
    left, right = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
    T = left @ np.diag(rng.uniform(0.5, 4.0, n)) @ right
    if sign and np.sign(np.linalg.det(T)) != sign:
        T[0] *= -1.0
    return T


def noisy(controller: Controller, rng: np.random.Generator, level: float) -> Controller:
    """Returns the controller with Gaussian noise on each entry, relative to its size."""

    def with_noise(matrix: np.ndarray) -> np.ndarray:
        return matrix * (1.0 + level * rng.standard_normal(matrix.shape))

    return Controller(*map(with_noise, (controller.A, controller.B, controller.C)))


def assert_same_controller(first: Controller, second: Controller, atol: float) -> None:
    """Asserts equal entries, and so equal coordinates."""
    np.testing.assert_allclose(first.to_vector(), second.to_vector(), rtol=0, atol=atol)


def assert_same_law(first: Controller, second: Controller, rtol: float) -> None:
    """Asserts equal responses to every input, in any coordinates."""
    count = 2 * max(first.shape[0], second.shape[0])
    expected = first.responses(count)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(second.responses(count), expected, rtol=0, atol=rtol * scale)


def finite_differences(
    function: Callable[[np.ndarray], float], vector: np.ndarray, step: float = 1e-5
) -> np.ndarray:
    """Returns the gradient of a function of a vector, by central differences."""
    return np.array(
        [
            (function(vector + e) - function(vector - e)) / (2 * step)
            for e in step * np.eye(len(vector))
        ]
    )
