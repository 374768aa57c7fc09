"""MergeMany: one model after another is aligned with the average of the rest."""

from collections.abc import Callable, Sequence

import numpy as np

from fleet_tools.baselines.merging.errors import FleetError
from fleet_tools.baselines.merging.problem import Fleet
from fleet_tools.baselines.merging.symmetry.group import Permutation

Align = Callable[[int, Sequence[Permutation]], Permutation]
"""align(i, permutations): a new permutation of model i, given everyone's."""


def alternate(
    fleet: Fleet, align: Align, generator: np.random.Generator, rounds: int
) -> tuple[Permutation, ...]:
    """Aligns models in turn, in a new random order each round, until a round changes nothing.

    Two models need no turns: the second is aligned with the first.

    Args:
        fleet: The models.
        align: How one is aligned with the others.
        generator: Draws the orders.
        rounds: At most so many.

    Raises:
        FleetError: There are no rounds.
    """
    if rounds < 1:
        raise FleetError(f"An alternation has {rounds} rounds. Give at least one.")
    permutations: list[Permutation] = [fleet.group.identity() for _ in fleet.models]
    if len(fleet.models) <= 2:
        for second in range(1, len(fleet.models)):
            permutations[second] = align(second, permutations)
        return tuple(permutations)
    for _ in range(rounds):
        before = list(permutations)
        for at in generator.permutation(len(permutations)).tolist():
            permutations[at] = align(at, permutations)
        if all(map(_same, before, permutations)):
            break
    return tuple(permutations)


def rest_shares(fleet: Fleet, at: int) -> np.ndarray:
    """Everyone's weights but one model's; equal ones where the rest have none."""
    shares = fleet.shares.copy()
    shares[at] = 0.0
    if not shares.any():
        shares = np.ones(len(shares))
        shares[at] = 0.0
    return shares / shares.sum()


def _same(one: Permutation, other: Permutation) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in one)
