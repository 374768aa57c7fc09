"""Linear plants and linear dynamic controllers as values, and the plants of the paper."""

from dataclasses import dataclass, fields

import numpy as np

from fleet_tools.errors import FleetToolsError


class LinearControlError(FleetToolsError, ValueError):
    """Matrices that do not fit together, or a problem that has no solution."""


@dataclass(frozen=True, eq=False)
class LinearSystem:
    """A discrete-time plant with Gaussian noise and a quadratic cost (eq. equ:system, eq:Jpi).

        x[t+1] = A x[t] + B u[t] + w[t],  w ~ N(0, W)
        y[t]   = C x[t] + v[t],           v ~ N(0, V)

    It has n states, m inputs, p outputs and the cost per step x'Q x + u'R u. The arrays are stored
    as read-only copies.

    Attributes:
        A: State matrix, (n, n).
        B: Input matrix, (n, m).
        C: Output matrix, (p, n).
        Q: Cost of states, (n, n), symmetric, positive semidefinite.
        R: Cost of inputs, (m, m), symmetric, positive definite.
        W: Covariance of the process noise, (n, n).
        V: Covariance of the measurement noise, (p, p); zero if the outputs are exact.

    Raises:
        LinearControlError: A matrix has another shape, is not finite, or is not (semi)definite.
    """

    A: np.ndarray
    B: np.ndarray
    C: np.ndarray
    Q: np.ndarray
    R: np.ndarray
    W: np.ndarray
    V: np.ndarray

    def __post_init__(self) -> None:
        """Checks the matrices, and makes them read-only."""
        _freeze(self)
        n, m, p = self.n, self.m, self.p
        shapes = {"A": (n, n), "B": (n, m), "C": (p, n), "Q": (n, n), "R": (m, m)}
        _require_shapes(self, shapes | {"W": (n, n), "V": (p, p)})
        for name in ("Q", "R", "W", "V"):
            matrix = getattr(self, name)
            scale = np.abs(matrix).max(initial=0.0)
            smallest = np.linalg.eigvalsh(matrix).min(initial=np.inf)
            if not np.allclose(matrix, matrix.T, rtol=1e-12, atol=1e-12 * scale):
                raise LinearControlError(f"{name} is not symmetric. Give ({name} + {name}') / 2.")
            if smallest < -1e-12 * scale or (name == "R" and smallest <= 0.0):
                kind = "positive definite" if name == "R" else "positive semidefinite"
                raise LinearControlError(f"{name} is not {kind}: an eigenvalue is {smallest:.3g}.")

    @property
    def n(self) -> int:
        """Number of states."""
        return self.A.shape[0]

    @property
    def m(self) -> int:
        """Number of inputs."""
        return self.B.shape[1]

    @property
    def p(self) -> int:
        """Number of outputs."""
        return self.C.shape[0]


@dataclass(frozen=True, eq=False)
class Controller:
    """A linear dynamic controller theta (eq. equ:dynamic_policy_para_general) that starts at rest.

        s[t] = A s[t-1] + B y[t],  u[t] = C s[t],  s[-1] = 0

    A static law u = K y is (0, I, K). The arrays are stored as read-only copies.

    Attributes:
        A: State matrix, (n, n).
        B: Input matrix, (n, p).
        C: Output matrix, (m, n).

    Raises:
        LinearControlError: A matrix has another shape or is not finite.
    """

    A: np.ndarray
    B: np.ndarray
    C: np.ndarray

    def __post_init__(self) -> None:
        """Checks the matrices, and makes them read-only."""
        _freeze(self)
        n, p, m = self.shape
        _require_shapes(self, {"A": (n, n), "B": (n, p), "C": (m, n)})

    @property
    def shape(self) -> tuple[int, int, int]:
        """(n, p, m): numbers of states, of outputs of the plant, and of inputs of the plant."""
        return self.A.shape[0], self.B.shape[1], self.C.shape[0]

    def transformed(self, T: np.ndarray) -> "Controller":
        """Returns (T^-1 A T, T^-1 B, C T): the same law, for the state s' with s = T s'.

        This is a right action: `k.transformed(S).transformed(T)` equals `k.transformed(S @ T)`. The
        paper writes it so in its merging losses, and with T and T^-1 exchanged in "Symmetries".

        Args:
            T: Invertible matrix, (n, n), with a determinant of either sign.

        Raises:
            LinearControlError: T is singular, or of another shape.
        """
        T = np.asarray(T, float)
        if T.shape != self.A.shape:
            raise LinearControlError(
                f"T has shape {T.shape}; this controller requires {self.A.shape}."
            )
        try:
            return Controller(
                np.linalg.solve(T, self.A @ T), np.linalg.solve(T, self.B), self.C @ T
            )
        except np.linalg.LinAlgError as error:
            raise LinearControlError("T is singular; expected an invertible matrix.") from error

    def responses(self, count: int) -> np.ndarray:
        """Returns the impulse response C A^k B for k < count, (count, m, p).

        It determines the law, in any coordinates.
        """
        _, p, m = self.shape
        responses, state = np.empty((count, m, p)), self.B
        for k in range(count):
            responses[k] = self.C @ state
            state = self.A @ state
        return responses

    def to_vector(self) -> np.ndarray:
        """Returns all entries of A, B and C in this order, each by rows, (n n + n p + m n,)."""
        return np.concatenate([self.A.ravel(), self.B.ravel(), self.C.ravel()])


