"""MergeMany: one model after the other is aligned with the average of the others.

The sum over all models travels from one alignment to the next: the average of the others is the sum
less one model, so that a round costs as many averages as there are models, whatever their number.
"""

from collections.abc import Callable

import numpy as np

from fleet_tools.baselines.merging.average import WeightedSum, weighted_sum
from fleet_tools.baselines.merging.errors import MergeError
from fleet_tools.baselines.merging.problem import MergeProblem
from fleet_tools.baselines.merging.symmetry.group import Permutation
from fleet_tools.baselines.merging.symmetry.table import State

Permuted = Callable[[int, Permutation], State]
"""permuted(i, permutation): what is averaged of model i, its weights or activations, permuted."""

Align = Callable[[int, State, Permutation], Permutation]
"""align(i, reference, permutation): a new permutation of model i, close to a reference."""


def alternate(
    problem: MergeProblem,
    permuted: Permuted,
    align: Align,
    generator: np.random.Generator,
    rounds: int,
) -> tuple[Permutation, ...]:
    """Aligns models in turn, in a new random order in each round, until a round changes nothing.

    Of two models, the second one is aligned with the first one, without rounds.

    Args:
        problem: The models.
        permuted: What the reference is the average of.
        align: Aligns one model with the average of the others, from its present permutation.
        generator: Draws the orders.
        rounds: Maximum number of rounds.

    Returns:
        The permutation of each model.

    Raises:
        MergeError: `rounds` is less than 1.
    """
    if rounds < 1:
        raise MergeError(f"An alternation has {rounds} rounds. Give at least one.")
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
            if not _same(found, before):
                changed, permutations[index] = True, found
                total = total.plus(own, -weight).plus(permuted(index, found), weight)
        if not changed:
            break
    return tuple(permutations)


def _others(
    permuted: Permuted, permutations: list[Permutation], weights: np.ndarray, index: int
) -> WeightedSum:
    """Returns the sum of all models but one; they count the same if none of them has weight."""
    others = [other for other in range(len(permutations)) if other != index]
    values = weights[others] if weights[others].any() else np.ones(len(others))
    return weighted_sum((permuted(i, permutations[i]) for i in others), values.tolist())


def _same(one: Permutation, other: Permutation) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in one)
