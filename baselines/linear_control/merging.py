"""One linear controller from many: averages after alignment under permutations or GL(n).

Every method takes the controllers and their averaging weights, and returns a `MergedController`.
The transform T_i of a controller (P_i in the paper) is the one for which
`controllers[i].transformed(T_i)` is compared with the merged controller. Slips of the paper here:

- "Merging step": A-bar is the mean of P_i' A_i P_i; printed is A_i' P_i A_i.
- eq:linear_obj_inv has C for B in its second term, and A_i P_i for C_i P_i in the third.
- eq:two_lin_merge has B_1 P for P B_1, and T C for C T^-1 in its equivalent controller.
- eq:linear_obj_inv_two: P_i = 0 is not optimal, as the remark says; but for any candidate,
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
    AveragingWeights,
    Controllers,
    align,
    align_by_assignment,
    align_by_frank_wolfe,
    alignment_loss,
    balancing_transform,
    best_merged_controller,
    normalized_weights,
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


def average(
    controllers: Controllers, averaging_weights: AveragingWeights = None
) -> MergedController:
    """Averages the matrices in the coordinates in which they are given."""
    weights = normalized_weights(controllers, averaging_weights)
    identities = np.stack([np.eye(controllers[0].shape[0])] * len(controllers))
    return MergedController(_mean(controllers, weights), identities)


def merge_by_permutation(
    controllers: Controllers,
    averaging_weights: AveragingWeights = None,
    *,
    iterations: int = 100,
    monotone: bool = True,
) -> MergedController:
    """Alternates between averaging and aligning with permutations (paper, "Method 1").

    Minimizes eq:linear_obj. Given the average, the paper aligns by the assignment
    max <P, A_i' P_old A-bar + B_i B-bar' + C_i' C-bar>, with one side of the quadratic term held at
    the last permutation. This may increase the objective, and cycle. By default, Frank-Wolfe steps
    with exact line search on the quadratic assignment are used instead, and a permutation is
    accepted only if it decreases the objective, which then never increases. The first average is
    the central controller (`central_index`): the mean of all in their given coordinates resembles
    none of them.

    Args:
        controllers: Controllers of one shape.
        averaging_weights: Relative weights of the controllers, not negative; equal by default.
        iterations: Maximum number of alternations.
        monotone: Whether to use Frank-Wolfe steps; False for the paper's assignment.

    Raises:
        LinearControlError: The controllers differ in shape, or there are none.
    """
    weights = normalized_weights(controllers, averaging_weights)
    merged = controllers[central_index(controllers, weights)]
    transforms = average(controllers).transforms
    align_one = align_by_frank_wolfe if monotone else align_by_assignment
    losses: list[float] = []
    for _ in range(iterations):
        transforms = np.stack(
            [align_one(k, merged, P) for k, P in zip(controllers, transforms, strict=True)]
        )
        aligned = [k.transformed(P) for k, P in zip(controllers, transforms, strict=True)]
        merged = _mean(aligned, weights)
        losses.append(sum(w * _distance(k, merged) for w, k in zip(weights, aligned, strict=True)))
        if losses[-1] in losses[:-1]:  # a fixed point or, without `monotone`, a cycle
            break
    return MergedController(merged, transforms, tuple(losses))


def merge_by_least_squares(
    controllers: Controllers,
    averaging_weights: AveragingWeights = None,
    *,
    reference: int | None = None,
    balance: bool = True,
    iterations: int = 200,
) -> MergedController:
    """Alternates between the two exact minimizations of eq:linear_obj_inv_two over GL(n).

    It finds the transforms by `align` and the merged controller by least squares, as the paper's
    remark suggests; the objective never increases. Transforms of one controller are exact after one
    iteration.

    Args:
        controllers: Controllers of one shape.
        averaging_weights: Relative weights of the controllers, not negative; equal by default.
        reference: Index of the controller whose coordinates, balanced or its own, the merged one
            has. By default it is the one whose law is nearest to the mean law (`central_index`), so
            that the order does not matter.
        balance: Whether all are first brought to balanced coordinates. Otherwise the loss depends
            on the coordinates of each controller, and states that hardly affect the law count as
            much as others: learned controllers of nearly optimal cost then merge badly.
        iterations: Maximum number of iterations, at least 1.

    Raises:
        LinearControlError: The controllers differ in shape, or there are none.
    """
    weights = normalized_weights(controllers, averaging_weights)
    reference = central_index(controllers, weights) if reference is None else reference
    controllers, frames = _in_frames(controllers, balance)
    merged = controllers[reference]
    eye = np.eye(merged.shape[0])
    transforms = np.stack([eye] * len(controllers))
    losses: list[float] = []
    for _ in range(iterations):
        transforms = np.stack(
            [eye if i == reference else align(k, merged) for i, k in enumerate(controllers)]
        )
        merged = best_merged_controller(controllers, weights, transforms)
        losses.append(alignment_loss(merged, transforms, controllers, weights)[0])
        if len(losses) > 1 and losses[-1] >= losses[-2] * (1.0 - 1e-9):
            break
    return MergedController(merged, frames @ transforms, tuple(losses))


def merge_by_gradient(
    controllers: Controllers,
    averaging_weights: AveragingWeights = None,
    *,
    reference: int | None = None,
    balance: bool = True,
    iterations: int = 2000,
) -> MergedController:
    """Minimizes eq:linear_obj_inv_two over the merged controller and all T_i (paper, "Method 2").

    In the first stage, the transforms are optimized from I, with the reference controller as the
    merged one. This problem is convex; a negative determinant is reached through singular matrices,
    at which the loss is finite. In the second stage, the merged controller is always the optimal
    one for the transforms. Both use L-BFGS. (A descent over all variables from the start is slow if
    the scales of B and C differ. It can follow a valley in which one transform grows without
    bound.)

    Args:
        controllers: See `merge_by_least_squares`.
        averaging_weights: See `merge_by_least_squares`.
        reference: See `merge_by_least_squares`.
        balance: See `merge_by_least_squares`.
        iterations: Maximum number of steps in each of the two stages.

    Raises:
        LinearControlError: The controllers differ in shape, or there are none.
    """
    weights = normalized_weights(controllers, averaging_weights)
    index = central_index(controllers, weights) if reference is None else reference
    framed, frames = _in_frames(controllers, balance)
    start = average(framed).transforms
    losses: list[float] = []

    def reference_controller(T: np.ndarray) -> Controller:
        return framed[index]

    def best_controller(T: np.ndarray) -> Controller:
        return best_merged_controller(framed, weights, T)

    transforms = start
    for choose_merged in (reference_controller, best_controller):

        def evaluate(
            vector: np.ndarray, choose: Callable[[np.ndarray], Controller] = choose_merged
        ) -> tuple[float, np.ndarray]:
            T = vector.reshape(start.shape)
            loss, _, gradient = alignment_loss(choose(T), T, framed, weights)
            gradient[index] = 0.0  # it keeps its coordinates
            return loss, gradient.ravel()

        # A long memory, as coordinates of different scales make the valley narrow.
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
    return MergedController(best_controller(transforms), frames @ transforms, tuple(losses))


METHODS: dict[str, Callable[..., MergedController]] = {
    "average": average,
    "permutation": merge_by_permutation,
    "gradient": merge_by_gradient,
    "least_squares": merge_by_least_squares,
}
"""All methods, called with controllers and averaging weights."""


def central_index(controllers: Controllers, averaging_weights: AveragingWeights = None) -> int:
    """Returns the index of the controller whose law is nearest to the weighted mean law.

    Laws are compared by their impulse responses C A^k B for k < 2n, which do not depend on
    coordinates.
    """
    weights = normalized_weights(controllers, averaging_weights)
    laws = np.stack([k.responses(2 * k.shape[0]).ravel() for k in controllers])
    distances = np.sum((laws - weights @ laws) ** 2, axis=1)
    return int(np.argmin(np.where(weights > 0.0, distances, np.inf)))


def _in_frames(controllers: Controllers, balance: bool) -> tuple[list[Controller], np.ndarray]:
    """Returns the controllers in balanced or in given coordinates, and their transforms to them."""
    n = controllers[0].shape[0]
    frames = np.stack([balancing_transform(k) if balance else np.eye(n) for k in controllers])
    return [k.transformed(T) for k, T in zip(controllers, frames, strict=True)], frames


def _mean(controllers: Controllers, weights: np.ndarray) -> Controller:
    vectors = np.stack([k.to_vector() for k in controllers])
    return controller_from_vector(weights @ vectors, controllers[0].shape)


def _distance(first: Controller, second: Controller) -> float:
    return float(np.sum((first.to_vector() - second.to_vector()) ** 2))
