"""Policy merging: a library for PyTorch state dicts, without a simulator or robots.

    from fleet_tools.merging import merge

    merged = merge("git_rebasin", [one, other], example=inputs)
    outputs = merged.model(inputs)

`fleet_tools.merging` is the public face: `user_models` makes a `problem.MergeProblem` of any models
and data, `methods.registry` has the methods by name, `problem.MergeResult` is what they return.

Raises:
    MissingLibraryError: PyTorch is not installed; the message holds the installation command.
"""

from importlib.util import find_spec

from fleet_tools.errors import MissingLibraryError
from fleet_tools.utils.libraries import missing_library

if find_spec("torch") is None:
    raise MissingLibraryError(missing_library("torch", "merge models"))
