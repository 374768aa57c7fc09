"""Alignment of linear controllers over GL(n), and balanced coordinates."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from fleet_tools.baselines.linear_control.systems import Controller, LinearControlError

Controllers = Sequence[Controller]

AveragingWeights = ArrayLike | None
"""Relative weights of controllers in an average, (N,), not negative; None for equal ones."""


def balancing_transform(controller: Controller) -> np.ndarray:
    """Returns T, (n, n), that brings a controller to balanced coordinates (Moore 1981).

    In these, y excites each state as strongly as the state contributes to u, over the first 2n
    steps; states that the law hardly uses have small entries in both B and C. T is unique up to
    signs where the strengths differ. Both Gramians are increased by 1e-10 of their trace, so that
    T exists for every controller.
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
    other and is controllable or observable, the T of zero loss is unique, and found whatever the
    sign of its determinant. If several T are equally good, returns the one nearest to I.
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
    merged: Controller,
    transforms: np.ndarray,
    controllers: Controllers,
    averaging_weights: AveragingWeights = None,
) -> tuple[float, Controller, np.ndarray]:
    """Returns eq:linear_obj_inv_two as a weighted mean, and its gradients.

    It is the mean of |T_i A - A_i T_i|^2 + |T_i B - B_i|^2 + |C - C_i T_i|^2 over controllers.

    Args:
        merged: Merged controller (A, B, C).
        transforms: Transforms T_i, (N, n, n).
        controllers: Controllers (A_i, B_i, C_i).
        averaging_weights: Relative weights of the controllers, not negative; equal by default.

    Returns:
        The loss, its derivative with respect to the merged controller, and that with respect to
        the transforms, (N, n, n).
    """
    w = normalized_weights(controllers, averaging_weights)[:, None, None]
    A, B, C = (np.stack([getattr(k, name) for k in controllers]) for name in "ABC")
    T, T_transposed = transforms, np.swapaxes(transforms, 1, 2)
    in_A, in_B, in_C = T @ merged.A - A @ T, T @ merged.B - B, merged.C - C @ T
    loss = sum(float(np.sum(w * residual**2)) for residual in (in_A, in_B, in_C))
    in_A, in_B, in_C = 2 * w * in_A, 2 * w * in_B, 2 * w * in_C
    d_merged = Controller(
        np.sum(T_transposed @ in_A, axis=0), np.sum(T_transposed @ in_B, axis=0), in_C.sum(axis=0)
    )
    d_transforms = in_A @ merged.A.T - np.swapaxes(A, 1, 2) @ in_A
    d_transforms += in_B @ merged.B.T - np.swapaxes(C, 1, 2) @ in_C
    return loss, d_merged, d_transforms


def best_merged_controller(
    controllers: Controllers, weights: np.ndarray, transforms: np.ndarray
) -> Controller:
    """Returns the minimizer of eq:linear_obj_inv_two over the merged controller.

    Args:
        controllers: Controllers (A_i, B_i, C_i).
        weights: Averaging weights that sum to one, (N,).
        transforms: Transforms T_i, (N, n, n).
    """
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


def normalized_weights(controllers: Controllers, averaging_weights: AveragingWeights) -> np.ndarray:
    """Returns averaging weights that sum to one, (N,), after checking that they fit.

    Raises:
        LinearControlError: There are no controllers, they differ in shape, or the weights do not
            fit.
    """
    shapes = {k.shape for k in controllers}
    if len(shapes) != 1:
        found = ", ".join(map(str, sorted(shapes))) or "none"
        raise LinearControlError(
            f"Controllers of one shape (n, p, m) are required; given: {found}."
        )
    count = len(controllers)
    weights = np.ones(count) if averaging_weights is None else np.asarray(averaging_weights, float)
    valid = weights.shape == (count,) and np.isfinite(weights).all()
    if not valid or weights.min() < 0.0 or weights.sum() <= 0.0:
        raise LinearControlError(
            f"{count} averaging weights are required, none negative and not all zero; "
            f"given: {weights.tolist()}."
        )
    return weights / weights.sum()
