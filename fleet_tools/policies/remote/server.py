"""The server of a policy: a thread for each connection, which has a policy of its own."""

import logging
import threading
from http import HTTPStatus
from typing import TYPE_CHECKING

from fleet_tools.errors import ConfigError
from fleet_tools.policies.remote.access import Access
from fleet_tools.policies.remote.conversation import Conversation, Dialect, Served
from fleet_tools.utils.libraries import require

if TYPE_CHECKING:
    from websockets.http11 import Request, Response
    from websockets.sync.server import ServerConnection

_LOGGER = logging.getLogger(__name__)


class PolicyServer:
    """A policy that listens; a context manager, which stops it at its end.

    Requests are bounded by the size of an observation. Pages of browsers, which send the header
    `Origin`, are refused.

    Args:
        served: The policy.
        access: Where it listens, and for whom.
        max_connections: Largest number of connections at the same time; each holds a policy.
        dialect: Its protocol.

    Attributes:
        url: The address that clients are given.

    Raises:
        ConfigError: It cannot listen there, or its certificate cannot be read.
        MissingLibraryError: A library is absent.
    """

    def __init__(
        self,
        served: Served,
        access: Access,
        max_connections: int = 32,
        dialect: type[Dialect] = Conversation,
    ) -> None:
        for module in ("websockets", "msgpack"):
            require(module, "serve policies")
        from websockets.sync.server import serve

        self._served, self._access, self._dialect = served, access, dialect
        self._places = threading.BoundedSemaphore(max_connections)
        self._open: set[ServerConnection] = set()
        self._closing, self._lock = False, threading.Lock()
        tls = access.tls()
        try:
            self._server = serve(
                self._converse,
                access.host,
                access.port,
                ssl=tls,
                origins=[None],
                compression=None,
                process_request=self._admit,
                server_header=None,
                max_size=dialect.largest_request(served.hello),
                max_queue=4,
                logger=_quiet_logger(),
            )
        except OSError as error:
            raise ConfigError(f"Cannot listen on {access.host}:{access.port}: {error}.") from None
        host, port = self._server.socket.getsockname()[:2]
        scheme = "ws" if tls is None else "wss"
        self.url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    def serve_forever(self) -> None:
        """Serves until `close` is called by another thread, or an exception such as Ctrl-C."""
        self._server.serve_forever()

    def close(self) -> None:
        """Stops listening, and closes all connections."""
        self._server.shutdown()
        with self._lock:
            self._closing, connections = True, list(self._open)
        for connection in connections:
            connection.close(1001)  # going away; before websockets 17, `shutdown` leaves them open

    def __enter__(self) -> "PolicyServer":
        """Returns itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Closes it."""
        self.close()

    def _admit(self, connection: "ServerConnection", request: "Request") -> "Response | None":
        given = request.headers.get_all("Authorization")
        if len(given) <= 1 and self._access.admits(given[0] if given else None):
            return None
        return connection.respond(HTTPStatus.UNAUTHORIZED, "a token is needed\n")

    def _converse(self, connection: "ServerConnection") -> None:
        from websockets.exceptions import ConnectionClosed

        if not self._places.acquire(blocking=False):
            connection.send(self._dialect.refusal("full", "").content)
            return
        try:
            with self._lock:
                self._open.add(connection)
                if self._closing:
                    return
            conversation = self._dialect(self._served)
            connection.send(conversation.greeting())
            for content in connection:
                reply = conversation.reply(content)
                if _another_is_there(connection):
                    reply = self._dialect.refusal("busy", "one request is in flight at a time")
                connection.send(reply.content)
                if reply.closes:
                    return
        except ConnectionClosed:
            pass  # also where a request was too large, which the client is told by code 1009
        except Exception:
            _LOGGER.exception("A connection ended by an error.")
        finally:
            with self._lock:
                self._open.discard(connection)
            self._places.release()


def _another_is_there(connection: "ServerConnection") -> bool:
    """Whether a request came while the last one was answered."""
    try:
        connection.recv(timeout=0)
    except TimeoutError:
        return False
    return True


def _quiet_logger() -> logging.Logger:
    """Returns a logger that says nothing of strangers who do not speak the protocol."""
    logger = logging.getLogger(f"{__name__}.websockets")
    logger.setLevel(logging.CRITICAL)
    return logger
