"""Renders glTF scenes with Blender for Drake's glTF render client, over HTTP.

This program runs in an environment that has `bpy` and not this package: start this file with that
environment's Python, or let `python -m fleet_tools.blender` do so. Apart from Blender it needs only
the standard library.

`POST /render` answers Drake's form with a PNG, `GET /health` with version and settings. An invalid
request is answered by a status of 4xx and the reason as plain text; 500 means that the drawing
failed. See "glTF Render Client-Server API" in Drake's documentation for the protocol.
"""

import argparse
import contextlib
import email
import email.policy
import hashlib
import json
import math
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MAX_PIXELS = 4096
"""Largest width and height of an image."""

_CHUNK = 2**16

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
    head = f"Content-Type: {content_type}\r\n\r\n".encode()
    form = email.message_from_bytes(head + body, policy=email.policy.HTTP)
    if form.get_content_type() != "multipart/form-data" or not form.is_multipart():
        raise RequestError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"A form is expected, multipart/form-data; given: {content_type[:80]!r}.",
        )
    fields = {}
    for part in form.walk():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(content, bytes):
            fields[name] = content
    return fields


def _parse_scene(text: bytes) -> dict[str, Any]:
    try:
        scene = json.loads(text)
    except ValueError as error:
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


def _bad(message: str) -> RequestError:
    return RequestError(HTTPStatus.BAD_REQUEST, message)


# --- Answers --------------------------------------------------------------------------------


def make_server(
    host: str, port: int, draw: Draw, health: Mapping[str, Any], max_bytes: int
) -> ThreadingHTTPServer:
    """Makes the server; `serve_forever()` runs it.

    Args:
        host: Address at which it listens.
        port: Port at which it listens; 0 takes a free one.
        draw: Draws images, several at the same time.
        health: Answer to `GET /health`, as plain JSON data.
        max_bytes: Largest size of a request.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # so that "Expect: 100-continue" is answered
        timeout = 60  # s, for a client that stops sending

        def do_POST(self) -> None:
            try:
                body = self._body()
                if self.path != "/render":
                    raise self._not_found()
                image = draw(*parse_request(self.headers.get("Content-Type", ""), body))
            except RequestError as error:
                self._refuse(error.status, str(error))
            except Exception as error:
                self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")
            else:
                self._reply(HTTPStatus.OK, "image/png", image)

        def do_GET(self) -> None:
            if self.path == "/health":
                self._reply(HTTPStatus.OK, "application/json", json.dumps(health).encode())
            else:
                error = self._not_found()
                self._refuse(error.status, str(error))

        def _not_found(self) -> RequestError:
            message = f"This server has POST /render and GET /health; given: {self.path[:80]!r}."
            return RequestError(HTTPStatus.NOT_FOUND, message)

        def _body(self) -> bytes:
            length = self.headers.get("Content-Length", "")
            if not length.isdecimal():
                raise RequestError(HTTPStatus.LENGTH_REQUIRED, "Content-Length is missing.")
            if int(length) <= max_bytes:
                return self.rfile.read(int(length))
            remaining = int(length)  # a client reads no answer while it is sending
            while remaining and (chunk := self.rfile.read(min(remaining, _CHUNK))):
                remaining -= len(chunk)
            raise RequestError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"A request has at most {max_bytes} bytes (--max-megabytes); this has {length}.",
            )

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

    return ThreadingHTTPServer((host, port), Handler)


# --- The program ----------------------------------------------------------------------------

MISSING_BPY = """Blender cannot be imported by {python}:
  {error}
Install it into an environment of its own, because it needs its own version of numpy:
  python3.11 -m venv bpy-env && bpy-env/bin/pip install bpy==5.0.1
On Debian and Ubuntu its import also needs
  apt-get install -y libx11-6 libxrender1 libxfixes3 libxi6 libxkbcommon0 libsm6 libice6 libgl1
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program; see `--help`."""
    options = _parser().parse_args(arguments)
    child = subprocess.run([sys.executable, "-c", "import bpy"], capture_output=True, text=True)
    if child.returncode != 0:
        error = (child.stderr.strip() or f"status {child.returncode}").splitlines()[-1]
        print(MISSING_BPY.format(python=sys.executable, error=error), end="", file=sys.stderr)
        return 2
    # This file is run by its path, in an environment without this package.
    from blender_pool import BlenderPool, DrawingError  # pyright: ignore[reportMissingImports]

    for ending in (signal.SIGINT, signal.SIGTERM):  # shells let background jobs ignore SIGINT
        signal.signal(ending, signal.default_int_handler)
    names = ("workers", "samples", "roughness", "seconds", "verbose")
    settings = {name: getattr(options, name) for name in names}
    try:
        with contextlib.closing(BlenderPool(**settings)) as pool:
            _serve(options, pool.draw, pool.health)
    except DrawingError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"Cannot listen at {options.host}:{options.port}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        pass
    return 0


def _serve(options: argparse.Namespace, draw: Draw, health: Mapping[str, Any]) -> None:
    max_bytes = options.max_megabytes * 10**6
    with make_server(options.host, options.port, draw, health, max_bytes) as server:
        host, port = server.server_address[:2]
        print(f"Ready at http://{host}:{port}: {json.dumps(health)}", flush=True)
        server.serve_forever()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fleet_tools.blender",
        description="Renders glTF scenes with Blender for Drake's glTF render client, over HTTP.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address; 127.0.0.1 serves this machine only")
    add("--port", type=int, default=8000, help="port; 0 takes a free one")
    add("--workers", type=_count, default=1, help="number of images drawn at the same time")
    add("--samples", type=_count, default=16, help="light paths per pixel")
    add("--roughness", type=_ratio, default=0.5, help="of surfaces: 0 mirrors, 1 is matte")
    add("--seconds", type=_count, default=600, help="time limit of an image, s")
    add("--max-megabytes", type=_count, default=256, help="largest size of a request")
    add("--verbose", action="store_true", help="pass on Blender's own output")
    return parser


def _count(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1; given: {number}")
    return number


def _ratio(text: str) -> float:
    if not 0.0 <= (number := float(text)) <= 1.0:
        raise argparse.ArgumentTypeError(f"must lie in [0, 1]; given: {number}")
    return number


if __name__ == "__main__":
    sys.exit(main())
