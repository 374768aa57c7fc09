"""The server of a policy: a thread for each connection, which has a policy of its own."""

import contextlib
import functools
import logging
import threading
import time
from http import HTTPStatus
from typing import TYPE_CHECKING

from fleet_tools.errors import ConfigError, PolicyError
from fleet_tools.policies.conversation import Conversation, Dialect, Served
from fleet_tools.policies.server_access import Access
from fleet_tools.utils.accept_loop import AcceptLoop, quiet_logger
from fleet_tools.utils.libraries import require
from fleet_tools.utils.tls_socket import TlsSocket

if TYPE_CHECKING:
    from websockets.http11 import Request, Response
    from websockets.sync.server import ServerConnection

_LOGGER = logging.getLogger(__name__)

HEALTH = "/healthz"
"""Path whose answer, 200, says that the server runs; openpi's servers have the same one."""

_GOING_AWAY = 1001
_FAREWELL_S = 2.0
"""Time that clients have to answer that the server closes, s."""


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
        require("websockets", "serve policies")
        from websockets.sync.server import serve

        self._served, self._access, self._dialect = served, access, dialect
        self._open: set[ServerConnection] = set()
        self._closing, self._lock = False, threading.Lock()
        tls = access.tls()
        try:
            self._server = serve(
                self._serve,
                access.host,
                access.port,
                origins=[None],
                compression=None,
                process_request=self._admit,
                server_header=None,
                open_timeout=None,  # the loop has one, for TLS and the rest together
                max_size=dialect.largest_request(served.hello),
                max_queue=4,
                logger=quiet_logger(),
            )
        except OSError as error:
            raise ConfigError(f"Cannot listen on {access.host}:{access.port}: {error}.") from None
        # The loop of websockets ends by every error of accept, and by a lack of threads.
        self._loop = AcceptLoop(
            self._server.socket,
            self._server.handler,
            max_connections,
            tls=None if tls is None else functools.partial(TlsSocket, context=tls),
        )
        host, port = self._loop.address
        scheme = "ws" if tls is None else "wss"
        self.url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def dropped(self) -> dict[str, int]:
        """Number of connections that were dropped so far, by reason."""
        return dict(self._loop.dropped)

    def serve_forever(self) -> None:
        """Serves until `close` is called by another thread, or an exception such as Ctrl-C.

        Raises:
            OSError: It does not listen any more.
        """
        self._loop.serve_forever()

    def close(self) -> None:
        """Stops listening, and closes all connections, also to clients that do not answer."""
        with self._lock:
            self._closing, connections = True, list(self._open)
        farewells = []
        for each in connections:
            thread = threading.Thread(target=each.close, args=(_GOING_AWAY,), daemon=True)
            with contextlib.suppress(RuntimeError):  # no more threads: it ends without a farewell
                thread.start()
                farewells.append(thread)
        deadline = time.monotonic() + _FAREWELL_S
        for thread in farewells:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._loop.close()
        # On its closed socket this only releases what it has made besides.
        self._server.serve_forever()
        self._server.shutdown()

    def __enter__(self) -> "PolicyServer":
        """Returns itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Closes it."""
        self.close()

    def _admit(self, connection: "ServerConnection", request: "Request") -> "Response | None":
        if request.path == HEALTH:
            return connection.respond(HTTPStatus.OK, "OK\n")
        given = request.headers.get_all("Authorization")
        if len(given) <= 1 and self._access.admits(given[0] if given else None):
            return None
        return connection.respond(HTTPStatus.UNAUTHORIZED, "a token is needed\n")

    def _serve(self, connection: "ServerConnection") -> None:
        with self._lock:
            if self._closing:
                return
            self._open.add(connection)
        try:
            self._converse(connection)
        finally:
            with self._lock:
                self._open.discard(connection)

    def _converse(self, connection: "ServerConnection") -> None:
        from websockets.exceptions import ConnectionClosed

        if not self._loop.opened():
            connection.send(self._dialect.refusal("full", "").content)
            return
        try:
            try:
                conversation = self._dialect(self._served)
            except PolicyError as error:
                connection.send(self._dialect.refusal("policy", str(error)).content)
                return
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


def _another_is_there(connection: "ServerConnection") -> bool:
    """Whether a request came while the last one was answered."""
    try:
        connection.recv(timeout=0)
    except TimeoutError:
        return False
    return True
