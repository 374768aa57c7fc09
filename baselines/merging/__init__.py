"""Policy merging: a library about PyTorch state dicts that knows no simulator and no robot.

    from fleet_tools.baselines.merging.symmetry.check import check
    from fleet_tools.baselines.merging.symmetry.layers import linear
    from fleet_tools.baselines.merging.symmetry.table import Symmetry

    symmetry = Symmetry.of(linear("0", "_obs", "h"), linear("2", "h", "_act"))
    check(symmetry, model, example)
    group = symmetry.group(model.state_dict())
    permuted = symmetry.apply(group.random(numpy.random.default_rng(0)), model.state_dict())

    from fleet_tools.baselines.merging.problem import Fleet
    from fleet_tools.baselines.merging.methods.registry import merge

    merged = merge("git_rebasin", Fleet(symmetry, [model.state_dict(), other.state_dict()]))
    model.load_state_dict(merged.state)

Raises:
    MissingLibraryError: PyTorch is absent; the message holds the line that installs it.
"""

from importlib.util import find_spec

from fleet_tools.errors import MissingLibraryError
from fleet_tools.utils.libraries import install_line

if find_spec("torch") is None:
    raise MissingLibraryError(f"Merging needs PyTorch. Install it with: {install_line('learning')}")
