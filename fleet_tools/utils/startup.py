"""Start of a program: UTF-8 output, and a one-line exit on Ctrl-C."""

import io
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130
"""Exit code after Ctrl-C."""


def start_in_utf8() -> None:
    """Lets a program of this package, if one starts, take and print names with any characters.

    The process starts again in Python's UTF-8 mode where the locale has another encoding: there
    Drake cannot be imported, and libraries disagree about the bytes of a name. Processes that the
    program starts inherit the mode. Other users of the package keep their encoding.
    """
    if not _is_started(sys.orig_argv):
        return
    if sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # such as PYTHONIOENCODING=ascii
            stream.reconfigure(errors="backslashreplace")


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
