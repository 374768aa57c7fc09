"""Policy merging for any PyTorch models, without robots: one import.

    from fleet_tools.merging import merge

    merged = merge("fleet_merge", [one, other], data=[loader_one, loader_other])
    predictions = merged.model(inputs)

`merge` merges modules or state dicts, `methods` lists what by; `MergeProblem` is what a method of
your own is given; `derive` and `check` make and test tables of axes; a `LocalDataHolder` keeps data
that answer queries. Names are imported when they are used: no simulator, no Ray, no Numba.

Raises:
    MissingLibraryError: PyTorch is not installed; the message holds the installation command.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleet_tools.baselines.merging.ensembles import Ensemble
    from fleet_tools.baselines.merging.methods.registry import MethodDescription
    from fleet_tools.baselines.merging.problem import MergeProblem, MergeResult
    from fleet_tools.baselines.merging.queries.data_holder import LocalDataHolder
    from fleet_tools.baselines.merging.symmetry.check import check
    from fleet_tools.baselines.merging.symmetry.derive import derive
    from fleet_tools.baselines.merging.symmetry.table import Symmetry
    from fleet_tools.baselines.merging.user_models import merge, problem_of

    methods: dict[str, MethodDescription]

_MODULES = {
    "merge": "user_models",
    "problem_of": "user_models",
    "MergeProblem": "problem",
    "MergeResult": "problem",
    "Ensemble": "ensembles",
    "LocalDataHolder": "queries.data_holder",
    "check": "symmetry.check",
    "derive": "symmetry.derive",
    "Symmetry": "symmetry.table",
}

__all__ = [
    "Ensemble",
    "LocalDataHolder",
    "MergeProblem",
    "MergeResult",
    "Symmetry",
    "check",
    "derive",
    "merge",
    "methods",
    "problem_of",
]


def __getattr__(name: str) -> Any:
    """Imports a name when it is used; `methods` are descriptions of all methods by name."""
    if name == "methods":
        from fleet_tools.baselines.merging.methods import registry

        return {each: registry.describe(each) for each in registry.METHODS}
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"fleet_tools.baselines.merging.{_MODULES[name]}")
    return getattr(module, name)


def __dir__() -> list[str]:
    """Returns the public names."""
    return __all__
