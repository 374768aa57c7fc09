"""Serves the page, receives what its devices say, and sends it what is to be shown.

The page and its socket have one port on this machine alone. Requests must name this machine, and
the socket is for the page's own origin, so that no other site that a browser shows can steer.
"""

import json
import logging
import threading
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fleet_tools.errors import ConfigError
from fleet_tools.teleoperation.controls import MAX_MESSAGE, Controls, read_controls
from fleet_tools.teleoperation.inputs import Inputs
from fleet_tools.utils.libraries import require

if TYPE_CHECKING:
    from websockets.http11 import Request, Response
    from websockets.sync.server import ServerConnection

HOST = "127.0.0.1"
SOCKET = "/socket"
_NAMES = {"127.0.0.1", "localhost"}
_FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
_MAX_PAGES = 8
_LOOK_S, _CLOSE_S = 1.0, 2.0
"""Times after which a lost page is noticed, and for which one is waited for, s."""


class PageServer:
    """The page; a context manager, which stops serving at its end.

    Args:
        inputs: Receives what the devices of all pages say.
        port: Port; 0 takes a free one.

    Attributes:
        url: Address of the page.

    Raises:
        ConfigError: It cannot listen there.
        MissingLibraryError: websockets is absent, which viser brings.
    """

    def __init__(self, inputs: Inputs, port: int) -> None:
        require("websockets", "serve the page")
        from websockets.sync.server import serve

        self._inputs = inputs
        self._places = threading.BoundedSemaphore(_MAX_PAGES)
        self._changed = threading.Condition()
        self._shown: dict[str, tuple[int, str]] = {}  # by kind: version, and message
        self._version = 0
        self._closed = False
        try:
            self._server = serve(
                self._converse,
                HOST,
                port,
                compression=None,
                process_request=self._answer,
                server_header=None,
                max_size=MAX_MESSAGE,
                close_timeout=_CLOSE_S,
                logger=_quiet_logger(),
            )
        except OSError as error:
            raise ConfigError(
                f"Cannot listen on {HOST}:{port}: {error}. Give another --port; 0 takes a free one."
            ) from None
        self.url = f"http://{HOST}:{self._server.socket.getsockname()[1]}/"
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="page server", daemon=True
        )
        self._thread.start()

    def show(self, kind: str, content: Mapping[str, Any]) -> None:
        """Shows something on all pages, in place of the last one of its kind; never waits.

        Args:
            kind: Name of what is shown, such as "status".
            content: Plain JSON data.
        """
        message = json.dumps({"type": kind, **content})
        with self._changed:
            if kind in self._shown and self._shown[kind][1] == message:
                return
            self._version += 1
            self._shown[kind] = self._version, message
            self._changed.notify_all()

    def close(self) -> None:
        """Stops serving, and closes all connections."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._server.shutdown()
        self._thread.join()

    def __enter__(self) -> "PageServer":
        """Returns itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Closes it."""
        self.close()

    def _answer(self, connection: "ServerConnection", request: "Request") -> "Response | None":
        """Returns a file, a refusal, or None where the socket is to be opened."""
        from websockets.datastructures import Headers
        from websockets.http11 import Response

        given = (request.headers.get_all(name) for name in ("Host", "Origin"))
        hosts, origins = given
        if len(hosts) != 1 or urlsplit(f"//{hosts[0]}").hostname not in _NAMES:
            return connection.respond(HTTPStatus.FORBIDDEN, "this page is for this machine\n")
        if request.path == SOCKET:
            own = [f"http://{hosts[0]}"]
            if origins != own:
                return connection.respond(HTTPStatus.FORBIDDEN, "the socket is for the page\n")
            return None
        if request.path not in _FILES:
            return connection.respond(HTTPStatus.NOT_FOUND, "there is no such page\n")
        name, kind = _FILES[request.path]
        body = (Path(__file__).parent / name).read_bytes()
        headers = Headers(
            {
                "Content-Type": kind,
                "Content-Length": str(len(body)),
                "Cache-Control": "no-cache",
                "Connection": "close",
            }
        )
        return Response(HTTPStatus.OK, "OK", headers, body)

    def _converse(self, connection: "ServerConnection") -> None:
        from websockets.exceptions import ConnectionClosed

        if not self._places.acquire(blocking=False):
            connection.close(reason="too many pages")
            return
        sender = threading.Thread(target=self._send, args=(connection,), daemon=True)
        self._inputs.open_page(connection)
        sender.start()
        before = Controls()
        try:
            for message in connection:
                controls = read_controls(message)
                requests = controls.requests(before)
                self._inputs.set_commands(connection, controls.commands(), requests)
                before = controls
        except ConnectionClosed:
            pass
        except ConfigError as error:
            connection.close(code=1008, reason=str(error)[:100])
        finally:
            self._inputs.close_page(connection)
            with self._changed:
                self._changed.notify_all()
            sender.join()
            self._places.release()

    def _send(self, connection: "ServerConnection") -> None:
        """Sends what is shown, the latest of each kind, as fast as the page takes it."""
        from websockets.exceptions import ConnectionClosed
        from websockets.protocol import State

        sent = 0
        try:
            while connection.state is State.OPEN and not self._closed:
                with self._changed:
                    if self._version == sent:
                        self._changed.wait(_LOOK_S)
                    news = [text for version, text in self._shown.values() if version > sent]
                    sent = self._version
                for text in news:
                    connection.send(text)
            connection.close()
        except ConnectionClosed:
            pass


def _quiet_logger() -> logging.Logger:
    """Returns a logger that says nothing of strangers who do not speak the protocol."""
    logger = logging.getLogger(f"{__name__}.websockets")
    logger.setLevel(logging.CRITICAL)
    return logger
