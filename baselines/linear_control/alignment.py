"""Alignment of linear controllers over GL(n) and by permutations, and balanced coordinates."""

from collections.abc import Sequence

import numpy as np
import scipy.optimize

from fleet_tools.baselines.linear_control.systems import Controller, LinearControlError

Controllers = Sequence[Controller]


def balancing_transform(controller: Controller) -> np.ndarray:
    """Returns T, (n, n), that brings a controller to balanced coordinates (Moore 1981).

    Over the first 2n steps, y then excites each state as strongly as the state contributes to u.
    States with little effect on the law have small entries in both B and C. T is unique up to signs
    where the strengths differ. Both Gramians are increased by 1e-10 of their trace, so that T
    exists for every controller.
    """
    n = controller.shape[0]
    B, C = controller.B, controller.C
    reachability, observability = np.zeros((n, n)), np.zeros((n, n))
    for _ in range(2 * n):
        reachability, observability = reachability + B @ B.T, observability + C.T @ C
        B, C = controller.A @ B, C @ controller.A
    reachability += (1e-10 * np.trace(reachability) or 1.0) * np.eye(n)
    observability += (1e-10 * np.trace(observability) or 1.0) * np.eye(n)
    root = np.linalg.cholesky(reachability)
    values, vectors = np.linalg.eigh(root.T @ observability @ root)
    values = np.maximum(values, 1e-20 * values[-1])  # rounding may make them negative
    return root @ vectors / values**0.25


def align(source: Controller, target: Controller) -> np.ndarray:
    """Returns T, (n, n), that brings `source.transformed(T)` near to `target`, in closed form.

    Minimizes |T A_t - A_s T|^2 + |T B_t - B_s|^2 + |C_t - C_s T|^2 (eq:two_lin_merge with P = T,
    model 1 the target), a linear least-squares problem. If one controller is a transform of the
    other and is controllable or observable, the T of zero loss is unique. It is found for both
    signs of its determinant. Of several equally good T, returns the one nearest to I.
    """
    n = source.shape[0]
    eye = np.eye(n)
    # Row-major: vec(X T Y) = kron(X, Y') vec(T).
    rows = np.vstack(
        [
            np.kron(eye, target.A.T) - np.kron(source.A, eye),
            np.kron(eye, target.B.T),
            np.kron(source.C, eye),
        ]
    )
    values = np.concatenate([np.zeros(n * n), source.B.ravel(), target.C.ravel()])
    correction = np.linalg.lstsq(rows, values - rows @ eye.ravel())[0]
    return eye + correction.reshape(n, n)


def alignment_loss(
    merged: Controller, transforms: np.ndarray, controllers: Controllers
) -> tuple[float, np.ndarray]:
    """Returns eq:linear_obj_inv_two as a mean, and its gradient.

    It is the mean of |T_i A - A_i T_i|^2 + |T_i B - B_i|^2 + |C - C_i T_i|^2 over controllers.

    Args:
        merged: Merged controller (A, B, C).
        transforms: Transforms T_i, (N, n, n).
        controllers: Controllers (A_i, B_i, C_i).

    Returns:
        The loss, and its derivative with respect to the transforms, (N, n, n).
    """
    w = equal_weights(controllers)[:, None, None]
    A, B, C = (np.stack([getattr(k, name) for k in controllers]) for name in "ABC")
    T = transforms
    in_A, in_B, in_C = T @ merged.A - A @ T, T @ merged.B - B, merged.C - C @ T
    loss = sum(float(np.sum(w * residual**2)) for residual in (in_A, in_B, in_C))
    in_A, in_B, in_C = 2 * w * in_A, 2 * w * in_B, 2 * w * in_C
    d_transforms = in_A @ merged.A.T - np.swapaxes(A, 1, 2) @ in_A
    d_transforms += in_B @ merged.B.T - np.swapaxes(C, 1, 2) @ in_C
    return loss, d_transforms


def best_merged_controller(controllers: Controllers, transforms: np.ndarray) -> Controller:
    """Returns the minimizer of eq:linear_obj_inv_two over the merged controller.

    Args:
        controllers: Controllers (A_i, B_i, C_i).
        transforms: Transforms T_i, (N, n, n).
    """
    weights = equal_weights(controllers)
    w = np.sqrt(weights)[:, None, None]
    n = len(transforms[0])
    stacked = (w * transforms).reshape(-1, n)
    pairs = list(zip(controllers, transforms, strict=True))
    stacked_A = (w * np.stack([k.A @ T for k, T in pairs])).reshape(-1, n)
    stacked_B = (w * np.stack([k.B for k in controllers])).reshape(len(stacked), -1)
    C = np.zeros_like(controllers[0].C)
    for weight, (k, T) in zip(weights, pairs, strict=True):
        C = C + weight * (k.C @ T)
    A, B = np.linalg.lstsq(stacked, stacked_A)[0], np.linalg.lstsq(stacked, stacked_B)[0]
    return Controller(A, B, C)


def equal_weights(controllers: Controllers) -> np.ndarray:
    """Returns averaging weights that sum to one, (N,), after checking that the controllers fit.

    Raises:
        LinearControlError: There are no controllers, or they differ in shape.
    """
    shapes = {k.shape for k in controllers}
    if len(shapes) != 1:
        found = ", ".join(map(str, sorted(shapes))) or "none"
        raise LinearControlError(
            f"Expected controllers with the same shape (n, p, m); given: {found}."
        )
    return np.ones(len(controllers)) / len(controllers)


def align_by_frank_wolfe(source: Controller, target: Controller, P: np.ndarray) -> np.ndarray:
    """Returns a permutation, (n, n), that is at least as good as P.

    The squared distance of `source.transformed(P)` to the target, a term of eq:linear_obj, is a
    quadratic assignment. It is a constant minus twice <P, A_s' P A_t> + <P, B_s B_t' + C_s' C_t>.
    Frank-Wolfe steps with exact line search (Vogelstein et al. 2015) increase this objective over
    doubly stochastic matrices, from P and from the barycenter. The result is projected onto
    permutations.

    Args:
        source: Controller to align.
        target: Controller of the reference coordinates.
        P: Permutation to start from, (n, n).
    """
    linear = source.B @ target.B.T + source.C.T @ target.C

    def quadratic(X: np.ndarray) -> float:
        return float(np.sum(X * (source.A @ X @ target.A.T)))

    def score(X: np.ndarray) -> float:
        return quadratic(X) + float(np.sum(X * linear))

    best, best_score = P, score(P)
    for X in (P, np.full_like(P, 1.0 / len(P))):
        for _ in range(50):
            gradient = source.A.T @ X @ target.A + source.A @ X @ target.A.T + linear
            direction = _best_permutation(gradient) - X
            slope, curvature = float(np.sum(direction * gradient)), quadratic(direction)
            if slope <= 1e-12 * (1.0 + abs(best_score)):
                break
            step = 1.0 if curvature >= 0.0 else min(1.0, -slope / (2.0 * curvature))
            X = X + direction * step
        candidate = _best_permutation(X)
        if score(candidate) > best_score + 1e-12 * abs(best_score):
            best, best_score = candidate, score(candidate)
    return best


def _best_permutation(score: np.ndarray) -> np.ndarray:
    """Returns the permutation matrix P that maximizes <P, score>."""
    rows, columns = scipy.optimize.linear_sum_assignment(score, maximize=True)
    P = np.zeros_like(score)
    P[rows, columns] = 1.0
    return P
