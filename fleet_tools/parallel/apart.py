"""Calls of native libraries in a child process, which they may end, fill or block.

CoACD, manifold3d, fast-simplification and Open3D abort, crash or do not return for some geometry of
strangers. One child serves the calls of this process. It starts with the first call, and anew after
a call that ended it.
"""

import atexit
import contextlib
import os
import pickle
import resource
import tempfile
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar, TypeVarTuple

from fleet_tools.errors import FleetToolsError, NativeLibraryError
from fleet_tools.parallel.child_process import ChildProcess
from fleet_tools.utils.machine import available_memory

T = TypeVarTuple("T")
R = TypeVar("R")

LIMIT_S = 600.0
"""Time limit of a call, s."""

CLEAN = "Make the mesh one clean surface, for instance with Blender's Remesh modifier."
"""What helps if libraries fail for a mesh."""

_PRINTED = 200
"""Number of bytes that a message repeats of what a library printed before it ended the process."""

_GRACE_S = 1.0
"""Time, s, in which a process ends that has closed its connection."""

_lock = threading.RLock()
_child: "_Child | None" = None
_is_child = False


def call_apart(library: str, remedy: str, function: Callable[[*T], R], *arguments: *T) -> R:
    """Calls a function in a child process, and returns its result.

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
    global _child
    if _is_child:
        return function(*arguments)
    with _lock:
        if _child is None or _child.process.ended:  # the system may have ended it while it waited
            _child = _Child()
        try:
            failed, result = _child.ask((function, arguments))
        except BaseException as error:  # after Ctrl-C, too, its answer would be to another call
            late = isinstance(error, TimeoutError)
            ending, _child = _child.end(), None
            if not isinstance(error, EOFError | OSError):
                raise
            reason = f"did not return within {LIMIT_S:g} s" if late else f"ended with {ending}"
            raise NativeLibraryError(f"{library} {reason}. {remedy}") from None
    if not failed:
        return result
    if isinstance(result, FleetToolsError):
        raise result
    raise NativeLibraryError(f"{library} failed ({result}). {remedy}")


class _Child:
    """The child process."""

    def __init__(self) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed in `end`
        self.process = ChildProcess(__name__, self._log.fileno())

    def ask(self, call: object) -> tuple[bool, Any]:
        connection = self.process.connection
        self._log.seek(0)  # for the child, too
        self._log.truncate()
        connection.send_bytes(pickle.dumps(call))
        if not connection.poll(LIMIT_S):
            raise TimeoutError
        return pickle.loads(connection.recv_bytes())

    def end(self) -> str:
        """Ends the process, and returns how it ended, with what it printed last."""
        ending = self.process.end(_GRACE_S)
        self._log.seek(0)
        printed = self._log.read()[-_PRINTED:].decode(errors="replace").split()
        self._log.close()
        return f"{ending}: {' '.join(printed)}" if printed else ending


@atexit.register
def _end() -> None:
    if _child is not None:
        _child.end()


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
    with contextlib.suppress(OSError, ValueError):  # beyond it, allocations fail instead of others
        resource.setrlimit(resource.RLIMIT_DATA, (available_memory(), resource.RLIM_INFINITY))
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
