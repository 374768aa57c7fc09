"""A server with a thread for each connection, which no client ends, fills or holds up.

It imports the standard library alone, for the Blender server, whose environment lacks this package.
"""

import contextlib
import errno
import logging
import socket
import socketserver
import sys
import threading
import time
from collections import Counter
from typing import Any

BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
"""What a client is told for whom there is no thread."""

_LOGGER = logging.getLogger(__name__)

_SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
"""Errors of `accept` after which the client waits on."""

_PAUSE_S, _REPORT_S = 0.1, 10.0
_PATIENCE_S = 1.0
"""Time that a client has before it gives way to others, unless there is a shortage, s."""


class _ListensNoMoreError(Exception):
    """The socket does not listen any more."""


class BoundedServer(socketserver.ThreadingTCPServer):
    """A server whose connections are bounded; a context manager, which stops it at its end.

    A connection begins as a stranger's, until its handler calls `opened`, once it has read what the
    server wants to know. Strangers are few and have little time. Where there are too many, the
    oldest gives way if it is slow; otherwise the new one is dropped. Where descriptors or threads
    are short, the oldest gives way in any case. Each ten seconds at most, one line of the log
    counts what was dropped.

    Args:
        address: Host and port at which it listens; port 0 takes a free one.
        handler: Handles one connection. An OSError ends it quietly.
        max_open: Largest number of open connections.
        opening_s: Longest time for opening one, s.
        max_opening: Largest number of connections that are not open.

    Attributes:
        dropped: Number of connections that were dropped so far, by reason.

    Raises:
        OSError: It cannot listen there.
    """

    daemon_threads, block_on_close = True, False
    allow_reuse_address, request_queue_size = True, 128

    def __init__(
        self,
        address: tuple[str, int],
        handler: type[socketserver.BaseRequestHandler],
        max_open: int,
        *,
        opening_s: float = 10.0,
        max_opening: int = 32,
    ) -> None:
        super().__init__(address, handler)
        self._max_open, self._max_opening, self._opening_s = max_open, max_opening, opening_s
        self._lock = threading.Lock()
        self._strangers: dict[socket.socket, float] = {}  # and when they came, in this order
        self._open: set[socket.socket] = set()
        self.dropped: Counter[str] = Counter()
        self._reported, self._next_report = Counter[str](), 0.0
        self._serving, self._closed = threading.Lock(), threading.Event()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port at which it listens."""
        return self.server_address[:2]  # pyright: ignore[reportReturnType]

    def serve_forever(self, poll_interval: float = 0.5) -> None:
        """Serves until `close` is called by another thread, or Ctrl-C.

        Raises:
            OSError: The socket does not listen any more, for a reason that is not of a client.
        """
        with self._serving:
            try:
                if not self._closed.is_set():
                    super().serve_forever(poll_interval)
            except _ListensNoMoreError as error:
                raise OSError(f"It listens no more: {error}") from error

    def opened(self, client: socket.socket) -> bool:
        """Makes a connection an open one; returns whether there is a place for it."""
        with self._lock:
            if client not in self._open and len(self._open) >= self._max_open:
                self.dropped["no place"] += 1
                return False
            self._strangers.pop(client, None)
            self._open.add(client)
            return True

    def close(self) -> None:
        """Stops listening, and ends all connections."""
        self._closed.set()
        if not self._serving.acquire(blocking=False):
            self.shutdown()
            self._serving.acquire()
        self._serving.release()
        self.server_close()
        with self._lock:
            left = [*self._strangers, *self._open]
        for client in left:
            _hang_up(client)
        self._report()

    def __exit__(self, *error: object) -> None:
        """Closes it."""
        self.close()

    def get_request(self) -> tuple[Any, Any]:
        """Accepts a connection."""
        try:
            return super().get_request()
        except (OSError, MemoryError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            if not _listens(self.socket):
                raise _ListensNoMoreError(reason) from error
            self._drop(reason)
            short = getattr(error, "errno", errno.ENOMEM) in _SHORTAGES
            if short and not self._oldest_gives_way(0.0):
                self._closed.wait(_PAUSE_S)
            raise OSError(reason) from error  # of a client

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Returns whether there is room for one more connection; a slow one gives way to it."""
        if len(self._strangers) >= self._max_opening and not self._oldest_gives_way(_PATIENCE_S):
            self._drop("too many at once")
            with contextlib.suppress(OSError):
                request.setblocking(False)
                request.send(BUSY)
            return False
        with self._lock:
            self._strangers[request] = time.monotonic()
        return True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Counts what a shortage or a client is the reason of, and prints other errors."""
        error = sys.exception()
        if isinstance(error, RuntimeError | MemoryError) and request in self._strangers:
            self._drop("no thread could be started")
            with self._lock:
                del self._strangers[request]
            self._oldest_gives_way(0.0)
        elif not isinstance(error, OSError):
            super().handle_error(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Ends a connection."""
        with self._lock:
            self._open.discard(request)
            if self._strangers.pop(request, None) is not None:
                self.dropped["refused, or ended before they were open"] += 1
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Ends the slow; called between connections."""
        while self._oldest_gives_way(self._opening_s, f"not open after {self._opening_s:g} s"):
            pass
        if time.monotonic() >= self._next_report:
            self._report()

    def _oldest_gives_way(self, patience_s: float, reason: str = "gave way to others") -> bool:
        """Ends the oldest connection that is not open; returns whether there was one."""
        with self._lock:
            oldest = next(iter(self._strangers), None)
            if oldest is None or time.monotonic() - self._strangers[oldest] < patience_s:
                return False
            del self._strangers[oldest]
            self.dropped[reason] += 1
            _hang_up(oldest)
        return True

    def _drop(self, reason: str) -> None:
        with self._lock:
            self.dropped[reason] += 1

    def _report(self) -> None:
        with self._lock:
            news = self.dropped - self._reported
            if news:
                self._reported, self._next_report = (
                    self.dropped.copy(),
                    time.monotonic() + _REPORT_S,
                )
        if news:
            counts = ", ".join(f"{count} ({reason})" for reason, count in sorted(news.items()))
            _LOGGER.warning("Connections dropped since the last such line: %s.", counts)


def _hang_up(client: socket.socket) -> None:
    """Ends a connection from another thread, whose calls see the end of the stream."""
    with contextlib.suppress(OSError):  # it has ended itself
        client.shutdown(socket.SHUT_RDWR)


def _listens(listening: socket.socket) -> bool:
    try:
        return listening.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) != 0
    except OSError:
        return False
