"""Connections to a server of websockets that are not open yet: few, with little time.

A connection is a stranger's until its opening handshake is done, and what the server asks for is
known. No client fills the server, holds it up or ends it before.
"""

import asyncio
import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from websockets.asyncio.server import ServerConnection

BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
"""What a client is told for whom there is no room."""


class Unopened:
    """The connections of a server that are not open, in the order of their arrival.

    Where there are too many, the oldest gives way if it had some time; otherwise the new one is
    dropped.

    Args:
        most: Largest number of them.
        opening_s: Longest time for opening one, s.
        patience_s: Time that one has before it gives way to others, s.

    Attributes:
        dropped: Number of connections that were dropped so far, by reason.
    """

    def __init__(self, most: int = 32, opening_s: float = 10.0, patience_s: float = 1.0) -> None:
        self._most, self._opening_s, self._patience_s = most, opening_s, patience_s
        self._since: dict[ServerConnection, float] = {}
        self.dropped: Counter[str] = Counter()

    def connection_class(self) -> "type[ServerConnection]":
        """Returns the class of connections (`create_connection` of `websockets`) that it counts."""
        from websockets.asyncio.server import ServerConnection

        unopened = self

        class Connection(ServerConnection):
            _is_served = False

            def connection_made(self, transport: Any) -> None:
                if not unopened._make_room():
                    transport.write(BUSY)
                    transport.close()
                    return unopened.drop("too many at once")
                self._is_served = True
                super().connection_made(transport)
                unopened._add(self)

            def connection_lost(self, exc: Exception | None) -> None:
                if unopened.opened(self):
                    unopened.drop("refused, or ended before they were open")
                if self._is_served:
                    super().connection_lost(exc)

        return Connection

    def opened(self, connection: "ServerConnection") -> bool:
        """Lets a connection stay; returns whether it was not open before."""
        return self._since.pop(connection, None) is not None

    def oldest_gives_way(self, patience_s: float = 0.0) -> bool:
        """Ends the oldest one if it had so many seconds; returns whether it had."""
        oldest = next(iter(self._since), None)
        if oldest is None or time.monotonic() - self._since[oldest] < patience_s:
            return False
        self._end(oldest, "gave way to others")
        return True

    def end_all(self) -> None:
        """Ends all of them."""
        for connection in list(self._since):
            self._end(connection, "ended with the server")

    def drop(self, reason: str) -> None:
        """Counts a connection that was dropped."""
        self.dropped[reason] += 1

    def _make_room(self) -> bool:
        return len(self._since) < self._most or self.oldest_gives_way(self._patience_s)

    def _add(self, connection: "ServerConnection") -> None:
        self._since[connection] = time.monotonic()
        late = f"not open after {self._opening_s:g} s"
        asyncio.get_running_loop().call_later(self._opening_s, self._end, connection, late)

    def _end(self, connection: "ServerConnection", reason: str) -> None:
        if self.opened(connection):
            connection.transport.abort()
            self.drop(reason)


def quiet_logger() -> logging.Logger:
    """Returns a logger that says nothing of others who do not speak the protocol, or leave."""
    logger = logging.getLogger(f"{__name__}.websockets")
    logger.setLevel(logging.CRITICAL)
    return logger
