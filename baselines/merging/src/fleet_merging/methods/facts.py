"""Facts about each merging method, declared beside its function by the decorator `method`.

    @method("regmean", "RegMean", source="Jin et al. 2023", needs=MOMENTS, start="common",
            asks="moments, once")
    def regmean(problem, *, ridge=1e-3): ...

The list of methods, the tables of the documentation and refusals use them.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn

from fleet_merging.errors import MergeError
from fleet_merging.moments.affine_maps import AffineMap, require_measurable
from fleet_merging.problem import MergeProblem, MergeResult

Method = Callable[..., MergeResult]
"""method(problem, **options): a pure function."""

LAYERS: Mapping[str, tuple[type[nn.Module], ...]] = {
    "Linear": (nn.Linear,),
    "Conv": (nn.modules.conv._ConvNd,),
    "BatchNorm": (nn.modules.batchnorm._BatchNorm,),
    "LayerNorm": (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.modules.instancenorm._InstanceNorm),
    "Embedding": (nn.Embedding, nn.EmbeddingBag),
    "RNN": (nn.RNNBase, nn.RNNCellBase),
    "attention": (nn.MultiheadAttention,),
    "recurrent Conv": (),
}
"""Kinds of layers, and PyTorch's classes of each. A convolutional recurrence has no class of its
own: its convolutions read their own outputs of the step before."""

NEEDS = {
    "base": (
        "weights from which all models were trained",
        "Give its `base` (`--base FILE` of `baselines.merge`; a fleet with `initialization: "
        "common` has one), or use a method that needs none.",
    ),
    "data_holders": (
        "data holders to answer about their own data",
        "Give one for each model (`data` of `fleet_merging.merge`, `--dataset` of "
        "`baselines.merge`; for moments, with `batches`), or use git_rebasin, which needs none.",
    ),
    "affine_maps": (
        "affine maps, whose moments determine the merged model",
        "Give the models' `moments.affine_maps.affine_maps` in the order of their application.",
    ),
    "shared_data_holder": (
        "data common to all models",
        "Give its `shared_data_holder` (`data` of `fleet_merging.merge`, `--dataset` of "
        "`baselines.merge`), or use 'l1' or 'l2' as a loss, which need none. For data that stay "
        "apart, use fleet_merge.",
    ),
    "module": (
        "module in which the models live",
        "Give its `module` and an `example`, its argument or a tuple of its arguments.",
    ),
    "example": (
        "argument of the module",
        "Give an `example`, its argument or a tuple of its arguments.",
    ),
}
"""By field of `MergeProblem`: its name, and a way to give it."""

BASE = ("base",)
"""Needs of methods on task vectors."""

MOMENTS = ("data_holders", "affine_maps")
"""Needs of methods that query moments."""

NETWORK, ENSEMBLE = "a network", "an ensemble"
"""Results: a network of the models' size, or the parameters of all models."""


@dataclass(frozen=True)
class MethodFacts:
    """Facts about a method besides its code.

    Attributes:
        name: Its name, or module:function of a user's own.
        title: The name in the literature.
        source: The paper that describes it, or "this project".
        needs: Fields of `MergeProblem` that it needs with its default options, see `NEEDS`.
        start: The start of training that it assumes. "any": it aligns or does not average units.
            "common": the same weights (or, as a control, no alignment).
        asks: The queries to each data holder, and their number.
        layers: Kinds of `LAYERS` with learned parameters that it merges.
        returns: `NETWORK` or `ENSEMBLE`.
        permutes: Whether it needs to know which units may be permuted; else no table of axes.
        function: The function; of a variant, with its options.
    """

    name: str
    title: str
    source: str
    needs: tuple[str, ...]
    start: str
    asks: str
    layers: tuple[str, ...]
    returns: str
    permutes: bool
    function: Method

    @property
    def plain(self) -> Method:
        """The function without the options of a variant."""
        return self.function.func if isinstance(self.function, partial) else self.function

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (inspect.getdoc(self.plain) or "").partition("\n")[0]

    @property
    def options(self) -> dict[str, Any]:
        """Its options with their defaults."""
        parameters = inspect.signature(self.function).parameters.values()
        return {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}


METHODS: dict[str, MethodFacts] = {}
"""All methods by name, in the order in which their modules are imported."""

_Function = TypeVar("_Function", bound=Method)


