"""Every method of merging, by name."""

from collections.abc import Callable
from functools import partial

from fleet_tools.baselines.merging.fleet import Fleet, Merged
from fleet_tools.baselines.merging.methods.fleet_merge import fleet_merge
from fleet_tools.baselines.merging.methods.git_rebasin import git_rebasin
from fleet_tools.baselines.merging.methods.naive import common_init, naive_average
from fleet_tools.baselines.merging.methods.sinkhorn_rebasin import sinkhorn_rebasin
from fleet_tools.errors import UnknownNameError

Method = Callable[..., Merged]
"""method(fleet, **options): a pure function."""

METHODS: dict[str, Method] = {
    "naive_average": naive_average,
    "common_init": common_init,
    "git_rebasin": git_rebasin,
    "git_rebasin_activations": partial(git_rebasin, by="activations"),
    "sinkhorn_rebasin_l1": partial(sinkhorn_rebasin, loss="l1"),
    "sinkhorn_rebasin_l2": partial(sinkhorn_rebasin, loss="l2"),
    "sinkhorn_rebasin_midpoint": partial(sinkhorn_rebasin, loss="midpoint"),
    "sinkhorn_rebasin": sinkhorn_rebasin,
    "sinkhorn_data": partial(sinkhorn_rebasin, loss="random_point"),
    "fleet_merge": fleet_merge,
    "fleet_merge_monotone": partial(fleet_merge, monotone=True),
    "fleet_merge_soft": partial(fleet_merge, soft=True),
    "fleet_merge_simplex": partial(fleet_merge, point="simplex"),
    "fleet_merge_average": partial(fleet_merge, point="average"),
}
"""As the paper names them, with `_` for `-`; fleet_merge_monotone is ours."""


def merge(method: str, fleet: Fleet, **options) -> Merged:
    """Merges a fleet by the name of a method.

    Args:
        method: One of `METHODS`.
        fleet: The models, and what is known of them.
        options: The method's own; see its docstring.

    Raises:
        UnknownNameError: There is no such method.
        FleetToolsError: As the method says.
    """
    if method not in METHODS:
        raise UnknownNameError("merging method", method, METHODS)
    return METHODS[method](fleet, **options)
