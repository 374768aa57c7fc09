"""Merging methods by name: those of the package, and users' own as module:function."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fleet_tools.baselines.merging.buffers import with_singular_vectors
from fleet_tools.baselines.merging.errors import MergeError, UnsoundMergeError
from fleet_tools.baselines.merging.methods.dare import dare
from fleet_tools.baselines.merging.methods.distillation import distillation
from fleet_tools.baselines.merging.methods.ensembles import (
    concatenation,
    density_gate,
    gated_refit,
)
from fleet_tools.baselines.merging.methods.fed_sgd import fed_sgd
from fleet_tools.baselines.merging.methods.fisher import fisher
from fleet_tools.baselines.merging.methods.fleet_merge import LISTING, fleet_merge
from fleet_tools.baselines.merging.methods.git_rebasin import git_rebasin
from fleet_tools.baselines.merging.methods.least_squares import head_refit, least_squares
from fleet_tools.baselines.merging.methods.naive import common_init, naive_average
from fleet_tools.baselines.merging.methods.partition import partition
from fleet_tools.baselines.merging.methods.regmean import regmean
from fleet_tools.baselines.merging.methods.sinkhorn_rebasin import sinkhorn_rebasin
from fleet_tools.baselines.merging.methods.task_arithmetic import task_arithmetic
from fleet_tools.baselines.merging.methods.ties import ties
from fleet_tools.baselines.merging.modules import tensors_of
from fleet_tools.baselines.merging.problem import MergeProblem, MergeResult
from fleet_tools.baselines.merging.robust import RULES, robust_average
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
    "density_gate": density_gate,
    "gated_refit": gated_refit,
    "concatenation": concatenation,
    "partition": partition,
    "distillation": distillation,
    **{name: partial(robust_average, rule=name) for name in RULES if name != "mean"},
}
"""The paper's names, with `_` for `-`, up to fleet_merge_average. Of these, fleet_merge_monotone is
not in the paper, and fleet_merge_listing is its algorithm word by word (see `fleet_merge`)."""

ENSEMBLES = ("density_gate", "gated_refit", "concatenation", "partition")
"""Names of the methods whose results have the parameters of all models."""

NETWORKS = tuple(name for name in METHODS if name not in ENSEMBLES)
"""Names of the methods that return one network of the models' size."""

_GRADIENTS, _MOMENTS = "gradients of each robot's loss", "second moments of each robot's data"
_SHARED, _START = "data common to all", "a common start"
_OWN_OR_SHARED = {"sinkhorn_rebasin_l1": (), "sinkhorn_rebasin_l2": ()}

NEEDS: dict[str, tuple[str, ...]] = {
    "common_init": (_START,),
    "git_rebasin_activations": ("activations on common inputs",),
    **{name: (_SHARED,) for name in METHODS if name.startswith("sinkhorn")} | _OWN_OR_SHARED,
    **{name: (_GRADIENTS,) for name in METHODS if name.startswith("fleet_merge")},
    **{name: (_MOMENTS,) for name in ("regmean", "least_squares", "head_refit", *ENSEMBLES)},
    **{name: ("a base", _START) for name in ("task_arithmetic", "ties", "dare")},
    "fisher": (_GRADIENTS, _START),
    "fed_sgd": (_GRADIENTS,),
    "distillation": ("a module", _MOMENTS),
}
"""What a method needs beside weights, by its name; nothing if the name is missing."""

NEED_BASE = tuple(name for name, needs in NEEDS.items() if "a base" in needs)
"""Names of the methods that need a problem's `base`."""


@dataclass(frozen=True)
class MethodDescription:
    """What a list of methods says of one.

    Attributes:
        name: Its name.
        summary: One line.
        needs: What it needs beside weights.
        returns: "a network" of the models' size, or "an ensemble" of all of them.
        options: Its options with their defaults.
    """

    name: str
    summary: str
    needs: tuple[str, ...]
    returns: str
    options: Mapping[str, Any]


def describe(name: str) -> MethodDescription:
    """Returns the description of a method.

    Raises:
        UnknownNameError, MergeError: See `find`.
    """
    method = find(name)
    function = method.func if isinstance(method, partial) else method
    summary = (inspect.getdoc(function) or "").partition("\n")[0]
    if isinstance(method, partial):
        fixed = ", ".join(f"{key}={value!r}" for key, value in method.keywords.items())
        summary = f"{summary} With {fixed}."
    options = {
        key: parameter.default
        for key, parameter in inspect.signature(method).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    returns = "an ensemble" if name in ENSEMBLES else "a network"
    return MethodDescription(name, summary, NEEDS.get(name, ()), returns, options)


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


def merge(method: str | Method, problem: MergeProblem, **options: Any) -> MergeResult:
    """Merges models by a method, and checks the result.

    Args:
        method: Name of the method, see `find`, or a function.
        problem: The models, and what is known of them.
        options: Options of the method; see its docstring.

    Raises:
        UnsoundMergeError: The merged model is not of the models' form, or not usable; see
            `soundness.require_sound`.
        FleetToolsError: There is no such method, or the method raises an error.
    """
    function = find(method) if isinstance(method, str) else method
    result = function(problem, **options)
    method = method if isinstance(method, str) else getattr(method, "__name__", "The method")
    if not isinstance(result, MergeResult):
        raise UnsoundMergeError(
            f"{method} returned a {type(result).__name__}. Return a merging.problem.MergeResult."
        )
    module = result.module or problem.module
    form = problem.models[0] if result.module is None else tensors_of(result.module)
    for member in result.members:
        require_sound(member, form, method)
    members = tuple(with_singular_vectors(member, form) for member in result.members)
    return replace(result, members=members, module=module, output=problem.output)
