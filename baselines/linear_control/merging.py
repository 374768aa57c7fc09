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

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.optimize

from fleet_tools.baselines.linear_control.alignment import (
    Controllers,
    Weights,
    align,
    balancing,
    best_merged,
    check_fleet,
    transform_loss,
)
from fleet_tools.baselines.linear_control.permutations import assign_one_sided, climb
from fleet_tools.baselines.linear_control.systems import Controller, controller_from_vector


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
    weights = check_fleet(controllers, weights)
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
    weights = check_fleet(controllers, weights)
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


def merge_by_least_squares(
    controllers: Controllers,
    weights: Weights = None,
    *,
    reference: int | None = None,
    balance: bool = True,
    iterations: int = 200,
) -> Merge:
    """Alternates between the two exact minimizers of eq:linear_obj_inv_two over GL(n).

    The transforms by `align`, the merged controller by least squares, as the paper's remark
    suggests; the objective never rises. Transforms of one controller are exact after one sweep.

    Args:
        controllers: Of one shape.
        weights: Relative, not negative; equal by default.
        reference: Index of the controller in whose coordinates, balanced or its own, the merged
            one comes out; by default that whose law is nearest to the mean law (`central`), so
            that order does not matter.
        balance: Whether all are brought to balanced coordinates first. As it stands the loss
            depends on each robot's coordinates, and states that hardly reach the law weigh as
            much as others: learned controllers of nearly optimal cost then merge badly.
        iterations: At most so many sweeps.

    Raises:
        LinearControlError: The controllers differ in shape, or there are none.
    """
    weights = check_fleet(controllers, weights)
    reference = central(controllers, weights) if reference is None else reference
    controllers, frames = _frames(controllers, balance)
    merged = controllers[reference]
    eye = np.eye(merged.shape[0])
    losses: list[float] = []
    for _ in range(iterations):
        transforms = np.stack(
            [eye if i == reference else align(k, merged) for i, k in enumerate(controllers)]
        )
        merged = best_merged(controllers, weights, transforms)
        losses.append(transform_loss(merged, transforms, controllers, weights)[0])
        if len(losses) > 1 and losses[-1] >= losses[-2] * (1.0 - 1e-9):
            break
    return Merge(merged, frames @ transforms, tuple(losses))


def merge_by_gradient(
    controllers: Controllers,
    weights: Weights = None,
    *,
    reference: int | None = None,
    balance: bool = True,
    iterations: int = 2000,
) -> Merge:
    """Descends eq:linear_obj_inv_two over the merged controller and all T_i (paper, "Method 2").

    First the transforms, from I, towards the reference controller: this is convex, so that a
    negative determinant is reached through singular matrices, where the loss is finite. Then all
    together, the merged controller always at its minimum for the transforms. The steps are those
    of L-BFGS. (Descending over everything at once from the start is slow where the scales of B and
    C differ, and can end in a valley where one transform grows without bound.)

    Args and errors as `merge_by_least_squares`; `iterations` are steps in each of the two parts.
    """
    weights = check_fleet(controllers, weights)
    reference = central(controllers, weights) if reference is None else reference
    controllers, frames = _frames(controllers, balance)
    start = average(controllers).transforms
    losses: list[float] = []

    def towards_reference(T: np.ndarray) -> Controller:
        return controllers[reference]

    def towards_best(T: np.ndarray) -> Controller:
        return best_merged(controllers, weights, T)

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
    return Merge(towards_best(transforms), frames @ transforms, tuple(losses))


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
    weights = check_fleet(controllers, weights)
    laws = np.stack([k.responses(2 * k.shape[0]).ravel() for k in controllers])
    distances = np.sum((laws - weights @ laws) ** 2, axis=1)
    return int(np.argmin(np.where(weights > 0.0, distances, np.inf)))


def _frames(controllers: Controllers, balance: bool) -> tuple[list[Controller], np.ndarray]:
    n = controllers[0].shape[0]
    frames = np.stack([balancing(k) if balance else np.eye(n) for k in controllers])
    return [k.transformed(T) for k, T in zip(controllers, frames, strict=True)], frames


def _mean(controllers: Controllers, weights: np.ndarray) -> Controller:
    vectors = np.stack([k.to_vector() for k in controllers])
    return controller_from_vector(weights @ vectors, controllers[0].shape)


def _distance(first: Controller, second: Controller) -> float:
    return float(np.sum((first.to_vector() - second.to_vector()) ** 2))
