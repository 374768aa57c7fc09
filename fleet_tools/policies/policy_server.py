"""Policy server for clients on this machine, with one policy for each connection.

Other machines reach it through a reverse proxy, which speaks TLS, or an SSH tunnel; see
docs/tutorials/serving.md.
"""

import asyncio
import contextlib
import logging
import queue
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Self, TypeVar

from fleet_tools.errors import ConfigError, FleetToolsError
from fleet_tools.policies.conversation import Conversation, Reply, Served
from fleet_tools.policies.server_access import admits, quiet_logger, require_token
from fleet_tools.policies.wire_messages import failure, largest_request
from fleet_tools.utils.libraries import require

if TYPE_CHECKING:
    from websockets.asyncio.server import ServerConnection
    from websockets.http11 import Request, Response

R = TypeVar("R")

_LOGGER = logging.getLogger(__name__)

HOST = "127.0.0.1"

HEALTH = "/healthz"
"""Path whose answer, 200, says that the server runs; openpi's servers have the same one."""

_FAREWELL_S = 2.0
"""Time that clients have to answer that the server closes, s."""


class PolicyServer:
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

    def __init__(
        self, served: Served, port: int = 0, token: str | None = None, max_connections: int = 32
    ) -> None:
        require("websockets", "serve policies")
        if token is not None:
            require_token(token)
        self._served, self._token, self._most = served, token, max_connections
        try:
            self._socket = socket.create_server((HOST, port))
        except (OSError, OverflowError) as error:
            raise ConfigError(f"Cannot listen on {HOST}:{port}: {error}.") from None
        self.url = f"ws://{HOST}:{self._socket.getsockname()[1]}"
        self._open: set[ServerConnection] = set()
        self._loop, self._over = asyncio.new_event_loop(), asyncio.Event()
        self._serves, self._ended = False, threading.Event()

    def serve_forever(self) -> None:
        """Serves until `close` is called by another thread, or an exception such as Ctrl-C."""
        self._serves = True
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._serve())
        finally:
            self._ended.set()

    def close(self) -> None:
        """Stops listening, and ends all connections."""
        with contextlib.suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._over.set)
        if self._serves:
            self._ended.wait()
        self._socket.close()

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Closes it."""
        self.close()

    async def _serve(self) -> None:
        from websockets.asyncio.server import serve

        if self._over.is_set():  # it was closed before it began
            return
        server = await serve(
            self._converse,
            sock=self._socket,
            origins=[None],
            compression=None,
            process_request=self._admit,
            server_header=None,
            close_timeout=_FAREWELL_S,
            max_size=largest_request(self._served.hello.observation),
            max_queue=4,
            logger=quiet_logger(),
        )
        try:
            await self._over.wait()
        finally:
            server.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(server.wait_closed(), 2 * _FAREWELL_S)
            for connection in self._open:
                connection.transport.abort()

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

        if len(self._open) >= self._most:
            return await connection.send(failure("full"))
        self._open.add(connection)
        try:
            with _Thread() as thread:
                await self._answer(connection, thread)
        except ConnectionClosed:
            pass  # also where a request was too large, which the client is told by code 1009
        except Exception:
            _LOGGER.exception("A connection ended by an error.")
        finally:
            self._open.discard(connection)

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
