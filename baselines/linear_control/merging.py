"""One linear controller from many: averages after alignment under permutations or GL(n).

Every method takes controllers of one shape, and returns a `MergedController`; it raises a
`LinearControlError` if they differ in shape, or there are none.
For the transform T_i of a controller (P_i in the paper), `controllers[i].transformed(T_i)` is
compared with the merged controller. Slips of the paper here:

- "Merging step": A-bar is the mean of P_i' A_i P_i; printed is A_i' P_i A_i.
- eq:linear_obj_inv has C for B in its second term, and A_i P_i for C_i P_i in the third.
- eq:two_lin_merge has B_1 P for P B_1, and T C for C T^-1 in its equivalent controller.
- eq:linear_obj_inv_two: P_i = 0 is not optimal, as the remark says. But for any candidate,
  (P_i S, theta-bar transformed by S) with S to 0 reduces the first and the third term to zero.
  The coordinates of theta-bar must be fixed: here the transform of one controller is I.
- "this alternating procedure is guaranteed to converge": its linear assignment does not optimize
  one fixed function, and may increase eq:linear_obj (`merge_by_permutation`).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.optimize

from fleet_tools.baselines.linear_control.alignment import (
    Controllers,
    align,
    align_by_frank_wolfe,
    alignment_loss,
    balancing_transform,
    best_merged_controller,
    equal_weights,
)
from fleet_tools.baselines.linear_control.systems import Controller, controller_from_vector


@dataclass(frozen=True, eq=False)
class MergedController:
    """Result of a merge.

    Attributes:
        controller: The merged controller.
        transforms: Transform T_i of each controller, (N, n, n).
        losses: Objective of the method after each iteration, if it has one.
    """

    controller: Controller
    transforms: np.ndarray
    losses: tuple[float, ...] = ()


def average(controllers: Controllers) -> MergedController:
    """Averages the matrices in the coordinates in which they are given."""
    merged = _mean(controllers)
    identities = np.stack([np.eye(merged.shape[0])] * len(controllers))
    return MergedController(merged, identities)


def merge_by_permutation(controllers: Controllers, *, iterations: int = 100) -> MergedController:
    """Alternates between averaging and aligning with permutations (paper, "Method 1").

    Minimizes eq:linear_obj. Given the average, the paper aligns by the assignment max <P, A_i'
    P_old A-bar + B_i B-bar' + C_i' C-bar>. It holds one side of the quadratic term at the last
    permutation, which may increase the objective, and cycle. This function uses Frank-Wolfe steps
    with exact line search on the quadratic assignment instead. It accepts a permutation only if the
    objective decreases. The first average is the central controller (`central_index`): the mean of
    all in their given coordinates resembles none of them.

    Args:
        controllers: Controllers of one shape.
        iterations: Maximum number of alternations.
    """
    weights = equal_weights(controllers)
    merged = controllers[central_index(controllers)]
    transforms = average(controllers).transforms
    losses: list[float] = []
    for _ in range(iterations):
        pairs = zip(controllers, transforms, strict=True)
        transforms = np.stack([align_by_frank_wolfe(k, merged, P) for k, P in pairs])
        aligned = [k.transformed(P) for k, P in zip(controllers, transforms, strict=True)]
        merged = _mean(aligned)
        losses.append(sum(w * _distance(k, merged) for w, k in zip(weights, aligned, strict=True)))
        if losses[-1] in losses[:-1]:  # a fixed point
            break
    return MergedController(merged, transforms, tuple(losses))


def merge_by_least_squares(controllers: Controllers, *, iterations: int = 200) -> MergedController:
    """Alternates between the two exact minimizations of eq:linear_obj_inv_two over GL(n).

    It finds the transforms by `align` and the merged controller by least squares, as the paper's
    remark suggests; the objective never increases. Transforms of one controller are exact after one
    iteration.

    All are first transformed to balanced coordinates. Otherwise the loss would depend on each
    controller's coordinates, and states with little effect on the law would count as much as
    others. Learned controllers of nearly optimal cost would then merge badly. The merged controller
    has the coordinates of the central one (`central_index`), so that the order does not matter.

    Args:
        controllers: Controllers of one shape.
        iterations: Maximum number of iterations, at least 1.
    """
    reference = central_index(controllers)
    controllers, frames = _balanced(controllers)
    merged = controllers[reference]
    eye = np.eye(merged.shape[0])
    losses: list[float] = []
    while True:
        transforms = np.stack(
            [eye if i == reference else align(k, merged) for i, k in enumerate(controllers)]
        )
        merged = best_merged_controller(controllers, transforms)
        losses.append(alignment_loss(merged, transforms, controllers)[0])
        converged = len(losses) > 1 and losses[-1] >= losses[-2] * (1.0 - 1e-9)
        if converged or len(losses) == iterations:
            return MergedController(merged, frames @ transforms, tuple(losses))


def merge_by_gradient(controllers: Controllers) -> MergedController:
    """Minimizes eq:linear_obj_inv_two over the merged controller and all T_i (paper, "Method 2").

    First, the transforms are optimized from I, with the central controller as the merged one. This
    problem is convex; a negative determinant is reached through singular matrices of finite loss.
    Then the merged controller is always the optimal one for the transforms. Both phases use L-BFGS.
    (A descent over all variables from the start is slow if the scales of B and C differ. It can
    follow a valley in which one transform grows without bound.) Coordinates are chosen as in
    `merge_by_least_squares`.
    """
    index = central_index(controllers)
    framed, frames = _balanced(controllers)
    start = average(framed).transforms
    losses: list[float] = []

    def central_controller(T: np.ndarray) -> Controller:
        return framed[index]

    def best_controller(T: np.ndarray) -> Controller:
        return best_merged_controller(framed, T)

    transforms = start
    for choose_merged in (central_controller, best_controller):

        def evaluate(
            vector: np.ndarray, choose: Callable[[np.ndarray], Controller] = choose_merged
        ) -> tuple[float, np.ndarray]:
            T = vector.reshape(start.shape)
            loss, gradient = alignment_loss(choose(T), T, framed)
            gradient[index] = 0.0  # it keeps its coordinates
            return loss, gradient.ravel()

        # A long memory, as coordinates of different scales make the valley narrow.
        options = {"maxiter": _STEPS, "maxfun": 2 * _STEPS, "maxcor": 100}
        result = scipy.optimize.minimize(
            evaluate,
            transforms.ravel(),
            jac=True,
            method="L-BFGS-B",
            callback=lambda intermediate_result: losses.append(float(intermediate_result.fun)),
            options=options | {"ftol": 1e-16, "gtol": 1e-12},
        )
        transforms = result.x.reshape(start.shape)
    return MergedController(best_controller(transforms), frames @ transforms, tuple(losses))


METHODS: dict[str, Callable[[Controllers], MergedController]] = {
    "average": average,
    "permutation": merge_by_permutation,
    "gradient": merge_by_gradient,
    "least_squares": merge_by_least_squares,
}
"""All methods."""

_STEPS = 2000
"""Maximum number of steps in each of the two phases of `merge_by_gradient`."""


def central_index(controllers: Controllers) -> int:
    """Returns the index of the controller with the law nearest to the mean law.

    Laws are compared by their impulse responses C A^k B for k < 2n, which do not depend on
    coordinates.
    """
    weights = equal_weights(controllers)
    laws = np.stack([k.responses(2 * k.shape[0]).ravel() for k in controllers])
    distances = np.sum((laws - weights @ laws) ** 2, axis=1)
    return int(np.argmin(distances))


def _balanced(controllers: Controllers) -> tuple[list[Controller], np.ndarray]:
    """Returns the controllers in balanced coordinates, and their transforms to them."""
    frames = np.stack([balancing_transform(k) for k in controllers])
    return [k.transformed(T) for k, T in zip(controllers, frames, strict=True)], frames


def _mean(controllers: Controllers) -> Controller:
    weights = equal_weights(controllers)
    vectors = np.stack([k.to_vector() for k in controllers])
    return controller_from_vector(weights @ vectors, controllers[0].shape)


def _distance(first: Controller, second: Controller) -> float:
    return float(np.sum((first.to_vector() - second.to_vector()) ** 2))
