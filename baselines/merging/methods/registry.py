"""Merging methods by name: those of the package, and users' own as module:function."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from fleet_tools.baselines.merging.buffers import with_singular_vectors
from fleet_tools.baselines.merging.errors import MergeError, UnsoundMergeError
from fleet_tools.baselines.merging.methods.fleet_merge import LISTING, fleet_merge
from fleet_tools.baselines.merging.methods.gradient_methods import fed_sgd, fisher
from fleet_tools.baselines.merging.methods.rebasin import (
    common_init,
    git_rebasin,
    naive_average,
    sinkhorn_rebasin,
)
from fleet_tools.baselines.merging.methods.regression import head_refit, least_squares, regmean
from fleet_tools.baselines.merging.methods.task_vectors import dare, task_arithmetic, ties
from fleet_tools.baselines.merging.problem import MergeProblem, MergeResult
from fleet_tools.baselines.merging.soundness import require_sound
from fleet_tools.errors import UnknownNameError
from fleet_tools.utils.imports import load_user_function

Method = Callable[..., MergeResult]
"""method(problem, **options): a pure function."""

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
    "fleet_merge_listing": partial(
        fleet_merge, start="identity", trust=None, descent=LISTING, equal_weights=True
    ),
    "fleet_merge_monotone": partial(fleet_merge, monotone=True),
    "fleet_merge_soft": partial(fleet_merge, soft=True),
    "fleet_merge_simplex": partial(fleet_merge, point="simplex"),
    "fleet_merge_average": partial(fleet_merge, point="average"),
    "regmean": regmean,
    "least_squares": least_squares,
    "head_refit": head_refit,
    "task_arithmetic": task_arithmetic,
    "ties": ties,
    "dare": dare,
    "fisher": fisher,
    "fed_sgd": fed_sgd,
}
"""The paper's names, with `_` for `-`, up to fleet_merge_average. Of these, fleet_merge_monotone is
not in the paper, and fleet_merge_listing is its algorithm word by word (see `fleet_merge`)."""

NEED_BASE = ("task_arithmetic", "ties", "dare")
"""Names of the methods that need a problem's `base`."""


def find(name: str) -> Method:
    """Returns a method.

    Args:
        name: One of `METHODS`, or module:function for a user's own, whose module is imported.

    Raises:
        UnknownNameError: There is no such method.
        MergeError: The module cannot be imported.
    """
    if name in METHODS:
        return METHODS[name]
    if ":" in name:
        return load_user_function(name, "method", MergeError)
    remedy = "A method of your own is given as module:function."
    raise UnknownNameError("merging method", name, METHODS, remedy)


def merge(method: str, problem: MergeProblem, **options: Any) -> MergeResult:
    """Merges models by a method, and checks the result.

    Args:
        method: Name of the method; see `find`.
        problem: The models, and what is known of them.
        options: Options of the method; see its docstring.

    Raises:
        UnsoundMergeError: The merged model is not of the models' form, or not usable; see
            `soundness.require_sound`.
        FleetToolsError: There is no such method, or the method raises an error.
    """
    result, form = find(method)(problem, **options), problem.models[0]
    if not isinstance(result, MergeResult):
        raise UnsoundMergeError(
            f"{method} returned a {type(result).__name__}. Return a merging.problem.MergeResult."
        )
    require_sound(result.state, form, method)
    return replace(result, state=with_singular_vectors(result.state, form))
