"""Compact letter display: methods share a letter if the data do not separate them.

Each pair of ranked methods is compared scene by scene, by the means over their training runs.
In all comparisons of a track together, two methods that are equal are told apart with a
probability of at most 5%, whichever these are (Holm 1979). Runs of the host are complete, so
that the tests are for a fixed number of scenes. They are about the policies as they were
trained: three training runs tell too little about the next one for so many comparisons, and a
single one tells nothing.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, combinations_with_replacement
from string import ascii_lowercase

import numpy as np

from fleet_tools.utils.crossed_statistics import crossed_paired_p_value
from fleet_tools.utils.statistics import told_apart


def method_letters(methods: Sequence[Sequence[np.ndarray]]) -> list[str]:
    """Returns the letters of methods, of which the first, the best one, has the letter a.

    Args:
        methods: Of each, the outcomes by pair of task and split, (training runs, scenes).
    """
    means = [[table.mean(axis=0, keepdims=True) for table in tables] for tables in methods]
    pairs = [*combinations(range(len(means)), 2)]
    told = told_apart(
        [
            crossed_paired_p_value([a - b for a, b in zip(means[one], means[other], strict=True)])
            for one, other in pairs
        ]
    )
    return compact_letters(
        len(means), {pair for pair, apart in zip(pairs, told, strict=True) if not apart}
    )


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
