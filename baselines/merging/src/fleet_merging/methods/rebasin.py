"""Averages of models: as they are, or aligned by matching or by gradient descent.

MergeMany aligns one model after the other with the average of the others. That average is the sum
of all models less one. So the sum travels from one alignment to the next, and a round costs as many
averages as there are models.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal, get_args

import numpy as np
import torch

from fleet_merging.average import WeightedSum, floating_tensors, interpolate, weighted_sum
from fleet_merging.errors import MergeError, require_choice
from fleet_merging.matching.activations import match_moments
from fleet_merging.matching.sinkhorn import harden
from fleet_merging.matching.soft_descent import Descent, Gradient, descend
from fleet_merging.matching.weights import match_weights
from fleet_merging.methods.facts import method, require_moments, required, variant
from fleet_merging.problem import MergeProblem, MergeResult
from fleet_merging.queries.data_holder import DataHolder
from fleet_merging.queries.query import MomentQuery
from fleet_merging.queries.traffic import TrafficMeter
from fleet_merging.symmetry.group import Permutation
from fleet_merging.symmetry.table import State

_DISTANCES = ("l1", "l2")
LOSSES = (*_DISTANCES, "midpoint", "random_point")
STARTS = ("identity", "matching")

Alignment = Literal["none", "weights", "activations"]

Permuted = Callable[[int, Permutation], State]
"""permuted(i, permutation): the permuted weights of model i."""

Align = Callable[[int, State, Permutation], Permutation]
"""align(i, reference, permutation): a new permutation of model i, close to a reference."""


@method(
    "naive_average",
    "Federated averaging",
    source="McMahan et al. 2017",
    start="common",
    permutes=False,
)
def naive_average(problem: MergeProblem) -> MergeResult:
    """Returns the weighted mean of models, without alignment of their units."""
    identities = tuple(problem.group.identity() for _ in problem.models)
    return MergeResult.network(problem.mean(), identities)


@method("git_rebasin", "Git Re-Basin, weight matching", source="Ainsworth et al. 2023")
def git_rebasin(
    problem: MergeProblem, *, rounds: int = 20, alignment: str = "weights"
) -> MergeResult:
    """Aligns models by matching, then averages them.

    Of two models, the second one is aligned with the first one; more models are aligned in turn,
    each with the average of the others (MergeMany).

    Args:
        problem: The models.
        rounds: Maximum number of rounds of MergeMany.
        alignment: "weights"; or "activations", once and by moments of all data holders, see
            `align`, as in the paper's account of this method.

    Raises:
        MergeError: `rounds` is less than 1, or `align` raises it.
        MessageError: A data holder's answer is invalid.
    """
    meter = TrafficMeter()
    if alignment == "weights":
        permutations = match_models(problem, rounds)
    else:
        permutations = align(problem, alignment, meter)
    return MergeResult.network(problem.mean(permutations), permutations, meter.traffic)


def match_models(problem: MergeProblem, rounds: int = 20) -> tuple[Permutation, ...]:
    """Returns the permutations of `git_rebasin`, with the same arguments."""
    generator = np.random.default_rng(problem.seed)

    def permuted(index: int, permutation: Permutation) -> State:
        return problem.symmetry.apply(permutation, problem.models[index])

    def align(index: int, reference: State, before: Permutation) -> Permutation:
        return match_weights(problem.symmetry, reference, problem.models[index], generator, before)

    return alternate(problem, permuted, align, generator, rounds)


@variant(
    "sinkhorn_rebasin_l1", "Sinkhorn Re-Basin, L1 distance", needs=(), asks="nothing", loss="l1"
)
@variant(
    "sinkhorn_rebasin_l2", "Sinkhorn Re-Basin, L2 distance", needs=(), asks="nothing", loss="l2"
)
@variant("sinkhorn_rebasin_midpoint", "Sinkhorn Re-Basin, loss of the midpoint", loss="midpoint")
@method(
    "sinkhorn_data",
    "Sinkhorn Re-Basin on data",
    source="Peña et al. 2023",
    needs=("shared_data_holder",),
    asks="shared data only: gradients, steps",
)
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
    again from the start and with the average of the others. With a loss on shared data, that is the
    paper's *sinkhorn-data*.

    Args:
        problem: The models; with a shared data holder for "midpoint" and "random_point".
        loss: The loss to minimize. "l1" or "l2": the distance of permuted weights from the
            reference's. "midpoint": the loss on data of the model halfway between the two.
            "random_point": the loss of a point drawn anew in each step (the paper's eq.
            grad_update).
        start: "identity", or "matching" of weights.
        trust: Weight of the start's entries in the first projection. None, as published, begins
            nearly uniform with tau = 1. This is right for the identity, an arbitrary start between
            unrelated models, but a matching needs about 0.9. See `descend`.
        descent: Parameters of the descent; defaults if None.
        rounds: Maximum number of rounds of the alternation.

    Raises:
        MergeError: An option is unknown or out of range, or there are no data.
        MessageError: The data holder's answer is invalid.
    """
    require_choice("The loss", loss, LOSSES)
    require_choice("The start", start, STARTS)
    descent = descent or Descent()
    generator = np.random.default_rng(problem.seed)
    meter = TrafficMeter()
    if loss not in _DISTANCES:
        required(problem, "shared_data_holder")
    data_holder = None if loss in _DISTANCES else problem.shared_data_holder

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
            problem.symmetry, problem.models[index], begin, gradient, descent, generator, trust
        )
        return harden(problem.group, soft)

    permutations = alternate(problem, permuted, align, generator, rounds)
    return MergeResult.network(problem.mean(permutations), permutations, meter.traffic)


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


