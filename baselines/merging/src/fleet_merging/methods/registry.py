"""Merging methods by name, with what is known of them: the package's, and users' own."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

from fleet_merging.buffers import with_singular_vectors
from fleet_merging.errors import MergeError, UnknownNameError, UnsoundMergeError
from fleet_merging.methods.compression import compress
from fleet_merging.methods.distillation import distillation
from fleet_merging.methods.ensembles import (
    concatenation,
    density_gate,
    ensemble,
    gated_refit,
)
from fleet_merging.methods.fleet_merge import LISTING, fleet_merge
from fleet_merging.methods.gradient_methods import fed_sgd, fisher
from fleet_merging.methods.lora import lora
from fleet_merging.methods.needs import needs_of, require
from fleet_merging.methods.partition import partition
from fleet_merging.methods.rebasin import (
    common_init,
    git_rebasin,
    naive_average,
    sinkhorn_rebasin,
)
from fleet_merging.methods.regression import (
    head_refit,
    least_squares,
    regmean,
    regmean_pp,
)
from fleet_merging.methods.repair import repair
from fleet_merging.methods.spectra import iso_c, iso_cts, tsv_m, wudi
from fleet_merging.methods.task_vectors import dare, task_arithmetic, ties
from fleet_merging.modules import tensors_of
from fleet_merging.problem import MergeProblem, MergeResult
from fleet_merging.robust import RULES, robust_average
from fleet_merging.soundness import require_sound, require_usable

Method = Callable[..., MergeResult]
"""method(problem, **options): a pure function."""


@dataclass(frozen=True)
class MethodFacts:
    """What is known of a method beside its function.

    Attributes:
        source: Where it is from.
        needs: Fields of `MergeProblem` that it needs with its default options, see `needs.NEEDS`.
        start: The start of training that it assumes: "any", since it aligns or does not average
            units; or "common", the same weights (or, as a control, without alignment).
        asks: What each data holder is asked, and how often.
        returns: "a network" of the models' size, or "an ensemble", with the parameters of all.
    """

    source: str
    needs: tuple[str, ...] = ()
    start: str = "any"
    asks: str = "nothing"
    returns: str = "a network"


def _descent(source: str) -> MethodFacts:
    return MethodFacts(source, ("shared_data_holder",), asks="shared data only: gradients, steps")


_FLEET_MERGE = ("data_holders",), "any", "gradients, epochs x steps"
_MAPS = ("data_holders", "affine_maps")
_PAPER = "the paper, Algorithm 1"


def _ensemble(source: str, asks: str) -> MethodFacts:
    return MethodFacts(source, _MAPS, asks=asks, returns="an ensemble")


_METHODS: dict[str, tuple[Method, MethodFacts]] = {
    "naive_average": (naive_average, MethodFacts("McMahan et al. 2017", start="common")),
    "common_init": (common_init, MethodFacts("McMahan et al. 2017", start="common")),
    "git_rebasin": (git_rebasin, MethodFacts("Ainsworth et al. 2023")),
    "git_rebasin_activations": (
        partial(git_rebasin, by="activations"),
        MethodFacts("Ainsworth et al. 2023", ("activations",)),
    ),
    "sinkhorn_rebasin_l1": (
        partial(sinkhorn_rebasin, loss="l1"),
        MethodFacts("Peña et al. 2023"),
    ),
    "sinkhorn_rebasin_l2": (
        partial(sinkhorn_rebasin, loss="l2"),
        MethodFacts("Peña et al. 2023"),
    ),
    "sinkhorn_rebasin_midpoint": (
        partial(sinkhorn_rebasin, loss="midpoint"),
        _descent("Peña et al. 2023"),
    ),
    "sinkhorn_rebasin": (sinkhorn_rebasin, _descent("Peña et al. 2023")),
    "sinkhorn_data": (partial(sinkhorn_rebasin, loss="random_point"), _descent("the paper")),
    "fleet_merge": (fleet_merge, MethodFacts(_PAPER, *_FLEET_MERGE)),
    "fleet_merge_listing": (
        partial(fleet_merge, start="identity", trust=None, descent=LISTING, equal_weights=True),
        MethodFacts(f"{_PAPER}, word by word", *_FLEET_MERGE),
    ),
    "fleet_merge_monotone": (
        partial(fleet_merge, monotone=True),
        MethodFacts("this project", ("data_holders",), "any", "gradients and losses"),
    ),
    "fleet_merge_soft": (partial(fleet_merge, soft=True), MethodFacts("the paper", *_FLEET_MERGE)),
    "fleet_merge_simplex": (
        partial(fleet_merge, point="simplex"),
        MethodFacts("the paper", *_FLEET_MERGE),
    ),
    "fleet_merge_average": (
        partial(fleet_merge, point="average"),
        MethodFacts("the paper", *_FLEET_MERGE),
    ),
    "regmean": (regmean, MethodFacts("Jin et al. 2023", _MAPS, "common", "moments, once")),
    "regmean_pp": (
        regmean_pp,
        MethodFacts("Nguyen et al. 2025", _MAPS, "common", "moments, once for each map"),
    ),
    "least_squares": (
        least_squares,
        MethodFacts("this project", _MAPS, "any", "moments with labels, once for each map"),
    ),
    "head_refit": (
        head_refit,
        MethodFacts("this project", _MAPS, "common", "moments with labels of the last map"),
    ),
    "compress": (
        compress,
        MethodFacts("this project", _MAPS, "any", "moments of all networks; with labels, twice"),
    ),
    "repair": (
        repair,
        MethodFacts("Jordan et al. 2023", _MAPS, "any", "moments, of each model and each map"),
    ),
    "task_arithmetic": (
        task_arithmetic,
        MethodFacts("Ilharco et al. 2023", ("base",), "common"),
    ),
    "ties": (ties, MethodFacts("Yadav et al. 2023", ("base",), "common")),
    "dare": (dare, MethodFacts("Yu et al. 2024", ("base",), "common")),
    "iso_c": (iso_c, MethodFacts("Marczak et al. 2025", ("base",), "common")),
    "iso_cts": (iso_cts, MethodFacts("Marczak et al. 2025", ("base",), "common")),
    "tsv_m": (tsv_m, MethodFacts("Gargiulo et al. 2025", ("base",), "common")),
    "wudi": (wudi, MethodFacts("Cheng et al. 2025", ("base",), "common")),
    "lora": (lora, MethodFacts("Hu et al. 2021; products", start="common")),
    "fisher": (
        fisher,
        MethodFacts("Matena and Raffel 2022", ("data_holders",), "common", "gradients, samples"),
    ),
    "fed_sgd": (
        fed_sgd,
        MethodFacts("McMahan et al. 2017", ("data_holders",), "any", "gradients, steps"),
    ),
    "ensemble": (
        ensemble,
        MethodFacts("Lakshminarayanan et al. 2017", returns="an ensemble"),
    ),
    "density_gate": (density_gate, _ensemble("Xu et al. 1995", "moments of states, once")),
    "gated_refit": (
        gated_refit,
        _ensemble("this project", "moments of states; then with labels, of all networks"),
    ),
    "concatenation": (
        concatenation,
        _ensemble("this project", "moments with labels, of all networks"),
    ),
    "partition": (
        partition,
        _ensemble("this project", "moments with labels, of all networks"),
    ),
    "distillation": (
        distillation,
        MethodFacts("Lin et al. 2020", (*_MAPS, "module"), "any", "what its teacher asks"),
    ),
    **{
        name: (
            partial(robust_average, rule=name),
            MethodFacts("see `merging.robust`", start="common"),
        )
        for name in RULES
        if name != "mean"
    },
}

METHODS: dict[str, Method] = {name: method for name, (method, _) in _METHODS.items()}
"""The functions by name. The paper's names, with `_` for `-`, are those up to fleet_merge_average;
of these fleet_merge_monotone is not in the paper, and fleet_merge_listing is its algorithm word by
word (see `fleet_merge`)."""

FACTS: dict[str, MethodFacts] = {name: facts for name, (_, facts) in _METHODS.items()}
"""What is known of each method."""

ENSEMBLES = tuple(name for name, facts in FACTS.items() if facts.returns == "an ensemble")
"""Names of the methods whose results have the parameters of all models."""

NETWORKS = tuple(name for name in METHODS if name not in ENSEMBLES)
"""Names of the methods that return one network of the models' size."""

