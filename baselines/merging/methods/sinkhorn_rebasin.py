"""Sinkhorn re-basin (Peña et al. 2023), and the paper's sinkhorn-data, which alternates it."""

from functools import partial

import numpy as np
import torch

from fleet_tools.baselines.merging.average import floating_tensors, interpolate
from fleet_tools.baselines.merging.errors import MergeError
from fleet_tools.baselines.merging.matching.sinkhorn import harden
from fleet_tools.baselines.merging.matching.soft_descent import Descent, Gradient, descend
from fleet_tools.baselines.merging.matching.weights import match_weights
from fleet_tools.baselines.merging.methods.alternation import alternate
from fleet_tools.baselines.merging.problem import MergeProblem, MergeResult
from fleet_tools.baselines.merging.queries.data_holder import DataHolder, TrafficMeter
from fleet_tools.baselines.merging.symmetry.group import Permutation
from fleet_tools.baselines.merging.symmetry.table import State

_DISTANCES = ("l1", "l2")
LOSSES = (*_DISTANCES, "midpoint", "random_point")
STARTS = ("identity", "matching")


def sinkhorn_rebasin(
    problem: MergeProblem,
    *,
    loss: str = "random_point",
    start: str = "identity",
    trust: float | None = None,
    descent: Descent | None = None,
    rounds: int = 3,
) -> MergeResult:
    """Aligns models by gradient descent on soft permutations, projects these, then averages.

    Of two models, the second one is aligned with the first one. More are aligned in turn, each
    again from the start and with the average of the others: with a loss on shared data, that is the
    paper's *sinkhorn-data*.

    Args:
        problem: The models; with a shared data holder for "midpoint" and "random_point".
        loss: The loss to minimize: "l1" or "l2", the distance of the permuted weights from the
            reference's; "midpoint", the loss on data of the model halfway between the two; or
            "random_point", that of a point drawn anew in each step (eq. grad_update of the paper).
        start: "identity", or "matching" of weights.
        trust: Weight of the start's entries in the first projection. None, as published, begins
            nearly uniform with tau = 1: right from the identity, which is no better than any other
            start between unrelated models, but a matching needs about 0.9. See `descend`.
        descent: Parameters of the descent; defaults if None.
        rounds: Maximum number of rounds of the alternation.

    Raises:
        MergeError: `loss` or `start` is unknown, there are no data, or `rounds` is less than 1.
        MessageError: The data holder's answer is invalid.
    """
    if loss not in LOSSES:
        raise MergeError(f"The loss is {loss!r}; known are {', '.join(LOSSES)}.")
    require_start(start)
    descent = descent or Descent()
    generator = np.random.default_rng(problem.seed)
    meter = TrafficMeter()
    data_holder = None if loss in _DISTANCES else _shared_data_holder(problem, loss)

    def permuted(index: int, permutation: Permutation) -> State:
        return problem.symmetry.apply(permutation, problem.models[index])

    def align(index: int, reference: State, _: Permutation) -> Permutation:
        begin = problem.group.identity()
        if start == "matching":
            begin = match_weights(problem.symmetry, reference, problem.models[index], generator)
        gradient: Gradient
        if data_holder is None:
            gradient = partial(_distance_gradient, loss, reference)
        else:
            gradient = partial(_data_gradient, loss, reference, data_holder, generator, meter)
        soft = descend(
            problem.symmetry,
            problem.models[index],
            begin,
            gradient,
            descent,
            generator,
            trust,
        )
        return harden(problem.group, soft)

    permutations = alternate(problem, permuted, align, generator, rounds)
    return MergeResult.network(problem.mean(permutations), permutations, meter.traffic)


def require_start(start: str) -> None:
    """Raises an error if a start is none of `STARTS`.

    Raises:
        MergeError: It is none of them.
    """
    if start not in STARTS:
        raise MergeError(f"The start is {start!r}; known are {', '.join(STARTS)}.")


def _shared_data_holder(problem: MergeProblem, loss: str) -> DataHolder:
    if problem.shared_data_holder is None:
        raise MergeError(
            f"The loss {loss!r} needs data common to all models: give the merge problem's "
            "`shared_data_holder`, or use 'l1' or 'l2', which need none. For data that stay apart, "
            "use fleet_merge."
        )
    return problem.shared_data_holder


def _data_gradient(
    loss: str,
    reference: State,
    data_holder: DataHolder,
    generator: np.random.Generator,
    meter: TrafficMeter,
    permuted: State,
) -> dict[str, torch.Tensor]:
    coefficient = 0.5 if loss == "midpoint" else generator.uniform()
    model = interpolate(reference, permuted, coefficient)
    answer = meter.ask(data_holder, model, int(generator.integers(2**31)))
    return {name: coefficient * value for name, value in answer.gradient.items()}


def _distance_gradient(loss: str, reference: State, permuted: State) -> dict[str, torch.Tensor]:
    differences = {
        name: value - reference[name].to(value.device)
        for name, value in floating_tensors(permuted).items()
    }
    if loss == "l1":
        return {name: difference.sign() for name, difference in differences.items()}
    return {name: 2 * difference for name, difference in differences.items()}
