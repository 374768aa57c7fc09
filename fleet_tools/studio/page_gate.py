"""Access control of a browser page: only addresses with its secret are served.

A page of any site that the same browser shows reaches every port of this machine, under a name of
this machine or under one of its own (DNS rebinding). So do other users of the machine. Below a
gate, everything has an address that cannot be guessed; requests must name this machine, and sockets
come from the page itself, from one tab at a time.
"""

import contextlib
import dataclasses
import functools
import hmac
import io
import re
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from fleet_tools.errors import ConfigError, MissingLibraryError
from fleet_tools.policies.server_access import quiet_logger
from fleet_tools.utils.libraries import install_command, require

if TYPE_CHECKING:
    import viser
    from websockets.asyncio.server import ServerConnection, serve
    from websockets.http11 import Request, Response

HOST = "127.0.0.1"

_LOCAL = re.compile(r"(127\.0\.0\.1|localhost)(:[0-9]{1,5})?")
_TOKEN_BYTES = 24
_ELSEWHERE = """<!doctype html>
<meta charset="utf-8"><meta http-equiv="refresh" content="1"><title>Fleet-Tools</title>
<p>This page is open in another tab or window. It opens here once that one is closed.</p>
"""

Handler = Callable[["ServerConnection"], Awaitable[None]]
Answer = Callable[["ServerConnection", "Request"], "Response | None"]
"""Returns a file or a refusal, or None where a socket is asked for."""


class PageGate:
    """A port of this machine with an address for one person.

    Args:
        port: Port; 0 takes a free one.

    Attributes:
        port: The port.
        path: Secret path below which everything lies, as /.../.
        url: Address of the page. Who has it can do what the page can.

    Raises:
        ConfigError: It cannot listen there.
    """

    def __init__(self, port: int) -> None:
        try:
            self._socket = socket.create_server((HOST, port))
        except OSError as error:
            raise ConfigError(
                f"Cannot listen on {HOST}:{port}: {error}. Give another --port; 0 takes a free one."
            ) from None
        self.port: int = self._socket.getsockname()[1]
        self._token = secrets.token_urlsafe(_TOKEN_BYTES)
        self.path = f"/{self._token}/"
        self.url = f"http://{HOST}:{self.port}{self.path}"
        self._opened: ServerConnection | None = None

    def serve(self, handler: Handler, answer: Answer, **options: Any) -> "serve":
        """Returns a server behind the gate, which is entered in an event loop.

        Args:
            handler: Converses with the page.
            answer: Answers requests, whose paths are those below the gate.
            options: Further ones of `websockets.asyncio.server.serve`.
        """
        from websockets.asyncio.server import serve

        async def converse(connection: "ServerConnection") -> None:
            if self._opened is None:  # another one may have come during the handshake
                self._opened = connection
                try:
                    await handler(connection)
                finally:
                    self._opened = None

        protected = {
            "process_request": functools.partial(self._admit, answer),
            "process_response": _hide_address,
            "server_header": None,
            "logger": quiet_logger(),
        }
        return serve(converse, sock=self._socket, **(options | protected))

    def close(self) -> None:
        """Stops listening; for a gate that does not serve, as the end of its server does that."""
        self._socket.close()

    def _admit(
        self, answer: Answer, connection: "ServerConnection", request: "Request"
    ) -> "Response | None":
        hosts, origins = (request.headers.get_all(name) for name in ("Host", "Origin"))
        if len(hosts) != 1 or not names_this_machine(hosts[0]):
            return connection.respond(HTTPStatus.FORBIDDEN, "this page is for this machine\n")
        given, slash, rest = request.path.partition("?")[0].removeprefix("/").partition("/")
        if not hmac.compare_digest(given.encode(errors="replace"), self._token.encode()):
            text = "open the address that the program printed\n"
            return connection.respond(HTTPStatus.FORBIDDEN, text)
        answered = answer(connection, dataclasses.replace(request, path=f"/{rest}"))
        if answered is None:
            if origins != [f"http://{hosts[0]}"]:
                return connection.respond(HTTPStatus.FORBIDDEN, "the socket is for the page\n")
            if self._opened is not None:
                return connection.respond(HTTPStatus.CONFLICT, "another page is open\n")
            return None
        if not rest and self._opened is not None:
            answered = connection.respond(HTTPStatus.CONFLICT, _ELSEWHERE)
            answered.headers["Content-Type"] = "text/html; charset=utf-8"
        elif not slash:  # names in the page are relative to its folder
            answered = connection.respond(HTTPStatus.TEMPORARY_REDIRECT, "")
            answered.headers["Location"] = self.path
        return answered


def names_this_machine(host: str) -> bool:
    """Whether a request's header `Host` is a name of this machine, which no other site can have."""
    return _LOCAL.fullmatch(host) is not None


def open_viser(
    port: int, purpose: str, label: str | None = None
) -> "tuple[PageGate, viser.ViserServer]":
    """Starts viser's server behind a gate; `stop_viser` ends it.

    Viser asks nobody who he is, and offers no place for such a question. It starts its server by
    `websockets.asyncio.server.serve`, in whose place the gate is put for that moment.

    Args:
        port: Port; 0 takes a free one.
        purpose: What viser is needed for.
        label: Title of its panel.

    Raises:
        ConfigError: It cannot listen there.
        MissingLibraryError: Viser is absent, or starts its server in another way.
    """
    library = require("viser", purpose)
    import websockets.asyncio.server as websockets_server

    gate = PageGate(port)
    serve, gated = websockets_server.serve, []

    def serve_gated(
        handler: Handler, *address: Any, process_request: Any = None, **options: Any
    ) -> Any:
        if not handler.__module__.startswith("viser."):
            return serve(handler, *address, process_request=process_request, **options)
        gated.append(handler)
        return gate.serve(handler, process_request, **options)

    with _STARTING, _hushed():
        websockets_server.serve = serve_gated
        try:
            server = library.ViserServer(HOST, gate.port, label, verbose=False)
        finally:
            websockets_server.serve = serve
    if not gated:
        stop_viser(server)
        gate.close()
        raise MissingLibraryError(
            "This version of viser cannot be protected from pages of other sites. Install a tested "
            f"version with: {install_command('browser')}."
        )
    return gate, server


def stop_viser(server: "viser.ViserServer") -> None:
    """Stops viser's server."""
    with _hushed():
        server.stop()


_STARTING = threading.Lock()


def _hushed() -> contextlib.AbstractContextManager[object]:
    """Returns a context in which viser does not print: its address lacks the gate's path."""
    return contextlib.redirect_stdout(io.StringIO())


def _hide_address(connection: "ServerConnection", request: "Request", response: "Response") -> None:
    """Keeps the page's address out of the requests to what it may link to."""
    response.headers["Referrer-Policy"] = "no-referrer"
