"""Policy merging: a library for PyTorch state dicts, without a simulator or robots.

    from fleet_tools.baselines.merging.symmetry.check import check
    from fleet_tools.baselines.merging.symmetry.layers import linear
    from fleet_tools.baselines.merging.symmetry.table import Symmetry

    symmetry = Symmetry.of(linear("0", "_obs", "h"), linear("2", "h", "_act"))
    check(symmetry, model, example)
    group = symmetry.group(model.state_dict())
    permuted = symmetry.apply(group.random(numpy.random.default_rng(0)), model.state_dict())

    from fleet_tools.baselines.merging.methods.registry import merge
    from fleet_tools.baselines.merging.problem import MergeProblem

    problem = MergeProblem(symmetry, [model.state_dict(), other.state_dict()])
    merged = merge("git_rebasin", problem)
    model.load_state_dict(merged.state)

Raises:
    MissingLibraryError: PyTorch is not installed; the message holds the installation command.
"""

from importlib.util import find_spec

from fleet_tools.errors import MissingLibraryError
from fleet_tools.utils.libraries import missing_library

if find_spec("torch") is None:
    raise MissingLibraryError(missing_library("torch", "merge models"))