def controller_from_vector(vector: np.ndarray, shape: tuple[int, int, int]) -> Controller:
    """Returns the controller of shape (n, p, m) with a given `to_vector`."""
    n, p, m = shape
    A, B, C = np.split(np.asarray(vector, float), [n * n, n * n + n * p])
    return Controller(A.reshape(n, n), B.reshape(n, p), C.reshape(m, n))


def static_controller(K: np.ndarray) -> Controller:
    """Returns the law u = K y as (0, I, K) (paper, "Feedforward controller").

    Args:
        K: Gain, (m, p).
    """
    p = np.shape(K)[1]
    return Controller(np.zeros((p, p)), np.eye(p), K)


A_STABLE = np.array(
    [
        [0.99, 0.03, -0.02, -0.32],
        [0.01, 0.47, 4.70, 0.00],
        [0.02, -0.06, 0.40, 0.00],
        [0.01, -0.04, 0.72, 0.99],
    ]
)
"""State matrix of most experiments: the linearized longitudinal motion of a Boeing 747 (ft, s, 0.01
rad), with spectral radius 0.993. Slip: the paper announces it and leaves it out. Its sources
(hong2021lecture, zhang2022multi) use this matrix with the paper's B."""

B_STABLE = np.array([[0.01, 0.99], [-3.44, 1.66], [-0.83, 0.44], [-0.47, 0.25]])
"""Input matrix of most experiments."""

A_UNSTABLE = np.array([[1.10, 0.03, -0.02], [0.01, 0.47, 4.70], [0.02, -0.06, 0.40]])
"""State matrix of the last experiment, which is unstable and of odd dimension."""

B_UNSTABLE = B_STABLE[:3]
"""Input matrix of the last experiment. Slip: the paper gives a 4 x 2 matrix for the 3 x 3 A_unstab.
A_unstab is the leading block of A_STABLE with a larger first entry, so these are the first three
rows of B_STABLE."""

STATE_WEIGHTS = np.logspace(-2.0, 2.0, 10)
"""Weights alpha of the ten tasks, Q = alpha I."""


def paper_system(
    *, unstable: bool = False, outputs: int | None = None, alpha: float = 1.0, seed: int = 0
) -> LinearSystem:
    """Returns a plant of the paper ("Experiment Setup Details"), with Q = alpha I and R = I.

    The paper does not give the covariances of the noises; here they are identities.

    Args:
        unstable: Whether to return the three-dimensional plant, which is unstable without control.
        outputs: Number p of rows of a standard Gaussian C (50 in the paper's LQG). None for exact
            states, C = I and V = 0 (the paper's LQR).
        alpha: Weight of the state, one of `STATE_WEIGHTS` in the paper.
        seed: Seed of C.
    """
    A, B = (A_UNSTABLE, B_UNSTABLE) if unstable else (A_STABLE, B_STABLE)
    n, m = B.shape
    if outputs is None:
        C, V = np.eye(n), np.zeros((n, n))
    else:
        C, V = np.random.default_rng(seed).standard_normal((outputs, n)), np.eye(outputs)
    return LinearSystem(A, B, C, Q=alpha * np.eye(n), R=np.eye(m), W=np.eye(n), V=V)


def _freeze(value: LinearSystem | Controller) -> None:
    """Replaces the arrays by read-only copies, after checking them."""
    for field in fields(value):
        array = np.array(getattr(value, field.name), float)
        if array.ndim != 2 or not np.isfinite(array).all():
            raise LinearControlError(
                f"{field.name} must be a matrix of finite numbers; given: shape {array.shape}."
            )
        array.flags.writeable = False
        object.__setattr__(value, field.name, array)


def _require_shapes(value: LinearSystem | Controller, shapes: dict[str, tuple[int, int]]) -> None:
    for name, shape in shapes.items():
        found = getattr(value, name).shape
        if found != shape:
            raise LinearControlError(
                f"{name} has shape {found}; the other matrices require {shape}."
            )
