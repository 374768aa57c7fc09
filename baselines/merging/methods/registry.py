"""Every method of merging, by name: the package's own, and module:function."""

from collections.abc import Callable
from functools import partial

from fleet_tools.baselines.merging.methods.fleet_merge import fleet_merge
from fleet_tools.baselines.merging.methods.foreign import load_own
from fleet_tools.baselines.merging.methods.git_rebasin import git_rebasin
from fleet_tools.baselines.merging.methods.naive import common_init, naive_average
from fleet_tools.baselines.merging.methods.sinkhorn_rebasin import sinkhorn_rebasin
from fleet_tools.baselines.merging.problem import Fleet, Merged
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


def find(name: str) -> Method:
    """Returns a method.

    Args:
        name: One of `METHODS`, or module:function for one of one's own; its module is imported.

    Raises:
        UnknownNameError: There is no such method.
        FleetError: Its module cannot be imported.
    """
    if name in METHODS:
        return METHODS[name]
    if ":" in name:
        return load_own(name, "method")
    remedy = "One's own is module:function."
    raise UnknownNameError("merging method", name, METHODS, remedy)


def merge(method: str, fleet: Fleet, **options) -> Merged:
    """Merges a fleet by the name of a method.

    Args:
        method: See `find`.
        fleet: The models, and what is known of them.
        options: The method's own; see its docstring.

    Raises:
        FleetToolsError: There is no such method, or as the method says.
    """
    return find(method)(fleet, **options)
