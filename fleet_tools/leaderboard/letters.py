"""Letters that methods share if they cannot be told apart: a compact display of all comparisons.

Each pair of methods with a total is compared scene by scene, by the means over their training runs.
In all comparisons of a ranking together, two methods that are equal are told apart with a
probability of at most 5%, whichever these are (Holm 1979). Results on the leaderboard are complete,
so that the tests are for a fixed number of scenes. They are about the policies as they were
trained: three training runs tell too little about the next one for so many comparisons, and a
single one tells nothing.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, combinations_with_replacement
from string import ascii_lowercase

import numpy as np

from fleet_tools.evaluation.protocol import Protocol
from fleet_tools.leaderboard.standings import Standing, covering_runs, outcome_table
from fleet_tools.utils.crossed_statistics import crossed_paired_p_value
from fleet_tools.utils.statistics import told_apart


def method_letters(standings: Sequence[Standing], protocol: Protocol) -> dict[str, str]:
    """Returns the letters of each method with a total, by its label.

    Args:
        standings: Methods of a ranking, the best first: the best one has the letter a.
        protocol: Their protocol.
    """
    compared = [standing for standing in standings if standing.overall]
    tables = [_tables(standing, protocol) for standing in compared]
    pairs = [*combinations(range(len(compared)), 2)]
    told = told_apart(
        [
            crossed_paired_p_value(
                [first - second for first, second in zip(tables[one], tables[other], strict=True)]
            )
            for one, other in pairs
        ]
    )
    alike = {pair for pair, apart in zip(pairs, told, strict=True) if not apart}
    letters = compact_letters(len(compared), alike)
    return {standing.label: text for standing, text in zip(compared, letters, strict=True)}


def _tables(standing: Standing, protocol: Protocol) -> list[np.ndarray]:
    """Returns the means of outcomes over training runs, (1, scenes), by pair of task and split."""
    runs = covering_runs(standing.training_runs, protocol)
    return [
        outcome_table(runs, [(task, split)]).mean(axis=0, keepdims=True)
        for task in protocol.tasks
        for split in protocol.splits
    ]


def compact_letters(count: int, alike: set[tuple[int, int]]) -> list[str]:
    """Returns letters for each of some items, of which two share one exactly where they are alike.

    No letter can be left out. Each stands for items that are all alike, and to which no other item
    could be added. They are named by their first items: a, b, ..., z, a1, b1, ...

    Args:
        count: Number of items.
        alike: Pairs of items that are alike, the lower number first.
    """
    groups = sorted(_needed([*_groups(count, alike)]))
    names = [f"{ascii_lowercase[k % 26]}{k // 26 or ''}" for k in range(len(groups))]
    return [
        "".join(name for name, group in zip(names, groups, strict=True) if item in group)
        for item in range(count)
    ]


def _groups(count: int, alike: set[tuple[int, int]]) -> Iterator[tuple[int, ...]]:
    """Yields largest groups of items that are all alike, until every pair and item is in one."""
    neighbours: list[set[int]] = [set() for _ in range(count)]
    for one, other in alike:
        neighbours[one].add(other)
        neighbours[other].add(one)
    left = {*alike, *((item, item) for item in range(count))}
    while left:
        one, other = min(left, key=lambda pair: (pair[0] == pair[1], pair))
        group = {one, other}
        for item in range(count):
            if group <= neighbours[item]:
                group.add(item)
        found = tuple(sorted(group))
        left.difference_update(combinations_with_replacement(found, 2))
        yield found


def _needed(groups: Sequence[tuple[int, ...]]) -> Iterator[tuple[int, ...]]:
    """Yields those groups without which a pair, or an item, would be in none."""
    times = Counter(pair for group in groups for pair in combinations_with_replacement(group, 2))
    for group in groups:
        pairs = [*combinations_with_replacement(group, 2)]
        if all(times[pair] > 1 for pair in pairs):
            times.subtract(pairs)
        else:
            yield group
