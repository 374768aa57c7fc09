"""Arenas: where policies learn, are merged and are judged."""

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
    """A run that learned or merged nothing usable; the experiment goes on without it."""


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
        references: Names of what arms can be compared with.
    """

    references: Collection[str]

    def plan(self, run: Run) -> Any:
        """Returns a run's configuration, before anything is learned.

        Raises:
            FleetToolsError: The run is not possible; the message names it.
        """
        ...

    def learns(self, plan: Any) -> str:
        """Returns a name of what is learned; runs of the same name share it, in one worker."""
        ...

    def measure(self, plan: Any, folder: Path) -> dict[str, Any]:
        """Learns, merges, scores by loss and rolls out, or reads what is stored of this.

        Args:
            plan: The run's configuration.
            folder: Folder of all runs of the experiment, and of others that share it.

        Returns:
            Plain JSON data: numbers by name. "success", "fine_tuned" and "retained" have for each
            task a row for each policy, with 1 for each scene of a success and 0 for the others;
            the last one is of a backbone's tasks. "curve" and "lines" are as `result` reads them.

        Raises:
            FailedRunError: The run failed.
            FleetToolsError: The experiment cannot go on.
        """
        ...


def make_arena(experiment: Experiment) -> ExperimentArena:
    """Returns the arena of an experiment.

    Raises:
        UnknownNameError: There is no such arena, or it has no such reference.
        ConfigError: The module of a user's own cannot be imported.
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
