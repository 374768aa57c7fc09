"""An asyncio server with limits, so that no client can end, fill or block it."""

import asyncio
import contextlib
import errno
import logging
import math
import socket
import threading
import time
from collections import Counter
from typing import Any, Self

BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
"""Answer to a client if the server is full."""

_LOGGER = logging.getLogger(__name__)

_SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
"""Errors of `accept` after which asyncio tries again, a second later."""

_REPORT_S = 10.0


class Connections:
    """The connections of a server, in the order of their arrival.

    A connection is a stranger's until the server has read what it wants to know. Strangers are few
    and have little time. Where there are too many, the oldest gives way if it had some time;
    otherwise the new one is dropped.

    Args:
        max_open: Largest number of connections that are open.
        max_opening: Largest number of connections that are not.
        opening_s: Longest time for opening one, s.
        patience_s: Time that one has before it gives way to others, s.

    Attributes:
        dropped: Number of connections that were dropped so far, by reason.
    """

    def __init__(
        self,
        max_open: float = math.inf,
        max_opening: int = 32,
        opening_s: float = 10.0,
        patience_s: float = 1.0,
    ) -> None:
        self._max_open, self._max_opening = max_open, max_opening
        self._opening_s, self._patience_s = opening_s, patience_s
        self._strangers: dict[Any, float] = {}  # and when they came
        self._open: set[Any] = set()
        self.dropped: Counter[str] = Counter()

    def admit(self, transport: Any) -> bool:
        """Returns whether there is room for a new connection, which is ended otherwise."""
        if len(self._strangers) >= self._max_opening and not self.oldest_gives_way(
            self._patience_s
        ):
            self.dropped["too many at once"] += 1
            transport.write(BUSY)
            transport.close()
            return False
        self._strangers[transport] = time.monotonic()
        late = f"not open after {self._opening_s:g} s"
        asyncio.get_running_loop().call_later(self._opening_s, self._end, transport, late)
        return True

    def opened(self, transport: Any) -> bool:
        """Lets a connection stay; returns whether there is a place for it."""
        if transport not in self._open and len(self._open) >= self._max_open:
            self.dropped["no place"] += 1
            return False
        if self._strangers.pop(transport, None) is not None:
            self._open.add(transport)
        return True

    def lost(self, transport: Any) -> None:
        """Forgets a connection that has ended."""
        self._open.discard(transport)
        if self._strangers.pop(transport, None) is not None:
            self.dropped["refused, or ended before they were open"] += 1

    def oldest_gives_way(self, patience_s: float = 0.0) -> bool:
        """Ends the oldest one if it had so many seconds; returns whether it had."""
        oldest = next(iter(self._strangers), None)
        if oldest is None or time.monotonic() - self._strangers[oldest] < patience_s:
            return False
        self._end(oldest, "gave way to others")
        return True

    def end_strangers(self) -> None:
        """Ends connections that are not open."""
        for transport in list(self._strangers):
            self._end(transport, "ended with the server")

    def end_all(self) -> None:
        """Ends all of them."""
        self.end_strangers()
        for transport in self._open:
            transport.abort()

    def connection_class(self) -> Any:
        """Returns the class of connections (`create_connection` of `websockets`) that it counts."""
        from websockets.asyncio.server import ServerConnection

        connections = self

        class Connection(ServerConnection):
            _is_admitted = False

            def connection_made(self, transport: Any) -> None:
                self._is_admitted = connections.admit(transport)
                if self._is_admitted:
                    super().connection_made(transport)

            def connection_lost(self, exc: Exception | None) -> None:
                if self._is_admitted:
                    connections.lost(self.transport)
                    super().connection_lost(exc)

        return Connection

    def _end(self, transport: Any, reason: str) -> None:
        if self._strangers.pop(transport, None) is not None:
            transport.abort()
            self.dropped[reason] += 1


class BoundedServer:
    """A server that listens; a context manager, which stops it at its end.

    Each ten seconds at most, one line of the log counts what was dropped. Where descriptors are
    short, the oldest stranger gives way in any case. Heirs define `start`, and `farewell_s`, the
    time that open connections have to end.

    Args:
        host, port: Where it listens; port 0 takes a free one.
        connections: Its connections.

    Raises:
        OSError: It cannot listen there.
    """

    farewell_s = 0.1

    def __init__(self, host: str, port: int, connections: Connections) -> None:
        self._socket = socket.create_server((host, port))
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self.connections = connections
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Future[None] | None = None
        self._closed, self._ended = threading.Event(), threading.Event()
        self._is_short = False

    async def start(self) -> Any:
        """Begins to serve on `self._socket`; returns what has `close` and `wait_closed`."""
        raise NotImplementedError

    @property
    def dropped(self) -> dict[str, int]:
        """Number of connections that were dropped so far, by reason."""
        return dict(self.connections.dropped)

    def serve_forever(self) -> None:
        """Serves until `close` is called by another thread, or an exception such as Ctrl-C.

        Raises:
            OSError: It does not listen any more, for a reason that is not of a client.
        """
        try:
            asyncio.run(self._serve())
        finally:
            self._ended.set()

    def close(self) -> None:
        """Stops listening, and ends all connections."""
        self._closed.set()
        if self._loop is None:
            self._socket.close()
        elif not self._ended.is_set():
            with contextlib.suppress(RuntimeError):  # it has ended just now
                self._loop.call_soon_threadsafe(self._finish)
            self._ended.wait()

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Closes it."""
        self.close()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.create_future()
        if self._closed.is_set():
            return
        self._loop.set_exception_handler(self._on_error)
        server, reported = await self.start(), Counter[str]()
        try:
            while not self._end.done():
                await asyncio.wait([self._end], timeout=_REPORT_S)
                reported = self._report(reported)
            self._end.result()
        finally:
            self.connections.end_strangers()
            server.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(server.wait_closed(), self.farewell_s)
            self.connections.end_all()
            await asyncio.sleep(0)  # in which their sockets are closed

    def _report(self, reported: Counter[str]) -> Counter[str]:
        """Writes what was dropped since then into the log; returns what was dropped so far."""
        if news := self.connections.dropped - reported:
            counts = ", ".join(f"{count} ({reason})" for reason, count in sorted(news.items()))
            _LOGGER.warning("Connections dropped since the last such line: %s.", counts)
        return self.connections.dropped.copy()

    def _finish(self, error: OSError | None = None) -> None:
        if self._end is None or self._end.done():
            return
        if error is None:
            self._end.set_result(None)
        else:
            self._end.set_exception(error)

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handles errors of `accept`, for which asyncio has no other place."""
        error = context.get("exception")
        if not isinstance(error, OSError) or not context.keys() & {"socket", "handle"}:
            return loop.default_exception_handler(context)
        reason = error.strerror or type(error).__name__
        if not _listens(self._socket):
            return self._finish(OSError(error.errno, f"The server stopped listening: {reason}"))
        if error.errno in _SHORTAGES and not self._is_short:  # asyncio tries many times at once
            self._is_short = True
            loop.call_soon(self._give_way, reason)

    def _give_way(self, reason: str) -> None:
        self._is_short = False
        self.connections.dropped[reason] += 1
        self.connections.oldest_gives_way()


def _listens(listening: socket.socket) -> bool:
    try:
        return listening.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) != 0
    except OSError:
        return False


def quiet_logger() -> logging.Logger:
    """Returns a logger that says nothing of others who do not speak the protocol, or leave."""
    logger = logging.getLogger(f"{__name__}.websockets")
    logger.setLevel(logging.CRITICAL)
    return logger
