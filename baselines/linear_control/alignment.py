"""Coordinates of linear controllers: alignment over GL(n), and balanced ones."""

from collections.abc import Sequence

import numpy as np

from fleet_tools.baselines.linear_control.systems import Controller, LinearControlError

Controllers = Sequence[Controller]
Weights = Sequence[float] | None


def balancing(controller: Controller) -> np.ndarray:
    """Returns T, (n, n), that brings a controller to balanced coordinates (Moore 1981).

    There each state is reached by y as strongly as it reaches u, over the first 2n steps, so that
    states which the law hardly uses have small entries in B and C alike. Unique up to signs where
    the strengths differ. Both Gramians are raised by 1e-10 of their trace: any controller will do.
    """
    n = controller.shape[0]
    B, C = controller.B, controller.C
    reached, seen = np.zeros((n, n)), np.zeros((n, n))
    for _ in range(2 * n):
        reached, seen = reached + B @ B.T, seen + C.T @ C
        B, C = controller.A @ B, C @ controller.A
    reached += (1e-10 * np.trace(reached) or 1.0) * np.eye(n)
    seen += (1e-10 * np.trace(seen) or 1.0) * np.eye(n)
    root = np.linalg.cholesky(reached)
    values, vectors = np.linalg.eigh(root.T @ seen @ root)
    values = np.maximum(values, 1e-20 * values[-1])  # rounding
    return root @ vectors / values**0.25


def align(source: Controller, target: Controller) -> np.ndarray:
    """Returns T, (n, n), that brings `source.transformed(T)` to `target`, in closed form.

    Minimizes |T A_t - A_s T|^2 + |T B_t - B_s|^2 + |C_t - C_s T|^2 (eq:two_lin_merge with P = T,
    model 1 the target), a linear least-squares problem. Where one controller is a transform of the
    other and minimal (controllable or observable is enough), the T of zero loss is unique and
    found whatever its determinant. Where several T are equally good, the one nearest to I.
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


def transform_loss(
    merged: Controller, transforms: np.ndarray, controllers: Controllers, weights: Weights = None
) -> tuple[float, Controller, np.ndarray]:
    """Returns eq:linear_obj_inv_two as a weighted mean, and its gradients.

    The mean of |T_i A - A_i T_i|^2 + |T_i B - B_i|^2 + |C - C_i T_i|^2 over controllers.

    Args:
        merged: (A, B, C).
        transforms: (N, n, n).
        controllers: (A_i, B_i, C_i).
        weights: Relative, not negative; equal by default.

    Returns:
        The loss, its derivative by the merged controller, and by the transforms, (N, n, n).
    """
    w = check_fleet(controllers, weights)[:, None, None]
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


def best_merged(controllers: Controllers, weights: np.ndarray, T: np.ndarray) -> Controller:
    """Returns the minimizer of eq:linear_obj_inv_two over the merged controller."""
    w = np.sqrt(weights)[:, None, None]
    n = len(T[0])
    stacked = (w * T).reshape(-1, n)
    of_A = (w * np.stack([k.A @ S for k, S in zip(controllers, T, strict=True)])).reshape(-1, n)
    of_B = (w * np.stack([k.B for k in controllers])).reshape(len(stacked), -1)
    C = sum(v * (k.C @ S) for v, k, S in zip(weights, controllers, T, strict=True))
    return Controller(np.linalg.lstsq(stacked, of_A)[0], np.linalg.lstsq(stacked, of_B)[0], C)


def check_fleet(controllers: Controllers, weights: Weights) -> np.ndarray:
    """Returns weights that sum to one, (N,)."""
    shapes = {k.shape for k in controllers}
    if len(shapes) != 1:
        found = ", ".join(map(str, sorted(shapes))) or "none"
        raise LinearControlError(f"Controllers of one shape (n, p, m) are needed; found: {found}.")
    weights = np.ones(len(controllers)) if weights is None else np.asarray(weights, float)
    valid = weights.shape == (len(controllers),) and np.isfinite(weights).all()
    if not valid or weights.min() < 0.0 or weights.sum() <= 0.0:
        raise LinearControlError(
            f"{len(controllers)} weights are needed, none negative and not all zero."
        )
    return weights / weights.sum()
