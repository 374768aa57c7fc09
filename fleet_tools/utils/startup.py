"""Ctrl-C while a program of this package starts: it ends at once, with 130 and one line."""

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130
"""Exit code after Ctrl-C."""


def end_on_interrupt() -> None:
    """Ends the process on Ctrl-C until the program has begun, if one of this package starts.

    A traceback of imports helps no user, and half-initialized extension modules turn
    an interrupt into errors of their own. Other users of the package keep their handler.
    """
    if _is_started(sys.orig_argv):
        signal.signal(signal.SIGINT, _end)


def end_process(prog: str) -> NoReturn:
    """Reports the interrupt, and ends the process at once, without any cleaning up.

    Args:
        prog: Name of the program in the message.
    """
    os.write(sys.stderr.fileno(), f"{prog}: interrupted\n".encode())
    os._exit(INTERRUPTED)


def _is_started(command: list[str]) -> bool:
    """Returns whether a command line is `python -m fleet_tools...` or `fleet-tools`."""
    if sys.argv[:1] == ["-m"] and "-m" in command[:-1]:  # while Python imports the parent package
        module = command[command.index("-m") + 1]
        return module.partition(".")[0] == "fleet_tools"
    return len(command) > 1 and Path(command[1]).stem == "fleet-tools"


def _end(signal_number: int, frame: FrameType | None) -> None:
    end_process("fleet-tools")
