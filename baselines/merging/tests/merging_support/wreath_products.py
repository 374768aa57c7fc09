"""The group operations of hard elements, for laws of the action of permutations."""

import numpy as np

from fleet_merging.symmetry.group import Permutation, PermutationGroup


def compose(
    group: PermutationGroup, second: Permutation, first: Permutation
) -> dict[str, np.ndarray]:
    """Returns the hard element that acts as `first`, and then as `second`."""
    composed = {}
    for name in group.sizes:
        argument = np.asarray(first[name])
        if name in group.owners:
            argument = argument[second[group.owners[name]]]
        composed[name] = np.take_along_axis(argument, np.asarray(second[name]), axis=-1)
    return composed


def invert(group: PermutationGroup, permutation: Permutation) -> dict[str, np.ndarray]:
    """Returns the inverse of a hard element."""
    inverse = {name: np.argsort(np.asarray(permutation[name]), axis=-1) for name in group.sizes}
    for name, owner in group.owners.items():
        inverse[name] = inverse[name][inverse[owner]]
    return inverse
