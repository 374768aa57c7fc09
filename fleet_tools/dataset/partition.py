"""Partitions of a pool of data among robots, with adjustable heterogeneity."""

from collections.abc import Hashable, Sequence

import numpy as np

from fleet_tools.errors import ConfigError


def dirichlet_partition(
    labels: Sequence[Hashable], robots: int, alpha: float, generator: np.random.Generator
) -> list[list[int]]:
    """Partitions items among robots, so that each robot has its own mixture of labels.

    Hsu, Qi and Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated
    Visual Classification", 2019. Every robot draws its mixture from Dirichlet(alpha p), where p are
    the shares of the labels in the pool, and takes items of labels drawn from it, as long as there
    are any. Robots take one item at a time in turn, so that all meet the same scarcity, and their
    numbers of items differ by at most one.

    Args:
        labels: Label of every item, such as its tool, its task or its pair of tool and object.
        robots: Number of robots, at least 1 and at most the number of items.
        alpha: Concentration: towards 0, a robot has items of one label; towards infinity, all
            robots have the mixture p.
        generator: Draws mixtures and items.

    Returns:
        The indices of every robot's items, ascending; every item belongs to exactly one robot.

    Raises:
        ConfigError: There is no such partition.
    """
    if not 1 <= robots <= len(labels):
        raise ConfigError(
            f"{len(labels)} items need between 1 and {len(labels)} robots; given: {robots!r}."
        )
    if not 0 < alpha < np.inf:
        raise ConfigError(f"Expected a positive number as alpha; given: {alpha!r}.")
    piles: dict[Hashable, list[int]] = {}
    for index, label in enumerate(labels):
        piles.setdefault(label, []).append(index)
    shuffled = [generator.permutation(pile).tolist() for pile in piles.values()]
    left = np.array([len(pile) for pile in shuffled])
    mixtures = generator.dirichlet(alpha * left / len(labels), size=robots)
    parts: list[list[int]] = [[] for _ in range(robots)]
    for turn in range(len(labels)):
        robot = turn % robots
        weights = mixtures[robot] * (left > 0)
        if weights.sum() == 0:  # none of its labels is left
            weights = left
        pile = generator.choice(len(left), p=weights / weights.sum())
        parts[robot].append(shuffled[pile].pop())
        left[pile] -= 1
    return [sorted(part) for part in parts]