UNALIGNED = (
    "naive_average",
    "common_init",
    "lora",
    "ensemble",
    *(name for name, facts in FACTS.items() if "base" in facts.needs),
)
"""Names of the methods that permute nothing, and need no table of axes."""


@dataclass(frozen=True)
class MethodDescription:
    """What a list of methods says of one.

    Attributes:
        name: Its name.
        summary: One line.
        needs: What it needs beside weights, see `needs.NEEDS`.
        returns: See `MethodFacts`.
        options: Its options with their defaults.
        facts: What else is known of it; None for a user's own.
    """

    name: str
    summary: str
    needs: tuple[str, ...]
    returns: str
    options: Mapping[str, Any]
    facts: MethodFacts | None


def describe(name: str) -> MethodDescription:
    """Returns the description of a method.

    Raises:
        UnknownNameError, MergeError: See `find`.
    """
    method, facts = find(name), FACTS.get(name)
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
    returns = facts.returns if facts else "a network"
    return MethodDescription(name, summary, needs(name), returns, options, facts)


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
        return _own_method(name)
    remedy = "A method of your own is given as module:function."
    raise UnknownNameError.of("merging method", name, METHODS, remedy)


def _own_method(name: str) -> Method:
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise MergeError(f"The method {name!r} is not of the form `module:function`.")
    try:
        module = import_module(module_name)
    except (Exception, SystemExit) as error:  # a user's module may fail in any way
        raise MergeError(
            f"The module {module_name!r} of the method {name!r} cannot be imported "
            f"({type(error).__name__}: {error}). Modules are searched in the working directory "
            "and on PYTHONPATH."
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        known = [key for key, each in vars(module).items() if inspect.isfunction(each)]
        raise UnknownNameError.of(f"function in {module_name}", function_name, known)
    return function


def needs(method: str | Method) -> tuple[str, ...]:
    """Returns the fields of `MergeProblem` that a method needs, see `needs.NEEDS`.

    Args:
        method: Its name, see `find`, or a function. A user's own says it by its attribute `needs`.

    Raises:
        UnknownNameError, MergeError: See `find`; or the attribute names no field.
    """
    if not isinstance(method, str):
        return needs_of(method)
    return FACTS[method].needs if method in FACTS else needs_of(find(method))


def merge(method: str | Method, problem: MergeProblem, **options: Any) -> MergeResult:
    """Merges models by a method, finishes the result, and checks it.

    Args:
        method: Name of the method, see `find`, or a function.
        problem: The models, and what is known of them.
        options: Options of the method; see its docstring.

    Raises:
        UnsoundMergeError: The merged model is not of the models' form, or not usable; see
            `soundness.require_usable`.
        MergingError: There is no such method, the problem lacks what it needs, or the method
            raises an error.
    """
    function = find(method) if isinstance(method, str) else method
    require(problem, *needs(method))
    result = function(problem, **options)
    name = method if isinstance(method, str) else getattr(method, "__name__", "The method")
    if not isinstance(result, MergeResult):
        raise UnsoundMergeError(
            f"{name} returned a {type(result).__name__}. Return a merging.problem.MergeResult."
        )
    module = result.module or problem.module
    form = problem.models[0] if result.module is None else tensors_of(result.module)
    for member in result.members:
        require_sound(member, form, name)
    members = tuple(with_singular_vectors(member, form) for member in result.members)
    result = replace(result, members=members, module=module, output=problem.output)
    if not result.is_ensemble and module is problem.module:
        result = replace(result, members=(problem.finish(members[0]),))
    require_usable(result, problem, name)
    return result
