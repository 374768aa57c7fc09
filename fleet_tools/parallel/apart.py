"""Calls native libraries in a child process, where they may crash, leak or hang.

CoACD, manifold3d, fast-simplification and Open3D abort, crash or do not return for some geometry of
strangers. One child serves the calls of this process.
"""

import atexit
import importlib
import os
import pickle
import tempfile
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import IO, Any, TypeVar, TypeVarTuple

from fleet_tools.errors import FleetToolsError, NativeLibraryError
from fleet_tools.parallel.child_process import ChildProcess
from fleet_tools.utils.machine import limit_memory

T = TypeVarTuple("T")
R = TypeVar("R")

LIMIT_S = 600.0
"""Time limit of a call, s."""

CLEAN = "Make the mesh one clean surface, for instance with Blender's Remesh modifier."
"""Advice for errors, if libraries fail for a mesh."""

_PRINTED = 200
"""Number of bytes of a crashed library's output that a message repeats."""

_GRACE_S = 1.0
"""Time, s, in which a process ends that has closed its connection."""

_lock = threading.RLock()
_is_child = False


class ApartError(Exception):
    """A call has no result.

    Args:
        reason: Why, as in "it ...".
        ending: How it ended its process; None if it raised an error, or took too long.
    """

    def __init__(self, reason: str, ending: str | None = None) -> None:
        super().__init__(reason)
        self.ending = ending


class Apart:
    """A child process that starts with the first call, and anew after a call that ended it."""

    def __init__(self) -> None:
        self._process: ChildProcess | None = None
        self._log: IO[bytes] | None = None

    def call(self, limit_s: float, function: Callable[[*T], R], *arguments: *T) -> R:
        """Calls a function in the process, and returns its result.

        Args:
            limit_s: Time limit, s.
            function: A function of a module.
            arguments: Its arguments, which are pickled, as its result is.

        Raises:
            ApartError: The function ended the process, took too long, or raised another error.
            FleetToolsError: The function raised it.
        """
        if self._process is None or self._process.ended:  # the system may have ended it meanwhile
            self.end()
            self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed in `end`
            self._process = ChildProcess(__name__, self._log.fileno())
        assert self._log is not None
        try:
            self._log.seek(0)  # for the child, too
            self._log.truncate()
            self._process.connection.send_bytes(pickle.dumps((function, arguments)))
            if not self._process.connection.poll(limit_s):
                raise TimeoutError
            failed, result = pickle.loads(self._process.connection.recv_bytes())
        except BaseException as error:  # after Ctrl-C, too, its answer would be to another call
            ending = self.end()
            if isinstance(error, TimeoutError):
                raise ApartError(f"did not return within {limit_s:g} s") from None
            if isinstance(error, EOFError | OSError):
                raise ApartError(f"ended with {ending}", ending) from None
            raise
        if not failed:
            return result
        raise result if isinstance(result, FleetToolsError) else ApartError(f"failed ({result})")

    def end(self) -> str:
        """Ends the process, and returns how it ended, with what it printed last."""
        if self._process is None or self._log is None:
            return ""
        ending = self._process.end(_GRACE_S)
        self._log.seek(0)
        printed = self._log.read()[-_PRINTED:].decode(errors="replace").split()
        self._log.close()
        self._process, self._log = None, None
        return f"{ending}: {' '.join(printed)}" if printed else ending


def call_by_name(module: str, name: str, arguments: Sequence[Any]) -> Any:
    """Calls a function of a module that is imported in the child alone."""
    return getattr(importlib.import_module(module), name)(*arguments)


_shared = Apart()
atexit.register(_shared.end)


def call_apart(library: str, remedy: str, function: Callable[[*T], R], *arguments: *T) -> R:
    """Calls a function in the child process of this one, and returns its result.

    Args:
        library: Name of the library that the function calls.
        remedy: What helps if it fails, as a sentence.
        function: A function of a module.
        arguments: Its arguments, which are pickled, as its result is.

    Raises:
        NativeLibraryError: The library ended the child, did not return within `LIMIT_S`, or raised
            an error of its own.
        FleetToolsError: The function raised it.
    """
    if _is_child:
        return function(*arguments)
    with _lock:
        try:
            return _shared.call(LIMIT_S, function, *arguments)
        except ApartError as error:
            raise NativeLibraryError(f"{library} {error}. {remedy}") from None


# --- The process ----------------------------------------------------------------------------


def main(connection: Connection, log: int) -> None:
    """Calls functions until the connection is closed.

    Args:
        connection: Brings pickled calls, and takes their results.
        log: File to which libraries print.
    """
    global _is_child
    _is_child = True
    os.dup2(log, 1)
    os.dup2(log, 2)
    limit_memory()
    while True:
        try:
            content = connection.recv_bytes()
        except (EOFError, OSError):
            return
        connection.send_bytes(_answer(content))


def _answer(content: bytes) -> bytes:
    try:
        function, arguments = pickle.loads(content)
        return pickle.dumps((False, function(*arguments)))
    except FleetToolsError as error:
        return pickle.dumps((True, error))
    except Exception as error:
        return pickle.dumps((True, f"{type(error).__name__}: {error}"))
