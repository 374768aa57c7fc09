"""Averages of models as they are."""

from fleet_tools.baselines.merging.problem import Fleet, Merged


def naive_average(fleet: Fleet) -> Merged:
    """The weighted mean, unit by unit, of models that need not agree on what a unit is for."""
    identities = tuple(fleet.group.identity() for _ in fleet.models)
    return Merged(fleet.mean(identities), identities)


def common_init(fleet: Fleet) -> Merged:
    """A control: the weighted mean of models that the caller trained from one initialization.

    The arithmetic is `naive_average`'s; what differs is what the models have in common, which no
    one can see from here. Where it does as well, permutations are not what a method needs.
    """
    return naive_average(fleet)
