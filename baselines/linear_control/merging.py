"""One linear controller out of many: averages after alignment, under permutations and GL(n).

Every method takes the controllers and their weights and returns a `Merge`. The transform T_i of a
controller is such that `controllers[i].transformed(T_i)` is compared with the merged one (P_i in
the paper). Slips of the paper in this part:

- "Merging step": A-bar is the mean of P_i' A_i P_i; it prints A_i' P_i A_i.
- eq:linear_obj_inv writes C for B in its second term, and in the third A_i P_i for C_i P_i.
- eq:two_lin_merge has B_1 P for P B_1, and its equivalent controller T C for C T^-1.
- eq:linear_obj_inv_two: P_i = 0 is not optimal, as the remark says, but (P_i S, theta-bar
  transformed by S) with S to 0 shrinks the first and the third term of any candidate to nothing.
  Something has to fix the coordinates of theta-bar: here one controller's transform is held at I.
- "this alternating procedure is guaranteed to converge": its linear assignment is not a step of
  one function, and may raise eq:linear_obj (`merge_by_permutation`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.optimize

from fleet_tools.baselines.linear_control.permutations import assign_one_sided, climb
from fleet_tools.baselines.linear_control.systems import (
    Controller,
    LinearControlError,
    controller_from_vector,
)

Controllers = Sequence[Controller]
Weights = Sequence[float] | None


@dataclass(frozen=True, eq=False)
class Merge:
    """A merged controller.

    Attributes:
        controller: The merged one.
        transforms: (N, n, n), T_i of each controller.
        losses: The method's objective after each iteration, where it has one.
    """

    controller: Controller
    transforms: np.ndarray
    losses: tuple[float, ...] = ()


def average(controllers: Controllers, weights: Weights = None) -> Merge:
    """Averages the matrices as they are, whatever coordinates they are in."""
    weights = _check(controllers, weights)
    identities = np.stack([np.eye(controllers[0].shape[0])] * len(controllers))
    return Merge(_mean(controllers, weights), identities)


def merge_by_permutation(
    controllers: Controllers,
    weights: Weights = None,
    *,
    iterations: int = 100,
    monotone: bool = True,
) -> Merge:
    """Alternates between averaging and aligning with permutations (paper, "Method 1").

    Minimizes eq:linear_obj. Given the average, the paper aligns by the assignment
    max <P, A_i' P_old A-bar + B_i B-bar' + C_i' C-bar>, one side of the quadratic term held at the
    last permutation. This may raise the objective, and cycle. By default the quadratic
    assignment is climbed by Frank-Wolfe steps with exact line search instead, and a permutation
    is taken only where it lowers the objective, which then never rises. The first average is the
    central controller (`central`): the mean of all as they are resembles none.

    Args:
        controllers: Of one shape.
        weights: Relative, not negative; equal by default.
        iterations: At most so many alternations.
        monotone: False for the paper's assignment.

    Raises:
        LinearControlError: The controllers differ in shape, or there are none.
    """
    weights = _check(controllers, weights)
    merged = controllers[central(controllers, weights)]
    transforms = average(controllers).transforms
    step = climb if monotone else assign_one_sided
    losses: list[float] = []
    for _ in range(iterations):
        transforms = np.stack(
            [step(k, merged, P) for k, P in zip(controllers, transforms, strict=True)]
        )
        moved = [k.transformed(P) for k, P in zip(controllers, transforms, strict=True)]
        merged = _mean(moved, weights)
        losses.append(sum(w * _distance(k, merged) for w, k in zip(weights, moved, strict=True)))
        if losses[-1] in losses[:-1]:  # a fixed point or, without `monotone`, a cycle
            break
    return Merge(merged, transforms, tuple(losses))


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


def merge_by_least_squares(
    controllers: Controllers,
    weights: Weights = None,
    *,
    reference: int | None = None,
    iterations: int = 200,
) -> Merge:
    """Alternates between the two exact minimizers of eq:linear_obj_inv_two over GL(n).

    The transforms by `align`, the merged controller by least squares, as the paper's remark
    suggests; the objective never rises. Transforms of one controller are exact after one sweep.

    Args:
        controllers: Of one shape.
        weights: Relative, not negative; equal by default.
        reference: Index of the controller whose coordinates are kept; by default the one whose
            law is nearest to the mean law (`central`), so that order does not matter.
        iterations: At most so many sweeps.

    Raises:
        LinearControlError: The controllers differ in shape, or there are none.
    """
    weights = _check(controllers, weights)
    reference = central(controllers, weights) if reference is None else reference
    merged = controllers[reference]
    eye = np.eye(merged.shape[0])
    losses: list[float] = []
    for _ in range(iterations):
        transforms = np.stack(
            [eye if i == reference else align(k, merged) for i, k in enumerate(controllers)]
        )
        merged = _best_merged(controllers, weights, transforms)
        losses.append(transform_loss(merged, transforms, controllers, weights)[0])
        if len(losses) > 1 and losses[-1] >= losses[-2] * (1.0 - 1e-9):
            break
    return Merge(merged, transforms, tuple(losses))


def merge_by_gradient(
    controllers: Controllers,
    weights: Weights = None,
    *,
    reference: int | None = None,
    iterations: int = 2000,
) -> Merge:
    """Descends eq:linear_obj_inv_two over the merged controller and all T_i (paper, "Method 2").

    First the transforms, from I, towards the reference controller: this is convex, so that a
    negative determinant is reached through singular matrices, where the loss is finite. Then all
    together, the merged controller always at its minimum for the transforms. The steps are those
    of L-BFGS. (Descending over everything at once from the start is slow where the scales of B and
    C differ, and can end in a valley where one transform grows without bound.)

    Args and errors: as `merge_by_least_squares`; `iterations` are steps in each of the two parts.
    """
    weights = _check(controllers, weights)
    reference = central(controllers, weights) if reference is None else reference
    start = average(controllers).transforms
    losses: list[float] = []

    def towards_reference(T: np.ndarray) -> Controller:
        return controllers[reference]

    def towards_best(T: np.ndarray) -> Controller:
        return _best_merged(controllers, weights, T)

    transforms = start
    for choose_merged in (towards_reference, towards_best):

        def evaluate(vector: np.ndarray, choose=choose_merged) -> tuple[float, np.ndarray]:
            T = vector.reshape(start.shape)
            loss, _, gradient = transform_loss(choose(T), T, controllers, weights)
            gradient[reference] = 0.0  # its coordinates are kept
            return loss, gradient.ravel()

        # A long memory: coordinates of different scales make the valley narrow.
        options = {"maxiter": iterations, "maxfun": 2 * iterations, "maxcor": 100}
        result = scipy.optimize.minimize(
            evaluate,
            transforms.ravel(),
            jac=True,
            method="L-BFGS-B",
            callback=lambda intermediate_result: losses.append(float(intermediate_result.fun)),
            options=options | {"ftol": 1e-16, "gtol": 1e-12},
        )
        transforms = result.x.reshape(start.shape)
    return Merge(towards_best(transforms), transforms, tuple(losses))


METHODS: dict[str, Callable[..., Merge]] = {
    "average": average,
    "permutation": merge_by_permutation,
    "gradient": merge_by_gradient,
    "least_squares": merge_by_least_squares,
}
"""Every method, called with controllers and weights."""


def central(controllers: Controllers, weights: Weights = None) -> int:
    """Returns the index of the controller whose law is nearest to the weighted mean law.

    Laws are compared by their impulse responses C A^k B for k < 2n, which no coordinates enter.
    """
    weights = _check(controllers, weights)
    laws = np.stack([k.responses(2 * k.shape[0]).ravel() for k in controllers])
    distances = np.sum((laws - weights @ laws) ** 2, axis=1)
    return int(np.argmin(np.where(weights > 0.0, distances, np.inf)))


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
    w = _check(controllers, weights)[:, None, None]
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


def _check(controllers: Controllers, weights: Weights) -> np.ndarray:
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


def _mean(controllers: Controllers, weights: np.ndarray) -> Controller:
    vectors = np.stack([k.to_vector() for k in controllers])
    return controller_from_vector(weights @ vectors, controllers[0].shape)


def _distance(first: Controller, second: Controller) -> float:
    return float(np.sum((first.to_vector() - second.to_vector()) ** 2))


def _best_merged(controllers: Controllers, weights: np.ndarray, T: np.ndarray) -> Controller:
    """Returns the minimizer of eq:linear_obj_inv_two over the merged controller."""
    w = np.sqrt(weights)[:, None, None]
    n = len(T[0])
    stacked = (w * T).reshape(-1, n)
    of_A = (w * np.stack([k.A @ S for k, S in zip(controllers, T, strict=True)])).reshape(-1, n)
    of_B = (w * np.stack([k.B for k in controllers])).reshape(len(stacked), -1)
    C = sum(v * (k.C @ S) for v, k, S in zip(weights, controllers, T, strict=True))
    return Controller(np.linalg.lstsq(stacked, of_A)[0], np.linalg.lstsq(stacked, of_B)[0], C)
