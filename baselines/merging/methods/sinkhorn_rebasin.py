"""Sinkhorn re-basin (Peña et al. 2023), and the paper's sinkhorn-data, which alternates it."""

import numpy as np
import torch

from fleet_tools.baselines.merging.average import average, floating, interpolate
from fleet_tools.baselines.merging.errors import FleetError
from fleet_tools.baselines.merging.matching.sinkhorn import harden
from fleet_tools.baselines.merging.matching.soft_descent import Descent, descend
from fleet_tools.baselines.merging.matching.weights import match_weights
from fleet_tools.baselines.merging.methods.alternation import alternate, rest_shares
from fleet_tools.baselines.merging.problem import Fleet, Merged
from fleet_tools.baselines.merging.queries.data_holder import Traffic, ask

LOSSES = ("l1", "l2", "midpoint", "random_point")
STARTS = ("identity", "matching")


def sinkhorn_rebasin(
    fleet: Fleet,
    *,
    loss: str = "random_point",
    start: str = "identity",
    trust: float = 0.9,
    descent: Descent | None = None,
    rounds: int = 3,
) -> Merged:
    """Aligns models by gradient descent on soft permutations, projects these, then averages.

    Of two models the second is aligned with the first. More are aligned in turn, each from the
    start anew and with the average of the rest: with a loss of shared data that is the paper's
    *sinkhorn-data*.

    Args:
        fleet: The models; with `shared` data for "midpoint" and "random_point".
        loss: What falls: "l1" or "l2", the distance of the permuted weights from the reference's;
            "midpoint", the loss on data of the model halfway between the two; or "random_point",
            that of a point drawn anew each step (eq. grad_update of the paper).
        start: "identity", or "matching" of weights.
        trust: The weight of what is matched in the first projection; ignored from the identity.
        descent: How it descends.
        rounds: Of the alternation, at most.

    Raises:
        FleetError: `loss` or `start` is unknown, or there are no data or no rounds.
        MessageError: The robot with the data answers what it was not asked.
    """
    if loss not in LOSSES:
        raise FleetError(f"The loss is {loss!r}; known are {', '.join(LOSSES)}.")
    require_start(start)
    if loss not in ("l1", "l2") and fleet.shared is None:
        raise FleetError(
            f"The loss {loss!r} needs data that all models share: give the fleet's `shared` robot, "
            "or take 'l1' or 'l2', which need none. With data that stay apart, use fleet_merge."
        )
    descent = descent or Descent()
    generator = np.random.default_rng(fleet.seed)
    group, traffic = fleet.group, Traffic()

    def align(at, permutations):
        reference = average(fleet.permuted(permutations), rest_shares(fleet, at))

        def gradient(permuted):
            nonlocal traffic
            if loss in ("l1", "l2"):
                return _distance_gradient(loss, permuted, reference)
            share = 0.5 if loss == "midpoint" else generator.uniform()
            model = interpolate(reference, permuted, share)
            answer, crossed = ask(fleet.shared, model, int(generator.integers(2**31)))
            traffic += crossed
            return {name: share * value for name, value in answer.gradient.items()}

        begin = group.identity()
        if start == "matching":
            begin = match_weights(fleet.symmetry, reference, fleet.models[at], generator)
        soft = descend(
            fleet.symmetry,
            fleet.models[at],
            begin,
            gradient,
            descent,
            generator,
            trust if start == "matching" else None,
        )
        return harden(group, soft)

    permutations = alternate(fleet, align, generator, rounds)
    return Merged(fleet.mean(permutations), permutations, traffic)


def require_start(start: str) -> None:
    """Sees to it that a start is one of `STARTS`.

    Raises:
        FleetError: It is not.
    """
    if start not in STARTS:
        raise FleetError(f"The start is {start!r}; known are {', '.join(STARTS)}.")


def _distance_gradient(loss: str, permuted, reference) -> dict[str, torch.Tensor]:
    differences = {
        name: value - reference[name].to(value.device) for name, value in floating(permuted).items()
    }
    if loss == "l1":
        return {name: difference.sign() for name, difference in differences.items()}
    return {name: 2 * difference for name, difference in differences.items()}
