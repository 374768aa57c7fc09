"""Checks a labelled model and runs the expert with it, in another process.

The page stays alive meanwhile, and a model that ends a process does not end the page.
"""

import contextlib
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fleet_tools.errors import FleetToolsError
from fleet_tools.parallel.child_process import ChildProcess

_GRACE_S = 5.0


class TrialProcess:
    """A trial that runs.

    Args:
        folder: Folder of the model.
        scenes: Number of scenes in which the expert tries it.
        seed: Seed of the first scene.
        task: Name or path of the task; None for the package's that use its family.
    """

    def __init__(self, folder: Path, scenes: int, seed: int, task: str | None = None) -> None:
        self._process, self._stopped = ChildProcess(__name__), False
        self._process.connection.send((folder, scenes, seed, task))

    def result(self) -> dict[str, Any] | str | None:
        """Returns the report of `make_report`, or why there is none; None if it was stopped."""
        found = None
        with contextlib.suppress(EOFError, OSError):
            found = self._process.connection.recv()
        ending = self._process.end(_GRACE_S)
        return found or (None if self._stopped else f"The check ended with {ending}.")

    def stop(self) -> None:
        """Ends the trial."""
        self._stopped = True
        self._process.kill()


def main(connection: Connection) -> None:
    """Checks a model, and lets the expert try it."""
    from fleet_tools.studio.checking.program import CheckOptions, make_report

    folder, scenes, seed, task = connection.recv()
    with contextlib.suppress(BrokenPipeError):
        try:
            options = CheckOptions(folder=folder, task=task, scenes=scenes, seed=seed, quiet=True)
            connection.send(make_report(options))
        except FleetToolsError as error:
            connection.send(str(error))
        except Exception as error:  # a defect of ours, or of a library
            connection.send(f"{type(error).__name__}: {error}")
