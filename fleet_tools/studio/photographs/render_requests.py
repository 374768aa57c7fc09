"""The HTTP side of a server that renders glTF scenes for Drake's glTF render client.

`POST /render` answers Drake's form with a PNG, `GET /health` with version and settings. An invalid
request is answered by a status of 4xx and the reason as plain text; 500 means that the drawing
failed, and 503 that there are too many connections. See "glTF Render Client-Server API" in Drake's
documentation for the protocol.
"""

import asyncio
import contextlib
import email
import email.policy
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any

from fleet_tools.utils.bounded_server import BoundedServer, Connections

MAX_PIXELS = 4096
"""Largest width and height of an image."""

MAX_FIELDS = 64
"""Largest number of fields of a form."""

MAX_REQUESTS = 32
"""Largest number of requests that are answered at the same time; further ones are told 503."""

_REQUEST_S = 60.0
"""Longest time for sending a request, and for reading its answer, s."""

_MAX_BOUNDARY, _MAX_HEADERS = 70, 4096  # bytes; RFC 2046 allows 70
_CHUNK, _MAX_DIGITS = 2**16, 18

Draw = Callable[[dict[str, Any], dict[str, float]], bytes]
"""Function that returns a scene's image as PNG, see `blender_pool.BlenderPool.draw`."""


class RequestError(Exception):
    """A request that cannot be served.

    Args:
        status: HTTP status.
        message: What is wrong with the request.
    """

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


# --- Requests -------------------------------------------------------------------------------


def parse_request(content_type: str, body: bytes) -> tuple[dict[str, Any], dict[str, float]]:
    """Reads the form that Drake sends.

    Returns:
        The scene as glTF, and the camera's numbers by name.

    Raises:
        RequestError: It is not a valid form, or asks for what this server does not draw.
    """
    fields = _parse_form(content_type, body)

    def field(name: str) -> bytes:
        if name not in fields:
            raise _bad(f"The field {name!r} is missing; given: {', '.join(sorted(fields))}.")
        return fields[name]

    def number(name: str, least: float, most: float, kind: type[int | float] = float) -> float:
        text = field(name).decode(errors="replace")
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            expected = "a whole number" if kind is int else "a number"
            raise _bad(
                f"{name} must be {expected} from {least:g} to {most:g}; given: {text[:40]!r}."
            )
        return value

    image_type = field("image_type").decode(errors="replace")
    if image_type != "color":
        raise _bad(
            f"Expected the image type 'color'; given: {image_type[:40]!r}. Use Drake's own "
            "renderers for depth and labels."
        )
    scene = field("scene")
    digest = field("scene_sha256").decode(errors="replace")
    if hashlib.sha256(scene).hexdigest() != digest:
        raise _bad("The scene was damaged on its way: its SHA-256 differs. Send it again.")
    near = number("near", 1e-6, 1e6)
    camera = {
        "width": number("width", 1, MAX_PIXELS, int),
        "height": number("height", 1, MAX_PIXELS, int),
        "near": near,
        "far": number("far", near, 1e9),
        "focal_x": number("focal_x", 1e-3, 1e6),
        "focal_y": number("focal_y", 1e-3, 1e6),
        "center_x": number("center_x", -1e6, 1e6),
        "center_y": number("center_y", -1e6, 1e6),
    }
    return _parse_scene(scene), camera


def _parse_form(content_type: str, body: bytes) -> dict[str, bytes]:
    head = email.message_from_string(f"Content-Type: {content_type}", policy=email.policy.HTTP)
    if head.get_content_type() != "multipart/form-data":
        raise RequestError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"Expected a form, multipart/form-data; given: {content_type[:80]!r}.",
        )
    boundary = (head.get_boundary() or "").encode()
    if not 1 <= len(boundary) <= _MAX_BOUNDARY:
        raise _bad(f"The form's boundary has {len(boundary)} bytes; expected 1 to {_MAX_BOUNDARY}.")
    # Split here and not by the email package, whose time and depth grow with what is nested.
    _, *parts = (b"\r\n" + body).split(b"\r\n--" + boundary, MAX_FIELDS + 2)
    if not parts or len(parts) > MAX_FIELDS + 1:
        raise _bad(
            f"Expected a form with 1 to {MAX_FIELDS} fields between its boundaries, and an end."
        )
    if not parts[-1].startswith(b"--"):
        raise _bad("The form has no end: its last boundary is missing.")
    fields = {}
    for part in parts[:-1]:
        lines, _, content = part.partition(b"\r\n\r\n")
        if len(lines) > _MAX_HEADERS:
            raise _bad(
                f"The headers of a field are too long; expected at most {_MAX_HEADERS} bytes."
            )
        headers = email.message_from_bytes(lines.lstrip(), policy=email.policy.compat32)
        name = headers.get_param("name", header="content-disposition")
        if isinstance(name, str):
            fields[name] = content
    return fields


