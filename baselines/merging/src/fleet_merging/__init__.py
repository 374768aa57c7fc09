"""Policy merging for any PyTorch models: models and data in, one model out.

    from fleet_merging import merge

    merged = merge("git_rebasin", [one, other], example=inputs)
    outputs = merged.model(inputs)

`merge` merges modules or state dicts, and `METHODS` describes the available methods by name.
`MergeProblem` is the argument of a method, also of your own. `derive` and `check` make and test
tables of axes. A `LocalDataHolder` keeps data and answers queries about them. Names are imported on
first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if (
    __name__ != "fleet_merging"
):  # such as through a folder of a checkout, which would import it twice
    raise ImportError(f"Import fleet_merging instead of {__name__}.")

if TYPE_CHECKING:
    from fleet_merging.ensembles import Ensemble
    from fleet_merging.methods.facts import MethodFacts
    from fleet_merging.problem import MergeProblem, MergeResult
    from fleet_merging.queries.data_holder import LocalDataHolder
    from fleet_merging.symmetry.check import check
    from fleet_merging.symmetry.derive import derive
    from fleet_merging.symmetry.table import Symmetry
    from fleet_merging.user_models import merge, problem_of

    METHODS: dict[str, MethodFacts]

__version__ = "0.1.0"

_MODULES = {
    "Ensemble": "ensembles",
    "LocalDataHolder": "queries.data_holder",
    "MergeProblem": "problem",
    "MergeResult": "problem",
    "Symmetry": "symmetry.table",
    "check": "symmetry.check",
    "derive": "symmetry.derive",
    "merge": "user_models",
    "problem_of": "user_models",
}

__all__ = [
    "METHODS",
    "Ensemble",
    "LocalDataHolder",
    "MergeProblem",
    "MergeResult",
    "Symmetry",
    "check",
    "derive",
    "merge",
    "problem_of",
]


def __getattr__(name: str) -> Any:
    """Imports a public name on first use."""
    if name == "METHODS":
        from fleet_merging.methods import registry

        return registry.METHODS
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"fleet_merging.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    """Returns the public names."""
    return __all__