def align(problem: MergeProblem, by: str, meter: TrafficMeter) -> tuple[Permutation, ...]:
    """Returns a permutation for each model; the meter counts the traffic.

    With "none", for models with the same initial weights, nothing is permuted. For "weights", see
    `match_models`. With "activations", each model is matched with the one of the largest averaging
    weight, by covariances from its data holder.
    """
    require_choice("The alignment", by, get_args(Alignment))
    if by == "weights":
        return match_models(problem)
    identity = problem.group.identity()
    if by == "none":
        return tuple(identity for _ in problem.models)
    require_moments(problem)
    largest = int(np.argmax(problem.normalized_weights))
    reference = problem.models[largest]
    names = tuple(each.name for each in problem.affine_maps)
    others = [index for index in range(len(problem.models)) if index != largest]
    queries = [MomentQuery(reference, names, "inputs", problem.models[index]) for index in others]
    holders = [problem.data_holders[index] for index in others]
    permutations = {largest: identity}
    answers = meter.ask_all_moments(holders, queries, problem.affine_maps)
    for index, moments in zip(others, answers, strict=True):
        products = {name: each.targets for name, each in moments.items()}
        permutations[index] = match_moments(
            problem.symmetry,
            reference,
            problem.models[index],
            problem.affine_maps,
            products,
            np.random.default_rng((problem.seed, index)),
        )
    return tuple(permutations[index] for index in range(len(problem.models)))


def alternate(
    problem: MergeProblem,
    permuted: Permuted,
    align: Align,
    generator: np.random.Generator,
    rounds: int,
) -> tuple[Permutation, ...]:
    """Aligns models in turn, in a new random order in each round, until a round changes nothing.

    Of two models, the second one is aligned with the first one, without rounds. `permuted` returns
    the terms of the reference's average.
    """
    if rounds < 1:
        raise MergeError(f"The number of rounds of an alternation is {rounds}. Give at least 1.")
    permutations: list[Permutation] = [problem.group.identity() for _ in problem.models]
    count = len(permutations)
    if count <= 2:
        for second in range(1, count):
            reference = permuted(0, permutations[0])
            permutations[second] = align(second, reference, permutations[second])
        return tuple(permutations)
    weights = problem.normalized_weights
    for _ in range(rounds):
        # Summed anew in each round, so that rounding does not accumulate.
        total = weighted_sum(map(permuted, range(count), permutations), weights.tolist())
        changed = False
        for index in generator.permutation(count).tolist():
            weight, before = float(weights[index]), permutations[index]
            own = permuted(index, before)
            # At most one model has more than half of the weight, and the difference would cancel.
            others = (
                total.plus(own, -weight)
                if weight <= 0.5
                else _others(permuted, permutations, weights, index)
            )
            found = align(index, others.mean(own), before)
            if any(not np.array_equal(found[name], before[name]) for name in found):
                changed, permutations[index] = True, found
                total = total.plus(own, -weight).plus(permuted(index, found), weight)
        if not changed:
            break
    return tuple(permutations)


def _others(
    permuted: Permuted, permutations: list[Permutation], weights: np.ndarray, index: int
) -> WeightedSum:
    """Returns the sum of all models but one; with equal weights if all of these are zero."""
    others = [other for other in range(len(permutations)) if other != index]
    values = weights[others] if weights[others].any() else np.ones(len(others))
    return weighted_sum((permuted(i, permutations[i]) for i in others), values.tolist())
