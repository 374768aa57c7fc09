"""The server of a policy, for clients of this machine; each connection has a policy of its own.

Other machines reach it through a reverse proxy, which speaks TLS, or an SSH tunnel; see
docs/tutorials/serving.md.
"""

import asyncio
import contextlib
import errno
import logging
import queue
import socket
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from fleet_tools.errors import ConfigError, PolicyError
from fleet_tools.policies.conversation import Conversation, Reply, Served
from fleet_tools.policies.server_access import admits, require_token
from fleet_tools.policies.wire_messages import failure, largest_request
from fleet_tools.utils.libraries import require
from fleet_tools.utils.unopened import Unopened, quiet_logger

if TYPE_CHECKING:
    from websockets.asyncio.server import ServerConnection
    from websockets.http11 import Request, Response

R = TypeVar("R")

_LOGGER = logging.getLogger(__name__)

HOST = "127.0.0.1"

HEALTH = "/healthz"
"""Path whose answer, 200, says that the server runs; openpi's servers have the same one."""

_SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
"""Errors of `accept` after which asyncio tries again, a second later."""

_REPORT_S = 10.0
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
        self._served, self._token, self._max_connections = served, token, max_connections
        try:
            self._socket = socket.create_server((HOST, port))
        except (OSError, OverflowError) as error:
            raise ConfigError(f"Cannot listen on {HOST}:{port}: {error}.") from None
        self.url = f"ws://{HOST}:{self._socket.getsockname()[1]}"
        self._unopened, self._open = Unopened(), 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Future[None] | None = None
        self._closed, self._ended = threading.Event(), threading.Event()

    @property
    def dropped(self) -> dict[str, int]:
        """Number of connections that were dropped so far, by reason."""
        return dict(self._unopened.dropped)

    def serve_forever(self) -> None:
        """Serves until `close` is called by another thread, or an exception such as Ctrl-C.

        Raises:
            OSError: It does not listen any more.
        """
        try:
            asyncio.run(self._serve())
        finally:
            self._ended.set()

    def close(self) -> None:
        """Stops listening, and closes all connections, also to clients that do not answer."""
        self._closed.set()
        if self._loop is None:
            self._socket.close()
        elif not self._ended.is_set():
            self._loop.call_soon_threadsafe(self._finish)
            self._ended.wait()

    def __enter__(self) -> "PolicyServer":
        """Returns itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Closes it."""
        self.close()

    async def _serve(self) -> None:
        from websockets.asyncio.server import serve

        self._loop = asyncio.get_running_loop()
        self._end = self._loop.create_future()
        if self._closed.is_set():
            return
        self._loop.set_exception_handler(self._on_error)
        server = await serve(
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
            create_connection=self._unopened.connection_class(),
            logger=quiet_logger(),
        )
        try:
            reported: Counter[str] = Counter()
            while not self._end.done():
                await asyncio.wait([self._end], timeout=_REPORT_S)
                reported = self._report(reported)
            self._end.result()
        finally:
            self._unopened.end_all()
            server.close()
            with contextlib.suppress(TimeoutError):  # of a policy that acts on, in its thread
                await asyncio.wait_for(server.wait_closed(), 2 * _FAREWELL_S)

    def _report(self, reported: Counter[str]) -> Counter[str]:
        """Writes what was dropped since then into the log; returns what was dropped so far."""
        if news := self._unopened.dropped - reported:
            counts = ", ".join(f"{count} ({reason})" for reason, count in sorted(news.items()))
            _LOGGER.warning("Connections dropped since the last such line: %s.", counts)
        return self._unopened.dropped.copy()

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
            return self._finish(OSError(error.errno, f"It listens no more: {reason}"))
        self._unopened.drop(reason)
        if error.errno in _SHORTAGES:
            self._unopened.oldest_gives_way()

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

        if self._open >= self._max_connections:
            self._unopened.opened(connection)
            self._unopened.drop("no place")
            return await connection.send(failure("full"))
        try:
            thread = _Thread()
        except RuntimeError:
            return self._unopened.drop("no thread could be started")
        self._unopened.opened(connection)
        self._open += 1
        try:
            with thread:
                await self._answer(connection, thread)
        except ConnectionClosed:
            pass  # also where a request was too large, which the client is told by code 1009
        except Exception:
            _LOGGER.exception("A connection ended by an error.")
        finally:
            self._open -= 1

    async def _answer(self, connection: "ServerConnection", thread: "_Thread") -> None:
        try:
            conversation = await thread.call(lambda: Conversation(self._served))
        except PolicyError as error:
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


def _listens(listening: socket.socket) -> bool:
    try:
        return listening.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) != 0
    except OSError:
        return False
