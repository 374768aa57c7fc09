"""Linear controllers from demonstrations, by least squares and by gradient.

Demonstrations are inputs y, (episodes, steps, p), and outputs u, (episodes, steps, m), of an expert
controller. It starts each episode at rest.
"""

import numpy as np
import scipy.optimize

from fleet_tools.baselines.linear_control.systems import (
    Controller,
    LinearControlError,
    controller_from_vector,
    static_controller,
)


def learn_static(y: np.ndarray, u: np.ndarray) -> Controller:
    """Fits u = K y by least squares (alg:lqr_learner).

    Slip: line 2 minimizes |y - K u|^2, with input and output of the expert exchanged.

    Raises:
        LinearControlError: The demonstrations do not determine K.
    """
    rows_y, rows_u = y.reshape(-1, y.shape[-1]), u.reshape(-1, u.shape[-1])
    return static_controller(_solve(rows_y, rows_u).T)


def imitation_loss(
    controller: Controller, y: np.ndarray, u: np.ndarray
) -> tuple[float, Controller]:
    """Returns the mean over episodes and steps of |u - u_hat|^2, and its gradient.

    This is the loss of alg:lqg_learner, as a mean; the gradient passes through all steps (adjoint
    of s[t] = A s[t-1] + B y[t]). Slip: the algorithm starts from x_hat[1] = 0 and then computes
    x_hat[1] from x_hat[0]; the zero start is x_hat[0].

    Returns:
        The loss and its derivative with respect to the controller; if they overflow, infinity and
        zeros.
    """
    A, B, C = controller.A, controller.B, controller.C
    episodes, steps, _ = y.shape
    s = np.zeros((steps + 1, episodes, len(A)))
    with np.errstate(over="ignore", invalid="ignore"):
        for t in range(steps):
            s[t + 1] = s[t] @ A.T + y[:, t] @ B.T
        error = s[1:] @ C.T - u.transpose(1, 0, 2)
        loss = float(np.sum(error**2)) / (episodes * steps)
        d_error = (2.0 / (episodes * steps)) * error
        adjoint = d_error @ C
        for t in range(steps - 2, -1, -1):
            adjoint[t] += adjoint[t + 1] @ A
        gradients = (
            np.einsum("tei,tej->ij", adjoint, s[:-1]),
            np.einsum("tei,etj->ij", adjoint, y),
            np.einsum("tei,tej->ij", d_error, s[1:]),
        )
    if not (np.isfinite(loss) and all(np.isfinite(g).all() for g in gradients)):
        return np.inf, Controller(np.zeros_like(A), np.zeros_like(B), np.zeros_like(C))
    return loss, Controller(*gradients)


def learn_by_gradient(
    y: np.ndarray,
    u: np.ndarray,
    order: int,
    rng: np.random.Generator,
    *,
    iterations: int = 400,
) -> Controller:
    """Fits a controller by gradients through its dynamics (alg:lqg_learner).

    As in the paper, it starts with A = 0 and standard Gaussian B and C. Unlike the paper, it uses
    L-BFGS on all demonstrations instead of gradient steps on one at a time. It works in coordinates
    with white y, and in two phases: first A is fixed, then all are free. (With all free from the
    start and fifty outputs, most starts led to unstable controllers.)

    Args:
        y: Inputs of the expert, (episodes, steps, p).
        u: Outputs of the expert, (episodes, steps, m).
        order: Number n of states of the controller.
        rng: Generator of the random start.
        iterations: Maximum number of steps of L-BFGS in each phase.

    Raises:
        LinearControlError: The loss overflows at the start.
    """
    p, m = y.shape[-1], u.shape[-1]
    values, vectors = np.linalg.eigh(np.einsum("eti,etj->ij", y, y) / (y.shape[0] * y.shape[1]))
    scales = np.sqrt(np.maximum(values, 1e-12 * values[-1]))
    white = y @ vectors / scales
    B, C = rng.standard_normal((order, p)), rng.standard_normal((m, order))
    controller = Controller(np.zeros((order, order)), B, C)
    controller = _minimize_imitation(controller, white, u, iterations, fixed_A=True)
    learned = _minimize_imitation(controller, white, u, iterations)
    return Controller(learned.A, learned.B / scales @ vectors.T, learned.C)


def _minimize_imitation(
    start: Controller, y: np.ndarray, u: np.ndarray, iterations: int, *, fixed_A: bool = False
) -> Controller:
    ceiling = 1e12 * (1.0 + imitation_loss(start, y, u)[0])
    if not np.isfinite(ceiling):
        raise LinearControlError(
            "The imitation loss overflows at the start. Give another start or shorter episodes."
        )

    def evaluate(vector: np.ndarray) -> tuple[float, np.ndarray]:
        loss, gradient = imitation_loss(controller_from_vector(vector, start.shape), y, u)
        derivative = gradient.to_vector()
        if fixed_A:
            derivative[: start.A.size] = 0.0
        return min(loss, ceiling), derivative  # the line search requires finite numbers

    options = {"maxiter": iterations, "maxfun": 2 * iterations, "maxcor": 50}
    result = scipy.optimize.minimize(
        evaluate,
        start.to_vector(),
        jac=True,
        method="L-BFGS-B",
        options=options | {"ftol": 1e-15, "gtol": 1e-10},
    )
    return controller_from_vector(result.x, start.shape)


def _solve(inputs: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    solution, _, rank, _ = np.linalg.lstsq(inputs, outputs)
    if rank < inputs.shape[1]:
        raise LinearControlError(
            f"The demonstrations determine only {rank} of {inputs.shape[1]} coefficients. Record "
            "more episodes."
        )
    return solution
