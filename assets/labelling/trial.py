"""The check of a model and the expert's trial, in a process of its own.

The page stays alive meanwhile, and a model that ends a process does not end the page.
"""

import contextlib
import multiprocessing
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # Drake is imported in the other process
    from fleet_tools.assets.labelling.expert_motion import Motion


@dataclass(frozen=True)
class Report:
    """The report of `assets check`.

    Attributes:
        content: What `fleet_tools.studio.checking.program.make_report` returns.
    """

    content: dict[str, Any]


@dataclass(frozen=True)
class Failure:
    """Why there is no report.

    Attributes:
        reason: The error.
    """

    reason: str


class Trial:
    """A trial that runs.

    Args:
        folder: Folder of the model.
        scenes: Number of scenes in which the expert tries it.
        seed: Seed of the first scene.
        task: Name or path of the task; None for those of the package that use its family.
    """

    def __init__(self, folder: Path, scenes: int, seed: int, task: str | None = None) -> None:
        context = multiprocessing.get_context("spawn")
        self._receiver, sender = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_work, args=(sender, folder, scenes, seed, task), daemon=True
        )
        self._process.start()
        sender.close()

    def messages(self) -> Iterator["Report | Motion | Failure"]:
        """Yields what the trial says, until it has ended."""
        said = False
        with contextlib.suppress(EOFError, OSError):
            while True:
                yield self._receiver.recv()
                said = True
        self._process.join()
        if not said and self._process.exitcode not in (0, -signal.SIGTERM):
            yield Failure(f"The check ended with exit code {self._process.exitcode}.")

    def stop(self) -> None:
        """Ends the trial."""
        self._process.terminate()
        self._process.join()


def _work(sender: Connection, folder: Path, scenes: int, seed: int, task: str | None) -> None:
    """Checks a model, and records the expert in a scene in which it failed, or in the first one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the page, which ends this
    from fleet_tools.errors import FleetToolsError
    from fleet_tools.studio.checking.program import CheckOptions, make_report

    with contextlib.redirect_stdout(sys.stderr), contextlib.suppress(BrokenPipeError):
        try:
            options = CheckOptions(folder=folder, task=task, scenes=scenes, seed=seed, quiet=True)
            report = make_report(options)
            sender.send(Report(report))
            for tried in report["trials"]:
                sender.send(_motion(folder, tried, seed))
        except FleetToolsError as error:
            sender.send(Failure(str(error)))
        except Exception as error:  # a defect of ours, or of a library
            sender.send(Failure(f"{type(error).__name__}: {error}"))


def _motion(folder: Path, tried: dict[str, Any], seed: int) -> "Motion":
    from fleet_tools.assets.labelling.expert_motion import record_motion

    failed = [each["example"]["seed"] for each in tried["failures"].values()]
    return record_motion(folder, tried["task"], failed[0] if failed else seed)
