"""Policy server for clients on this machine, with one policy for each connection.

Other machines reach it through a reverse proxy, which speaks TLS, or an SSH tunnel; see
docs/tutorials/serving.md.
"""

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from fleet_tools.errors import ConfigError, FleetToolsError
from fleet_tools.policies.conversation import Conversation, Reply, Served
from fleet_tools.policies.server_access import admits, require_token
from fleet_tools.policies.wire_messages import failure, largest_request
from fleet_tools.utils.bounded_server import BoundedServer, Connections, quiet_logger
from fleet_tools.utils.libraries import require

if TYPE_CHECKING:
    from websockets.asyncio.server import Server, ServerConnection
    from websockets.http11 import Request, Response

R = TypeVar("R")

_LOGGER = logging.getLogger(__name__)

HOST = "127.0.0.1"

HEALTH = "/healthz"
"""Path whose answer, 200, says that the server runs; openpi's servers have the same one."""

_FAREWELL_S = 2.0
"""Time that clients have to answer that the server closes, s."""


class PolicyServer(BoundedServer):
    """A policy that listens; a context manager, which stops it at its end.

    Requests are bounded by the size of an observation. Pages of browsers, which send the header
    `Origin`, are refused. So are clients that a proxy forwards, unless there is a token.

    Args:
        served: The policy.
        port: Port of this machine at which it listens; 0 takes a free one.
        token: Token that clients must present; None asks for none.
        max_connections: Largest number of connections at the same time; each holds a policy.

    Attributes:
        url: The address that clients are given.

    Raises:
        ConfigError: It cannot listen there, or the token cannot be sent, or is short.
        MissingLibraryError: A library is absent.
    """

    farewell_s = 2 * _FAREWELL_S

    def __init__(
        self, served: Served, port: int = 0, token: str | None = None, max_connections: int = 32
    ) -> None:
        require("websockets", "serve policies")
        if token is not None:
            require_token(token)
        self._served, self._token = served, token
        try:
            super().__init__(HOST, port, Connections(max_connections))
        except (OSError, OverflowError) as error:
            raise ConfigError(f"Cannot listen on {HOST}:{port}: {error}.") from None
        self.url = f"ws://{HOST}:{self.address[1]}"

    async def start(self) -> "Server":
        """See `BoundedServer`."""
        from websockets.asyncio.server import serve

        return await serve(
            self._converse,
            sock=self._socket,
            origins=[None],
            compression=None,
            process_request=self._admit,
            server_header=None,
            open_timeout=None,  # the strangers have one
            close_timeout=_FAREWELL_S,
            max_size=largest_request(self._served.hello.observation),
            max_queue=4,
            create_connection=self.connections.connection_class(),
            logger=quiet_logger(),
        )

    def _admit(self, connection: "ServerConnection", request: "Request") -> "Response | None":
        if request.path == HEALTH:
            return connection.respond(HTTPStatus.OK, "OK\n")
        if self._token is None:
            if any(name in request.headers for name in ("Forwarded", "X-Forwarded-For")):
                text = "other machines need a token: serve with --token-file\n"
                return connection.respond(HTTPStatus.FORBIDDEN, text)
            return None
        if admits(self._token, request.headers.get_all("Authorization")):
            return None
        return connection.respond(HTTPStatus.UNAUTHORIZED, "a token is needed\n")

    async def _converse(self, connection: "ServerConnection") -> None:
        from websockets.exceptions import ConnectionClosed

        if not self.connections.opened(connection.transport):
            return await connection.send(failure("full"))
        try:
            thread = _Thread()
        except RuntimeError:
            self.connections.dropped["no thread could be started"] += 1
            return
        try:
            with thread:
                await self._answer(connection, thread)
        except ConnectionClosed:
            pass  # also where a request was too large, which the client is told by code 1009
        except Exception:
            _LOGGER.exception("A connection ended by an error.")

    async def _answer(self, connection: "ServerConnection", thread: "_Thread") -> None:
        try:
            conversation = await thread.call(lambda: Conversation(self._served))
        except FleetToolsError as error:
            return await connection.send(failure("policy", error))
        await connection.send(conversation.greeting())
        request = asyncio.ensure_future(connection.recv())
        try:
            while True:
                content = await request
                request = asyncio.ensure_future(connection.recv())
                reply = await thread.call(lambda content=content: conversation.reply(content))
                if request.done() and request.exception() is None:
                    reply = Reply(failure("busy", "one request is in flight at a time"), True)
                await connection.send(reply.content)
                if reply.closes:
                    return
        finally:
            request.cancel()


class _Thread:
    """A thread in which one policy acts; a context manager.

    It is a daemon, so that a policy that hangs keeps no server from ending.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = (
            queue.SimpleQueue()
        )
        threading.Thread(target=self._run, name="policy", daemon=True).start()

    async def call(self, function: Callable[[], R]) -> R:
        """Returns the result of a function, called in the thread."""
        future: Future[R] = Future()
        self._calls.put((future, function))
        return await asyncio.wrap_future(future)

    def __enter__(self) -> "_Thread":
        """Returns itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Ends it, after its present call."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function = call
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:
                    future.set_exception(error)
            del call, future, function  # with the connection's policy
