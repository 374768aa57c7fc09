"""Serves the teleoperation page, and exchanges messages with its devices.

The page and its socket have one port, behind a gate: no other site that a browser shows can steer.
"""

import asyncio
import contextlib
import json
import threading
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pydantic

from fleet_tools.config.values import Number, Value, parse
from fleet_tools.errors import ConfigError
from fleet_tools.studio.page_gate import PageGate
from fleet_tools.studio.teleoperation.devices import (
    DeviceCommand,
    Frame,
    Inputs,
    Request,
    command_of_gamepad,
    command_of_keys,
    requests_of_gamepad,
    requests_of_keys,
)
from fleet_tools.utils.libraries import require

if TYPE_CHECKING:
    from websockets.asyncio.server import ServerConnection
    from websockets.http11 import Request as HttpRequest
    from websockets.http11 import Response

SOCKET = "/socket"
_FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
_CLOSE_S = 2.0
"""Time for which a page that is to be closed is waited for, s."""


class PageServer:
    """The page; a context manager, which stops serving at its end.

    Args:
        inputs: Receives what the devices of the page say.
        port: Port; 0 takes a free one.

    Attributes:
        url: Address of the page.

    Raises:
        ConfigError: It cannot listen there.
        MissingLibraryError: websockets is absent, which viser brings.
    """

    def __init__(self, inputs: Inputs, port: int) -> None:
        require("websockets", "serve the page")
        self._inputs = inputs
        self._shown: dict[str, tuple[int, str]] = {}  # by kind: version, and message
        self._version = 0
        self._gate = PageGate(port)
        self.url = self._gate.url
        self._news, self._over = asyncio.Event(), asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="page server", daemon=True)
        self._thread.start()

    def show(self, kind: str, content: Mapping[str, Any]) -> None:
        """Shows something on the page, in place of the last one of its kind; never waits."""
        message = json.dumps({"type": kind, **content})
        self._loop.call_soon_threadsafe(self._publish, kind, message)

    def close(self) -> None:
        """Stops serving, and closes the page's connection."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def __enter__(self) -> "PageServer":
        """Returns itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Closes it."""
        self.close()

    # --- In the event loop ----------------------------------------------------------------------

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        options = {"compression": None, "max_size": MAX_MESSAGE, "close_timeout": _CLOSE_S}
        server = await self._gate.serve(self._converse, self._answer, **options)
        await self._over.wait()
        server.close()
        with contextlib.suppress(TimeoutError):  # a browser may hold connections that it never uses
            await asyncio.wait_for(server.wait_closed(), _CLOSE_S)

    def _answer(self, connection: "ServerConnection", request: "HttpRequest") -> "Response | None":
        """Returns a file, a refusal, or None where the socket is to be opened."""
        if request.path == SOCKET:
            return None
        if request.path not in _FILES:
            return connection.respond(HTTPStatus.NOT_FOUND, "there is no such page\n")
        name, kind = _FILES[request.path]
        text = (Path(__file__).parent / name).read_text(encoding="utf-8")
        response = connection.respond(HTTPStatus.OK, text)
        response.headers["Cache-Control"] = "no-cache"
        del response.headers["Content-Type"]
        response.headers["Content-Type"] = kind
        return response

    def _publish(self, kind: str, message: str) -> None:
        if self._shown.get(kind, (0, ""))[1] != message:
            self._version += 1
            self._shown[kind] = self._version, message
            self._news.set()

    async def _converse(self, connection: "ServerConnection") -> None:
        from websockets.exceptions import ConnectionClosed

        sender = asyncio.create_task(self._send(connection))
        self._inputs.open_page(connection)
        before = Controls()
        try:
            async for message in connection:
                controls = read_controls(message)
                requests = controls.requests(before)
                self._inputs.set_commands(connection, controls.commands(), requests)
                before = controls
        except ConnectionClosed:
            pass
        except ConfigError as error:
            await connection.close(code=1008, reason=str(error)[:100])
        finally:
            self._inputs.close_page(connection)
            sender.cancel()

    async def _send(self, connection: "ServerConnection") -> None:
        """Sends what is shown, the latest of each kind, as fast as the page takes it."""
        from websockets.exceptions import ConnectionClosed

        sent = 0
        with contextlib.suppress(ConnectionClosed):
            while True:
                self._news.clear()
                news = [text for version, text in self._shown.values() if version > sent]
                sent = self._version
                for text in news:
                    await connection.send(text)
                await self._news.wait()


# --- What a page says of its devices: checked, whoever sends it -------------------------------


MAX_MESSAGE = 4096
"""Largest message of a page, bytes."""

_Numbers = Annotated[tuple[Number, ...], pydantic.Field(max_length=32)]


class GamepadState(Value):
    """A gamepad in the standard layout, see `devices`."""

    axes: _Numbers
    buttons: _Numbers


class Controls(Value):
    """The present state of a page's devices.

    Attributes:
        keys: Names of the pressed keys.
        gamepad: The gamepad; None without one.
        frame: Frame of their motions.
        clicked: Request whose button was clicked, if any.
    """

    type: Literal["controls"] = "controls"
    keys: Annotated[frozenset[str], pydantic.Field(max_length=32)] = frozenset()
    gamepad: GamepadState | None = None
    frame: Frame = "world"
    clicked: Request | None = None

    def commands(self) -> list[DeviceCommand]:
        """Returns the command of each device."""
        found = [command_of_keys(self.keys, self.frame)]
        if self.gamepad is not None:
            found.append(command_of_gamepad(self.gamepad.axes, self.gamepad.buttons, self.frame))
        return found

    def requests(self, before: "Controls") -> set[Request]:
        """Returns the requests whose key or button was pressed since an earlier state."""
        clicked = set() if self.clicked is None else {self.clicked}
        return clicked | (self._held_requests() - before._held_requests())

    def _held_requests(self) -> set[Request]:
        held = requests_of_keys(self.keys)
        return held | (set() if self.gamepad is None else requests_of_gamepad(self.gamepad.buttons))


def read_controls(message: str | bytes) -> Controls:
    """Reads a message of a page.

    Raises:
        ConfigError: It is not such a message.
    """
    try:
        content = json.loads(message)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"Expected a JSON message from the page: {error}") from None
    return parse(Controls, content, "A message of a page")
