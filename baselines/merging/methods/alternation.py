"""MergeMany: one model after the other is aligned with the average of the others."""

from collections.abc import Callable, Sequence

import numpy as np

from fleet_tools.baselines.merging.errors import MergeError
from fleet_tools.baselines.merging.problem import MergeProblem
from fleet_tools.baselines.merging.symmetry.group import Permutation

Align = Callable[[int, Sequence[Permutation]], Permutation]
"""align(i, permutations): a new permutation of model i, given those of all models."""


def alternate(
    problem: MergeProblem, align: Align, generator: np.random.Generator, rounds: int
) -> tuple[Permutation, ...]:
    """Aligns models in turn, in a new random order in each round, until a round changes nothing.

    Of two models, the second one is aligned with the first one, without rounds.

    Args:
        problem: The models.
        align: Aligns one model with the others.
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
    if len(problem.models) <= 2:
        for second in range(1, len(problem.models)):
            permutations[second] = align(second, permutations)
        return tuple(permutations)
    for _ in range(rounds):
        before = list(permutations)
        for index in generator.permutation(len(permutations)).tolist():
            permutations[index] = align(index, permutations)
        if all(map(_same, before, permutations)):
            break
    return tuple(permutations)


def weights_without(problem: MergeProblem, index: int) -> np.ndarray:
    """Returns averaging weights of all models but one, with sum 1 and that one's weight 0.

    They are equal if all other models have no weight.

    Args:
        problem: The models.
        index: Index of the model to leave out.

    Returns:
        Shape (models,).
    """
    weights = problem.normalized_weights.copy()
    weights[index] = 0.0
    if not weights.any():
        weights = np.ones(len(weights))
        weights[index] = 0.0
    return weights / weights.sum()


def _same(one: Permutation, other: Permutation) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in one)