def method(
    name: str,
    title: str,
    *,
    source: str,
    needs: tuple[str, ...] = (),
    start: str = "any",
    asks: str = "nothing",
    layers: Iterable[str] = LAYERS,
    returns: str = NETWORK,
    permutes: bool = True,
    **fixed: Any,
) -> Callable[[_Function], _Function]:
    """Returns a decorator that adds a function to `METHODS`, with the facts of `MethodFacts`.

    Methods with a base, on task vectors, have a common start and permute nothing. `fixed` are
    options that this method fixes, if the function has further variants.
    """
    if "base" in needs:
        start, permutes = "common", False

    def register(function: _Function) -> _Function:
        chosen = partial(function, **fixed) if fixed else function
        METHODS[name] = MethodFacts(
            name, title, source, needs, start, asks, tuple(layers), returns, permutes, chosen
        )
        return function

    return register


def variant(
    name: str,
    title: str,
    *,
    source: str | None = None,
    needs: tuple[str, ...] | None = None,
    asks: str | None = None,
    **fixed: Any,
) -> Callable[[_Function], _Function]:
    """Returns a decorator that adds a variant of the method below it, made by options.

    Source, needs and queries are given if they differ from the method's.
    """

    def register(function: _Function) -> _Function:
        own = next(each for each in METHODS.values() if each.plain is function)
        given = {"source": source, "needs": needs, "asks": asks}
        changes = {key: value for key, value in given.items() if value is not None}
        chosen = partial(function, **fixed) if fixed else function
        METHODS[name] = replace(own, name=name, title=title, function=chosen, **changes)
        return function

    return register


def required(problem: MergeProblem, need: str) -> Any:
    """Returns a needed field of a problem; raises a `MergeError` if it is missing."""
    if is_missing(problem, need):
        what, remedy = NEEDS[need]
        raise MergeError(f"The merge problem has no {what} ({need}). {remedy}")
    return getattr(problem, need)


def is_missing(problem: MergeProblem, need: str) -> bool:
    """Whether a problem lacks a needed field."""
    value = getattr(problem, need)
    return value is None or (isinstance(value, tuple | list) and not value)


def require_moments(problem: MergeProblem, maps: Sequence[AffineMap] | None = None) -> None:
    """Raises a `MergeError` unless data holders can measure moments of affine maps; all if None."""
    for need in MOMENTS:
        required(problem, need)
    require_measurable(problem.affine_maps if maps is None else maps, problem.models[0])


def require_layers(problem: MergeProblem, facts: MethodFacts) -> None:
    """Raises a `MergeError` if a method cannot merge a layer of the models.

    Layers with equal tensors in all models, as of a frozen encoder, are kept as they are. The
    message names the layers, and the methods that can merge these models.
    """
    layers = layers_of(problem)
    if refused := [kind for kind in layers if kind not in facts.layers]:
        found = ", ".join(f"{kind} (`{layers[kind][0]}`)" for kind in refused)
        raise refusal(problem, facts.name, found, layers)


def refusal(
    problem: MergeProblem, name: str, found: str, layers: Iterable[str] = LAYERS
) -> MergeError:
    """Returns the error of a method that cannot merge the layers or tensors `found`.

    Another method has to merge all kinds of `layers`.
    """
    able = [
        each.name
        for each in METHODS.values()
        if each.name != name
        and set(layers) <= set(each.layers)
        and not any(is_missing(problem, need) for need in each.needs)
    ]
    return MergeError(
        f"`{name}` cannot merge {found}; these can: {', '.join(able) or 'none'}. Layers that all "
        "models share, such as a frozen encoder, are kept."
    )


def layers_of(problem: MergeProblem) -> dict[str, list[str]]:
    """Returns names of layers by kind, as far as the module is known; without shared ones."""
    found: dict[str, list[str]] = {}
    if problem.module is None:
        return found
    kept = shared(problem)
    for name, module in problem.module.named_modules():
        own = [each for each in problem.models[0] if each.startswith(f"{name}." if name else "")]
        kind = next((kind for kind, types in LAYERS.items() if isinstance(module, types)), None)
        if kind is not None and not kept.keys() >= set(own):
            found.setdefault(kind, []).append(name)
    return found


def shared(problem: MergeProblem) -> dict[str, torch.Tensor]:
    """Returns the tensors without units that are equal in all models."""
    first, *others = problem.models
    return {
        name: tensor
        for name, tensor in first.items()
        if not problem.symmetry.free(name)
        and all(torch.equal(tensor, each[name]) for each in others)
    }
