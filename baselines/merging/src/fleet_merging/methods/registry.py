"""Merging methods by name, the package's and users' own, and a merge by one of them."""

import inspect
from dataclasses import replace
from importlib import import_module
from typing import Any

from fleet_merging import robust
from fleet_merging.errors import MergeError, UnknownChoiceError, UnsoundMergeError
from fleet_merging.methods import (
    compression,
    distillation,
    ensembles,
    fleet_merge,
    gradient_methods,
    lora,
    partition,
    rebasin,
    regression,
    spectra,
    task_vectors,
)
from fleet_merging.methods.facts import METHODS, NEEDS, Method, require_layers, required
from fleet_merging.modules import tensors_of
from fleet_merging.problem import MergeProblem, MergeResult
from fleet_merging.soundness import require_sound, require_usable

# The modules add their methods to `METHODS` on import, in any order.
_MODULES = (
    *(rebasin, fleet_merge, regression, compression, gradient_methods, ensembles, partition),
    *(distillation, task_vectors, spectra, lora, robust),
)
for _module in _MODULES:
    for _name in [n for n, each in METHODS.items() if each.plain.__module__ == _module.__name__]:
        METHODS[_name] = METHODS.pop(_name)


def find(name: str) -> Method:
    """Returns the function of a method, one of `METHODS`, or module:function for a user's own.

    Raises:
        UnknownChoiceError: There is no such method.
        MergeError: The module of a user's method cannot be imported.
    """
    if name in METHODS:
        return METHODS[name].function
    if ":" in name:
        return _own_method(name)
    remedy = "A method of your own is given as module:function."
    raise UnknownChoiceError.of("merging method", name, METHODS, remedy)


def _own_method(name: str) -> Method:
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise MergeError(f"The method {name!r} is not of the form `module:function`.")
    try:
        module = import_module(module_name)
    except (Exception, SystemExit) as error:  # a user's module may fail in any way
        raise MergeError(
            f"The module {module_name!r} of the method {name!r} cannot be imported "
            f"({type(error).__name__}: {error}). Modules are found in the working directory and on "
            "PYTHONPATH."
        ) from error
    function: Method | None = getattr(module, function_name, None)
    if not callable(function):
        known = [key for key, each in vars(module).items() if inspect.isfunction(each)]
        raise UnknownChoiceError.of(f"function in {module_name}", function_name, known)
    return function


def needs(method: str | Method) -> tuple[str, ...]:
    """Returns the fields of `MergeProblem` that a method needs, see `facts.NEEDS`.

    A user's own function has an attribute `needs`. Raises an `UnknownChoiceError` or a `MergeError`
    as `find` does, or if the attribute names no field.
    """
    if isinstance(method, str) and method in METHODS:
        return METHODS[method].needs
    given = getattr(find(method) if isinstance(method, str) else method, "needs", ())
    if unknown := [need for need in given if need not in NEEDS]:
        raise MergeError(
            f"A method needs {', '.join(map(repr, unknown))}; known are {', '.join(NEEDS)}."
        )
    return tuple(given)


def permutes(method: str | Method) -> bool:
    """Whether a method may permute units, so that it needs a table of axes."""
    return not isinstance(method, str) or method not in METHODS or METHODS[method].permutes


def merge(method: str | Method, problem: MergeProblem, **options: Any) -> MergeResult:
    """Merges models by a method, finishes the result, and checks it.

    Args:
        method: Name of the method, see `find`, or a function.
        problem: The models, and facts about them.
        options: Options of the method; see its docstring.

    Raises:
        UnsoundMergeError: The merged model has another form than the models, or is not usable.
        MergingError: There is no such method, it cannot merge a layer of the models, the problem
            lacks its needs, or the method raises an error.
    """
    function = find(method) if isinstance(method, str) else method
    if isinstance(method, str) and method in METHODS:
        require_layers(problem, METHODS[method])
    for need in needs(method):
        required(problem, need)
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
    result = replace(result, module=module, output=problem.output)
    if not result.is_ensemble and module is problem.module:
        result = replace(result, members=(problem.finish(result.members[0]),))
    require_usable(result, problem, name)
    return result
