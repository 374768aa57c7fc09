"""Policy merging: the public names of `fleet_merging`, a distribution of its own.

    from fleet_tools.merging import merge

    merged = merge("fleet_merge", [one, other], data=[loader_one, loader_other])
    predictions = merged.model(inputs)

Raises:
    MissingLibraryError: fleet-merging is not installed; the message holds the installation command.
"""

from fleet_tools.utils.libraries import require

require("fleet_merging", "merge models")

from fleet_merging import (  # noqa: E402
    METHODS,
    Ensemble,
    LocalDataHolder,
    MergeProblem,
    MergeResult,
    Symmetry,
    check,
    derive,
    merge,
    problem_of,
)

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
