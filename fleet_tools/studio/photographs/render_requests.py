"""The HTTP side of a server that renders glTF scenes for Drake's glTF render client.

`POST /render` answers Drake's form with a PNG, `GET /health` with version and settings. An invalid
request is answered by a status of 4xx and the reason as plain text; 500 means that the drawing
failed, and 503 that there are too many connections. See "glTF Render Client-Server API" in Drake's
documentation for the protocol. It needs only the standard library.
"""

import contextlib
import email
import email.policy
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

if __package__:
    from fleet_tools.utils.accept_loop import BoundedServer
else:  # in Blender's environment, where `serve.py` has put its folder on the path
    from accept_loop import BoundedServer  # pyright: ignore[reportMissingImports]

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
"""Function that returns a scene's image as PNG, see `serve.BlenderPool.draw`."""


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
            raise _bad(f"{name} is {expected} from {least:g} to {most:g}; given: {text[:40]!r}.")
        return value

    image_type = field("image_type").decode(errors="replace")
    if image_type != "color":
        raise _bad(
            f"Only images of the type 'color' are drawn here; given: {image_type[:40]!r}. Depth "
            "and labels are for Drake's own renderers."
        )
    scene = field("scene")
    digest = field("scene_sha256").decode(errors="replace")
    if hashlib.sha256(scene).hexdigest() != digest:
        raise _bad("The scene is not the one that was sent: its SHA-256 differs.")
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
            f"A form is expected, multipart/form-data; given: {content_type[:80]!r}.",
        )
    boundary = (head.get_boundary() or "").encode()
    if not 1 <= len(boundary) <= _MAX_BOUNDARY:
        raise _bad(f"The form's boundary has {len(boundary)} bytes, not 1 to {_MAX_BOUNDARY}.")
    # Split here and not by the email package, whose time and depth grow with what is nested.
    _, *parts = (b"\r\n" + body).split(b"\r\n--" + boundary, MAX_FIELDS + 2)
    if not parts or len(parts) > MAX_FIELDS + 1:
        raise _bad(f"A form has 1 to {MAX_FIELDS} fields between its boundaries, and an end.")
    if not parts[-1].startswith(b"--"):
        raise _bad("The form has no end: its last boundary is missing.")
    fields = {}
    for part in parts[:-1]:
        lines, _, content = part.partition(b"\r\n\r\n")
        if len(lines) > _MAX_HEADERS:
            raise _bad(f"The headers of a field have more than {_MAX_HEADERS} bytes.")
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
        raise _bad(f"The scene is not glTF ({type(error).__name__}: {error}).") from None
    for uri in uris:
        # Any other URI would be a file of this machine, or an address elsewhere.
        if not uri.startswith("data:"):
            raise _bad(f"A scene must contain all its data; this one refers to {uri[:200]!r}.")
    if cameras != 1:
        raise _bad(f"A scene has one camera; this one has {cameras}.")
    return scene


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:40]} is not a finite number")
    return number


def _bad(message: str) -> RequestError:
    return RequestError(HTTPStatus.BAD_REQUEST, message)


# --- Answers --------------------------------------------------------------------------------


def make_server(
    host: str, port: int, draw: Draw, health: Mapping[str, Any], max_bytes: int
) -> BoundedServer:
    """Makes the server; `serve_forever()` runs it.

    Args:
        host: Address at which it listens.
        port: Port at which it listens; 0 takes a free one.
        draw: Draws images, several at the same time.
        health: Answer to `GET /health`, as plain JSON data.
        max_bytes: Largest size of a request.

    Raises:
        OSError: It cannot listen there.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # so that "Expect: 100-continue" is answered
        timeout = _REQUEST_S

        def do_POST(self) -> None:
            try:
                body = self._body()
                if self.path != "/render":
                    raise self._not_found()
                self._take_place()
                image = draw(*parse_request(self.headers.get("Content-Type", ""), body))
            except RequestError as error:
                self._refuse(error.status, str(error))
            except Exception as error:
                self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")
            else:
                self._reply(HTTPStatus.OK, "image/png", image)

        def do_GET(self) -> None:
            try:
                if self.path != "/health":
                    raise self._not_found()
                self._take_place()
            except RequestError as error:
                self._refuse(error.status, str(error))
            else:
                self._reply(HTTPStatus.OK, "application/json", json.dumps(health).encode())

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            if code in (HTTPStatus.OK, HTTPStatus.INTERNAL_SERVER_ERROR):
                super().log_request(code, size)  # strangers write no lines: the server counts them

        def log_error(self, format: str, *args: Any) -> None:
            pass

        def _not_found(self) -> RequestError:
            message = f"This server has POST /render and GET /health; given: {self.path[:80]!r}."
            return RequestError(HTTPStatus.NOT_FOUND, message)

        def _take_place(self) -> None:
            if not server.opened(self.request):
                raise RequestError(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    f"{MAX_REQUESTS} requests are being answered; ask again later.",
                )

        def _body(self) -> bytes:
            text = self.headers.get("Content-Length", "")
            if not (text.isascii() and text.isdecimal()):
                raise RequestError(HTTPStatus.LENGTH_REQUIRED, "Content-Length is missing.")
            if len(text) > _MAX_DIGITS:
                raise _bad(f"Content-Length has {len(text)} digits.")
            length = int(text)
            if length <= max_bytes:
                return self._read(length)
            self._discard(min(length, 4 * max_bytes))  # a client reads no answer while it sends
            raise RequestError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"A request has at most {max_bytes} bytes (--max-megabytes); this has {length}.",
            )

        def _read(self, length: int) -> bytes:
            try:
                body = self.rfile.read(length)
            except TimeoutError:
                raise RequestError(
                    HTTPStatus.REQUEST_TIMEOUT, f"Nothing arrived for {self.timeout} s."
                ) from None
            if len(body) < length:
                raise _bad(f"The request ends after {len(body)} of {length} bytes.")
            return body

        def _discard(self, length: int) -> None:
            with contextlib.suppress(OSError):
                while length > 0 and (chunk := self.rfile.read(min(length, _CHUNK))):
                    length -= len(chunk)

        def _refuse(self, status: HTTPStatus, message: str) -> None:
            self._reply(status, "text/plain; charset=utf-8", f"{message}\n".encode())

        def _reply(self, status: HTTPStatus, content_type: str, content: bytes) -> None:
            with contextlib.suppress(ConnectionError):  # the client has left
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(content)

    server = BoundedServer((host, port), Handler, MAX_REQUESTS, opening_s=_REQUEST_S)
    return server
