"""Requirements of merging methods as data, checked before any computation or query."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fleet_merging.errors import MergeError
from fleet_merging.moments.affine_maps import AffineMap, require_measurable
from fleet_merging.problem import MergeProblem

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


def require(problem: MergeProblem, *needs: str) -> None:
    """Raises a `MergeError` unless a problem has all needed fields, names of `NEEDS`."""
    for need in needs:
        required(problem, need)


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
    require(problem, "data_holders", "affine_maps")
    require_measurable(problem.affine_maps if maps is None else maps, problem.models[0])


def needs_of(method: Callable[..., object]) -> tuple[str, ...]:
    """Returns the declared needs of a user's method: its attribute `needs`, if it has one.

    Raises a `MergeError` if it names an unknown field.
    """
    given: Iterable[str] = getattr(method, "needs", ())
    if unknown := [need for need in given if need not in NEEDS]:
        raise MergeError(
            f"A method needs {', '.join(map(repr, unknown))}; known are {', '.join(NEEDS)}."
        )
    return tuple(given)