def _parse_scene(text: bytes) -> dict[str, Any]:
    try:
        scene = json.loads(text, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as error:
        raise _bad(f"The scene is not JSON: {error}.") from None
    try:
        resources = [*scene.get("buffers", []), *scene.get("images", [])]
        uris = [str(resource["uri"]) for resource in resources if "uri" in resource]
        cameras = sum("camera" in node for node in scene["nodes"])
        scene["scenes"][0]["nodes"]
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise _bad(f"The scene is not valid glTF ({type(error).__name__}: {error}).") from None
    for uri in uris:
        # Any other URI would be a file of this machine, or an address elsewhere.
        if not uri.startswith("data:"):
            raise _bad(f"A scene must contain all its data, but this one refers to {uri[:200]!r}.")
    if cameras != 1:
        raise _bad(f"Expected a scene with one camera; given: {cameras}.")
    return scene


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:40]} is not a finite number")
    return number


def _bad(message: str) -> RequestError:
    return RequestError(HTTPStatus.BAD_REQUEST, message)


# --- Answers --------------------------------------------------------------------------------


class RenderServer(BoundedServer):
    """The server; `serve_forever()` runs it.

    Args:
        host: Address at which it listens.
        port: Port at which it listens; 0 takes a free one.
        draw: Draws images, several at the same time.
        health: Answer to `GET /health`, as plain JSON data.
        max_bytes: Largest size of a request.

    Raises:
        OSError: It cannot listen there.
    """

    def __init__(
        self, host: str, port: int, draw: Draw, health: Mapping[str, Any], max_bytes: int
    ) -> None:
        super().__init__(host, port, Connections(MAX_REQUESTS, opening_s=_REQUEST_S))
        self._draw, self._health, self._max_bytes = draw, health, max_bytes
        self._threads = ThreadPoolExecutor(MAX_REQUESTS)

    async def start(self) -> asyncio.Server:
        """See `BoundedServer`."""
        return await asyncio.start_server(self._converse, sock=self._socket)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.connections.admit(writer.transport):
            return
        try:
            with contextlib.suppress(OSError, EOFError):  # the client has left, or is too slow
                await self._respond(reader, writer)
        finally:
            self.connections.lost(writer.transport)
            writer.transport.abort()

    async def _respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            status, kind, content = await self._answer(reader, writer)
        except RequestError as error:
            status, kind, content = _text(error.status, str(error))
        except asyncio.LimitOverrunError:
            status, kind, content = _text(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The headers are too large."
            )
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
        )
        writer.write(head.encode() + content)
        writer.close()
        await asyncio.wait_for(writer.wait_closed(), _REQUEST_S)

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[HTTPStatus, str, bytes]:
        """Returns status, type and content of the answer to a request."""
        line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = email.message_from_string("\r\n".join(lines), policy=email.policy.compat32)
        method, _, path = line.rpartition(" ")[0].partition(" ")
        content = b""
        if method == "POST":
            if headers.get("Expect", "").lower() == "100-continue":
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            content = await self._body(reader, headers.get("Content-Length", ""))
        if (method, path) not in (("POST", "/render"), ("GET", "/health")):
            message = f"This server has POST /render and GET /health; given: {path[:80]!r}."
            raise RequestError(HTTPStatus.NOT_FOUND, message)
        if not self.connections.opened(writer.transport):
            raise RequestError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{MAX_REQUESTS} requests are running already; try again later.",
            )
        if method == "GET":
            return HTTPStatus.OK, "application/json", json.dumps(self._health).encode()
        request = parse_request(headers.get("Content-Type", ""), content)
        loop = asyncio.get_running_loop()
        try:
            image = await loop.run_in_executor(self._threads, self._draw, *request)
        except Exception as error:
            return _text(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")
        return HTTPStatus.OK, "image/png", image

    async def _body(self, reader: asyncio.StreamReader, text: str) -> bytes:
        if not (text.isascii() and text.isdecimal()):
            raise RequestError(HTTPStatus.LENGTH_REQUIRED, "Content-Length is missing.")
        if len(text) > _MAX_DIGITS:
            raise _bad(f"Content-Length has too many digits: {len(text)}.")
        length = int(text)
        if length > self._max_bytes:
            left = min(length, 4 * self._max_bytes)  # a client reads no answer while it sends
            while left > 0 and (chunk := await reader.read(min(left, _CHUNK))):
                left -= len(chunk)
            raise RequestError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"The request has {length} bytes; at most {self._max_bytes} are allowed "
                "(--max-megabytes).",
            )
        try:
            return await reader.readexactly(length)
        except asyncio.IncompleteReadError as error:
            raise _bad(f"The request ends after {len(error.partial)} of {length} bytes.") from None


def _text(status: HTTPStatus, message: str) -> tuple[HTTPStatus, str, bytes]:
    return status, "text/plain; charset=utf-8", f"{message}\n".encode(errors="replace")
