"""Child processes that always end together with their parent.

They are never forked, so that they inherit no OpenGL context and import nothing of the user's main
module. `ChildProcess` is the parent's side; the child begins in `run`.
"""

import contextlib
import fcntl
import importlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from io import TextIOWrapper
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

_EXIT_S = 10.0
"""Time in which a killed process ends, unless the system itself keeps it."""


class ChildProcess:
    """A process that runs `main` of a module, and its connection.

    What it prints goes to stderr. Ctrl-C at the terminal does not reach it.

    Args:
        module: Name of the module; its `main` is called with the connection and the files.
        files: Descriptors of files that the process inherits.
        environment: All its environment variables; this process's if None.
        folder: Its working directory; this process's if None.
        through: Command that starts it, such as `unshare`, as its child or in its own place.
        stall_s: Time, s, for which sending and receiving may wait for the process, which may be
            stopped; None for as long as it takes.

    Attributes:
        connection: Sends to `main`, and receives. It raises EOFError or OSError where the process
            has ended, or after `stall_s`.
    """

    def __init__(
        self,
        module: str,
        *files: int,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        through: Sequence[str] = (),
        stall_s: int | None = None,
    ) -> None:
        ours, theirs = socket.socketpair()
        if stall_s is not None:
            for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
                ours.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", stall_s, 0))
        self.connection = Connection(ours.detach())
        theirs_alive, alive = os.pipe()
        self._alive = os.fdopen(alive, "wb", buffering=0)
        passed = (theirs.fileno(), theirs_alive, *files)
        # The child finds the same modules as this process, also where a script changed sys.path.
        code = (
            f"import sys; sys.path[:] = {[*map(os.path.abspath, sys.path)]!r}; "
            f"from {__name__} import run; run({module!r}, {', '.join(map(str, passed))})"
        )
        try:
            self._process = subprocess.Popen(
                [*through, sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=2,  # stdout is for results
                pass_fds=passed,
                env=environment,
                cwd=folder,
                start_new_session=True,
            )
            _end_with(theirs_alive, self._process.pid)
        finally:
            theirs.close()
            os.close(theirs_alive)

    @property
    def pid(self) -> int:
        """Process identifier."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """Kills the process and those that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def end(self, grace_s: float = 0.0) -> str:
        """Kills the process, unless it ends by itself; returns how it ended, in a few words.

        Args:
            grace_s: Time, s, in which it may end by itself.
        """
        self.connection.close()
        for limit in (grace_s, _EXIT_S):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(limit)
            self.kill()
        self._alive.close()
        return _ending(self._process.returncode)


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"


def run(module: str, connection: int, alive: int, *files: int) -> None:
    """Runs `main` of a module in a child process.

    Args:
        module: Name of the module.
        connection: Descriptor of the connection to the parent.
        alive: Reading end of a pipe that is closed when the parent ends.
        files: Other descriptors, for `main`.
    """
    for descriptor in (connection, alive, *files):
        os.set_inheritable(descriptor, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled where work comes from
    if select.select([alive], [], [], 0)[0]:  # closed already
        os._exit(1)
    if os.getpid() == 1:  # then `unshare` keeps it, whose copy nobody in here can change
        os.close(alive)
    cast(TextIOWrapper, sys.stdout).reconfigure(line_buffering=True)  # what is printed is seen
    importlib.import_module(module).main(Connection(connection), *files)


def _end_with(alive: int, group: int) -> None:
    """Lets the system kill a process and its children when a pipe is closed at the other end.

    No thread of theirs is needed for that, so that it works while compiled code hangs, and while
    the process is stopped. Only Linux does so; elsewhere a process ends once it finds its
    connection closed.

    Args:
        alive: Reading end of the pipe, which they have inherited.
        group: Their process group.
    """
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(alive, fcntl.F_SETOWN, -group)
        fcntl.fcntl(alive, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(alive, fcntl.F_SETFL, fcntl.fcntl(alive, fcntl.F_GETFL) | os.O_ASYNC)
