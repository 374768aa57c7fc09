"""Arenas, in which policies learn, are merged and are evaluated."""

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Protocol

from fleet_tools.baselines.experiments.form import Experiment, Run
from fleet_tools.errors import ConfigError, FleetToolsError, UnknownNameError
from fleet_tools.utils.imports import load_function, load_user_object

ARENAS = {
    "tool_use": "fleet_tools.baselines.experiments.fleets:ToolUse",
    "metaworld": "fleet_tools.baselines.experiments.fleets:MetaWorld",
    "supervised": "fleet_tools.baselines.experiments.supervised.arena:Supervised",
    "linear_control": "fleet_tools.baselines.linear_control.arena:LinearControl",
}
"""Classes of the package's arenas, by name."""


class FailedRunError(FleetToolsError, RuntimeError):
    """A run without a usable result; the experiment continues without it."""


@contextlib.contextmanager
def may_fail(*errors: type[Exception]) -> Iterator[None]:
    """Raises some errors as a `FailedRunError`."""
    try:
        yield
    except errors as error:
        raise FailedRunError(str(error)) from error


class ExperimentArena(Protocol):
    """Runs an experiment's runs; made as `Class(experiment)`, in each worker process.

    Attributes:
        references: Names of the controls to which arms can be compared.
    """

    references: Collection[str]

    def plan(self, run: Run) -> Any:
        """Returns a run's configuration, before training.

        Raises:
            FleetToolsError: The run is not possible; the message names it.
        """
        ...

    def learns(self, plan: Any) -> str:
        """Returns a name of the trained models; runs of one name share them, in one worker."""
        ...

    def measure(self, plan: Any, folder: Path) -> dict[str, Any]:
        """Trains, merges, evaluates losses and rollouts, or reads stored results of these.

        Args:
            plan: The run's configuration.
            folder: Folder of all runs of the experiment, and of others that share it.

        Returns:
            Plain JSON data: numbers by name. "success", "fine_tuned" and "retained" have for each
            task a row for each policy, with 1 for a solved scene and 0 for the others. "retained"
            is of a backbone's tasks. `result` describes "curve" and "lines".

        Raises:
            FailedRunError: The run failed.
            FleetToolsError: The experiment cannot go on.
        """
        ...


def make_arena(experiment: Experiment) -> ExperimentArena:
    """Returns the arena of an experiment.

    Raises:
        UnknownNameError: There is no such arena, or it has no such reference.
        ConfigError: The module of a user's arena cannot be imported.
    """
    name = experiment.arena
    if name in ARENAS:
        make = load_function(ARENAS[name])
    elif ":" in name:
        make = load_user_object(name, "arena", ConfigError)
    else:
        remedy = "An arena of your own is given as module:class."
        raise UnknownNameError("arena", name, ARENAS, remedy)
    arena: ExperimentArena = make(experiment)
    for each in experiment.references:
        if each not in arena.references:
            raise UnknownNameError(f"reference of {name}", each, arena.references)
    return arena
