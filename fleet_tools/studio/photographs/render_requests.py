"""The HTTP side of a server that renders glTF scenes for Drake's glTF render client.

`POST /render` answers Drake's form with a PNG, `GET /health` with version and settings. An invalid
request is answered by a status of 4xx and the reason as plain text; 500 means that the drawing
failed. See "glTF Render Client-Server API" in Drake's documentation for the protocol.
"""

import email
import email.policy
import hashlib
import json
import math
import sys
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MAX_PIXELS = 4096
"""Largest width and height of an image."""

MAX_FIELDS = 64
"""Largest number of fields of a form."""

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


class RenderServer(ThreadingHTTPServer):
    """The server; `serve_forever()` runs it.

    Args:
        port: Port of this machine at which it listens; 0 takes a free one.
        draw: Draws images, several at the same time.
        health: Answer to `GET /health`, as plain JSON data.
        max_bytes: Largest size of a request.

    Attributes:
        draw, health, max_bytes: As given.

    Raises:
        OSError: It cannot listen there.
    """

    def __init__(self, port: int, draw: Draw, health: Mapping[str, Any], max_bytes: int) -> None:
        self.draw, self.health, self.max_bytes = draw, health, max_bytes
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Lets errors end their thread, unless a client has left."""
        if not isinstance(sys.exc_info()[1], OSError):
            raise


class _Handler(BaseHTTPRequestHandler):
    """Answers one request, and closes its connection."""

    server: RenderServer  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"  # otherwise curl waits for "100 Continue", which never comes
    timeout = 60.0

    def do_GET(self) -> None:
        """Answers `GET /health`."""
        if self.path != "/health":
            return self._refuse(_no_such_path(self.path))
        health = json.dumps(self.server.health).encode()
        self._send(HTTPStatus.OK, "application/json", health)

    def do_POST(self) -> None:
        """Answers `POST /render`."""
        try:
            content = self._body(self.headers.get("Content-Length", ""))
            if self.path != "/render":
                raise _no_such_path(self.path)
            request = parse_request(self.headers.get("Content-Type", ""), content)
        except RequestError as error:
            return self._refuse(error)
        try:
            image = self.server.draw(*request)
        except Exception as error:
            failed = f"{type(error).__name__}: {error}"
            return self._refuse(RequestError(HTTPStatus.INTERNAL_SERVER_ERROR, failed))
        self._send(HTTPStatus.OK, "image/png", image)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: whoever asks is answered."""

    def _body(self, text: str) -> bytes:
        if not (text.isascii() and text.isdecimal()):
            raise RequestError(HTTPStatus.LENGTH_REQUIRED, "Content-Length is missing.")
        if len(text) > _MAX_DIGITS:
            raise _bad(f"Content-Length has too many digits: {len(text)}.")
        length = int(text)
        if length > self.server.max_bytes:
            left = min(length, 4 * self.server.max_bytes)  # a client reads nothing while it sends
            while left > 0 and (chunk := self.rfile.read(min(left, _CHUNK))):
                left -= len(chunk)
            raise RequestError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"The request has {length} bytes; at most {self.server.max_bytes} are allowed "
                "(--max-megabytes).",
            )
        content = self.rfile.read(length)
        if len(content) < length:
            raise _bad(f"The request ends after {len(content)} of {length} bytes.")
        return content

    def _refuse(self, error: RequestError) -> None:
        content = f"{error}\n".encode(errors="replace")
        self._send(error.status, "text/plain; charset=utf-8", content)

    def _send(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            "Connection": "close",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def _no_such_path(path: str) -> RequestError:
    return RequestError(
        HTTPStatus.NOT_FOUND,
        f"This server has POST /render and GET /health; given: {path[:80]!r}.",
    )
