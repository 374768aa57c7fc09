"""What a program must be told of models beside their weights: a function named on a command line.

    def spec():                                   # in policies.py: --spec policies:spec
        return Symmetry.of(linear("0", "_obs", "h"), linear("2", "h", "_act"))

It returns a table of axes, or a `Spec` where losses are to be measured, or a method needs data.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from fleet_tools.baselines.merging.errors import FleetError
from fleet_tools.baselines.merging.methods.foreign import load_own
from fleet_tools.baselines.merging.problem import Fleet
from fleet_tools.baselines.merging.queries.data_holder import Robot, ask
from fleet_tools.baselines.merging.symmetry.table import State, Symmetry
from fleet_tools.errors import FleetToolsError


@dataclass(frozen=True)
class Spec:
    """A kind of model, and where its data are.

    Args:
        symmetry: Its table.
        robots: One for each model, in the order in which these will be given.
        shared: Who holds data common to all models.
        activations: Records a model's units, by free name, always for the same inputs.
        finish: What every average goes through before it is measured or stored, such as
            `batch_norm.recompute`.
    """

    symmetry: Symmetry | Mapping[str, str]
    robots: Sequence[Robot] = ()
    shared: Robot | None = None
    activations: Callable[[State], Mapping[str, torch.Tensor]] | None = None
    finish: Callable[[State], State] = dict

    def fleet(self, models: Sequence[State], weights=None, seed: int = 0) -> Fleet:
        """The models, with what is known of them.

        Raises:
            FleetToolsError: They do not fit the spec, or one another; see `Fleet`.
        """
        symmetry = self.symmetry
        if not isinstance(symmetry, Symmetry):
            symmetry = Symmetry.of(symmetry)
        fleet = Fleet(symmetry, models, weights, self.robots, self.shared, seed=seed)
        if self.activations is None:
            return fleet
        recorded = [self.activations(model) for model in models]
        return Fleet(symmetry, models, weights, self.robots, self.shared, recorded, seed)

    def measure(self, fleet: Fleet) -> Callable[[State], float] | None:
        """The loss of a model on all data: the shared ones if there are any, else all robots'.

        Returns:
            None where nobody holds data.
        """
        if self.shared is not None:
            robots, shares = [self.shared], [1.0]
        elif self.robots:
            robots, shares = self.robots, fleet.shares.tolist()
        else:
            return None

        def loss(model: State) -> float:
            answers = (ask(robot, model, None, gradient=False)[0] for robot in robots)
            return sum(share * answer.loss for share, answer in zip(shares, answers, strict=True))

        return loss


def load_spec(name: str) -> Spec:
    """Imports a module and calls its function; so a spec is code to be trusted, unlike models.

    Args:
        name: "module:function"; `python -m` finds modules of the working directory, too.

    Raises:
        FleetError, UnknownNameError: See `load_own`; or the function cannot be called without
            arguments, or returns something else.
        SymmetryError: The table that it returns cannot be read.
    """
    function = load_own(name, "spec")
    try:
        returned = function()
    except FleetToolsError:
        raise
    except Exception as error:
        raise FleetError(
            f"The spec {name!r} failed ({type(error).__name__}: {error}). It is called without "
            "arguments."
        ) from error
    if isinstance(returned, Spec):
        return returned
    if isinstance(returned, Symmetry):
        return Spec(returned)
    if isinstance(returned, Mapping):
        return Spec(Symmetry.of(returned))
    raise FleetError(
        f"The spec {name!r} returned a {type(returned).__name__}. Return a Symmetry, a table of "
        "axis strings, or a merging.spec.Spec."
    )
