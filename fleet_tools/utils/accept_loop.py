"""How all servers of this package accept connections: no client ends it, fills it, or holds it up.

It imports the standard library alone, for the Blender server, whose environment lacks this package.
"""

import contextlib
import errno
import logging
import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
"""What a client is told for whom there is no thread, unless it speaks TLS."""

_LOGGER = logging.getLogger(__name__)

_SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
"""Errors of `accept` after which the client waits on."""

_TICK_S, _PAUSE_S, _REPORT_S = 0.5, 0.1, 10.0
_PATIENCE_S = 1.0
"""Time that a client has before it gives way to others, unless there is a shortage, s."""
_FAREWELL_S = 5.0
"""Time that threads have to end, s."""


@dataclass
class _Connection:
    socket: socket.socket
    since: float = field(default_factory=time.monotonic)
    opened: bool = False
    ended: bool = False

    def hang_up(self) -> None:
        """Ends it from another thread, whose calls see the end of the stream."""
        self.ended = True
        with contextlib.suppress(OSError):  # it has ended itself
            self.socket.shutdown(socket.SHUT_RDWR)


class AcceptLoop:
    """Accepts connections, and serves each in a thread of its own.

    A connection begins as a stranger's, until its thread calls `opened`: by then, it has done its
    TLS handshake and sent what the server wants to know first. Strangers are few and have little
    time. Where there are too many, the oldest gives way if it is slow; otherwise the new one is
    dropped. Where descriptors or threads are short, the oldest gives way in any case. Each ten
    seconds at most, one line of the log counts what was dropped.

    Args:
        listening: The socket that listens, which `close` closes.
        serve: Serves one connection, given its socket and the client's address. An OSError ends it
            quietly.
        max_open: Largest number of open connections.
        opening_s: Longest time for opening one, s.
        max_opening: Largest number of connections that are not open.
        tls: Makes a connection the server's side of TLS, such as `TlsSocket`; None speaks without.

    Attributes:
        dropped: Number of connections that were dropped so far, by reason.
    """

    def __init__(
        self,
        listening: socket.socket,
        serve: Callable[[socket.socket, Any], object],
        max_open: int,
        *,
        opening_s: float = 10.0,
        max_opening: int = 32,
        tls: Callable[[socket.socket], Any] | None = None,
    ) -> None:
        self._listening, self._serve, self._tls = listening, serve, tls
        self._max_open, self._max_opening, self._opening_s = max_open, max_opening, opening_s
        self._connections: dict[threading.Thread, _Connection] = {}
        self._lock, self._accepting = threading.RLock(), threading.Lock()
        self.dropped: Counter[str] = Counter()
        self._reported, self._next_report = Counter[str](), 0.0
        self._closing = threading.Event()
        listening.setblocking(False)
        self._woken, self._waker = socket.socketpair()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port at which it listens."""
        return self._listening.getsockname()[:2]

    def serve_forever(self) -> None:
        """Accepts connections until `close` is called by another thread, or Ctrl-C.

        Raises:
            OSError: The socket does not listen any more, for a reason that is not of a client.
        """
        with self._accepting, selectors.DefaultSelector() as selector:
            if self._closing.is_set():
                return
            for each in (self._listening, self._woken):
                selector.register(each, selectors.EVENT_READ)
            while not self._closing.is_set():
                selector.select(_TICK_S)
                self._end_the_slow()
                self._report()
                self._accept()

    def opened(self) -> bool:
        """Makes the connection of this thread an open one.

        Returns:
            Whether there is a place for it; it stays a stranger's otherwise.
        """
        with self._lock:
            if sum(each.opened for each in self._connections.values()) >= self._max_open:
                self.dropped["no place"] += 1
                return False
            self._connections[threading.current_thread()].opened = True
            return True

    def close(self) -> None:
        """Stops listening, and ends all connections."""
        self._closing.set()
        with contextlib.suppress(OSError):  # it was closed before
            self._waker.send(b"x")
        with self._accepting:
            for each in (self._listening, self._woken, self._waker):
                each.close()
        with self._lock:
            left = dict(self._connections)
        for connection in left.values():
            connection.hang_up()
        deadline = time.monotonic() + _FAREWELL_S
        for thread in left:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        self._report(at_once=True)

    def __enter__(self) -> "AcceptLoop":
        """Returns itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Closes it."""
        self.close()

    def _accept(self) -> None:
        try:
            client, address = self._listening.accept()
        except BlockingIOError:
            return
        except (OSError, MemoryError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            if not _listens(self._listening):
                raise OSError(
                    getattr(error, "errno", None), f"It listens no more: {reason}"
                ) from error
            self._drop(reason)
            short = getattr(error, "errno", errno.ENOMEM) in _SHORTAGES
            if short and not self._oldest_gives_way(0.0):
                self._closing.wait(_PAUSE_S)
            return
        if not self._make_room():
            self._drop("too many at once", client)
            return
        client.setblocking(True)
        thread = threading.Thread(target=self._run, args=(client, address), daemon=True)
        with self._lock:
            self._connections[thread] = _Connection(client)
        try:
            thread.start()
        except (RuntimeError, MemoryError):
            with self._lock:
                del self._connections[thread]
            self._drop("no thread could be started", client)
            self._oldest_gives_way(0.0)

    def _run(self, client: socket.socket, address: Any) -> None:
        me = threading.current_thread()
        connection = self._connections[me]
        try:
            if self._tls is not None:
                connection.socket = secured = self._tls(client)
                secured.do_handshake()
            self._serve(connection.socket, address)
        except OSError:
            pass  # of the client, which has left
        finally:
            connection.socket.close()
            with self._lock:
                del self._connections[me]
                if not (connection.opened or connection.ended):
                    self.dropped["refused, or ended before they were open"] += 1

    def _make_room(self) -> bool:
        """Returns whether one more connection may be opened; a slow one gives way to it."""
        return len(self._strangers()) < self._max_opening or self._oldest_gives_way(_PATIENCE_S)

    def _oldest_gives_way(self, patience_s: float) -> bool:
        """Ends the oldest connection that is not open; returns whether there is one fewer now."""
        latest = time.monotonic() - patience_s
        for thread, connection in self._strangers():
            if connection.since <= latest and not connection.ended:
                connection.hang_up()
                self._drop("gave way to others")
                thread.join(_PAUSE_S)
                return not thread.is_alive()
        return False

    def _strangers(self) -> list[tuple[threading.Thread, _Connection]]:
        with self._lock:
            return [pair for pair in self._connections.items() if not pair[1].opened]

    def _end_the_slow(self) -> None:
        latest = time.monotonic() - self._opening_s
        with self._lock:
            for connection in self._connections.values():
                late = connection.since < latest
                if late and not (connection.opened or connection.ended):
                    connection.hang_up()
                    self._drop(f"not open after {self._opening_s:g} s")

    def _drop(self, reason: str, client: socket.socket | None = None) -> None:
        with self._lock:
            self.dropped[reason] += 1
        if client is not None:
            with contextlib.suppress(OSError):
                if self._tls is None:
                    client.setblocking(False)
                    client.send(BUSY)
            client.close()

    def _report(self, at_once: bool = False) -> None:
        with self._lock:
            news = self.dropped - self._reported
            if not news or (time.monotonic() < self._next_report and not at_once):
                return
            self._reported, self._next_report = self.dropped.copy(), time.monotonic() + _REPORT_S
        counts = ", ".join(f"{count} ({reason})" for reason, count in sorted(news.items()))
        _LOGGER.warning("Connections dropped since the last such line: %s.", counts)


def quiet_logger() -> logging.Logger:
    """Returns a logger that says nothing of others who do not speak the protocol, or leave."""
    logger = logging.getLogger(f"{__name__}.websockets")
    logger.setLevel(logging.CRITICAL)
    return logger


def _listens(listening: socket.socket) -> bool:
    try:
        return listening.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) != 0
    except OSError:
        return False
