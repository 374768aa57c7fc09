"""A server that renders glTF scenes with Blender for Drake's glTF render client, over HTTP.

`POST /render` answers Drake's form with a PNG, `GET /health` with version and settings. An invalid
request is answered by a status of 4xx and the reason as plain text; 500 means that the drawing
failed, and 503 that there are too many connections. See "glTF Render Client-Server API" in Drake's
documentation for the protocol.

A Blender process holds only one scene, so each of a pool of processes runs `drawing.py`, by a
Python that has `bpy`. Scenes are written as standard glTF, which Drake's are not quite.
"""

import contextlib
import copy
import email
import email.policy
import hashlib
import json
import math
import os
import queue
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from fleet_tools.errors import RenderServerError
from fleet_tools.utils.accept_loop import AcceptLoop

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
"""Function that returns a scene's image as PNG, see `BlenderPool.draw`."""


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
) -> AcceptLoop:
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
                super().log_request(code, size)  # strangers write no lines: the loop counts them

        def log_error(self, format: str, *args: Any) -> None:
            pass

        def _not_found(self) -> RequestError:
            message = f"This server has POST /render and GET /health; given: {self.path[:80]!r}."
            return RequestError(HTTPStatus.NOT_FOUND, message)

        def _take_place(self) -> None:
            if not loop.opened():
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

    def serve(client: socket.socket, address: Any) -> None:
        Handler(client, address, None)  # pyright: ignore[reportArgumentType]  # it has no server

    listening = socket.create_server((host, port))
    loop = AcceptLoop(listening, serve, MAX_REQUESTS, opening_s=_REQUEST_S)
    return loop


# --- The pool -------------------------------------------------------------------------------


_MISSING_BPY = """Blender cannot be imported by {python}:
  {error}
Install it into an environment of its own, because it needs its own version of numpy:
  python3.11 -m venv bpy-env && bpy-env/bin/pip install bpy==5.0.1
On Debian and Ubuntu its import also needs
  apt-get install -y libx11-6 libxrender1 libxfixes3 libxi6 libxkbcommon0 libsm6 libice6 libgl1"""


def _require_bpy(python: str) -> None:
    try:
        child = subprocess.run([python, "-c", "import bpy"], capture_output=True, text=True)
    except OSError as error:
        raise RenderServerError(f"{python} cannot be run as Python: {error}") from error
    if child.returncode != 0:
        error = (child.stderr.strip() or f"status {child.returncode}").splitlines()[-1]
        raise RenderServerError(_MISSING_BPY.format(python=python, error=error))


class BlenderPool:
    """Blender processes that draw at the same time.

    Args:
        python: Python that has `bpy`.
        workers: Number of processes, among which the machine's cores are divided.
        samples: Light paths per pixel.
        roughness: Roughness of surfaces, see `proper_gltf`.
        seconds: Time limit of an image, s.
        verbose: Whether to pass on Blender's own output.

    Attributes:
        health: Version and settings, as plain JSON data.

    Raises:
        RenderServerError: Blender does not start, or is not there; the message says what to do.
    """

    def __init__(
        self,
        python: str,
        *,
        workers: int = 1,
        samples: int = 16,
        roughness: float = 0.5,
        seconds: float = 600.0,
        verbose: bool = False,
    ) -> None:
        _require_bpy(python)
        threads = max(1, (os.cpu_count() or 1) // workers)
        command = [python, str(Path(__file__).with_name("drawing.py"))]
        for name, value in {"samples": samples, "threads": threads}.items():
            command += [f"--{name}", str(value)]
        self._all = [_Blender(command, seconds, verbose) for _ in range(workers)]
        self._idle: queue.SimpleQueue[_Blender] = queue.SimpleQueue()
        for blender in self._all:
            self._idle.put(blender)
        self._roughness = roughness
        self.health = {
            "blender": self._all[0].version,
            "workers": workers,
            "samples": samples,
            "roughness": roughness,
            "threads": threads,
        }

    def draw(self, scene: dict[str, Any], camera: Mapping[str, float]) -> bytes:
        """Returns an image as PNG, as soon as a process is free to draw it.

        Args:
            scene: The scene as glTF, as Drake writes it.
            camera: Numbers of the camera by name, see `drawing.draw`.

        Raises:
            RenderServerError: Blender cannot draw it.
        """
        try:
            standard = proper_gltf(scene, self._roughness)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RenderServerError(
                f"This scene is not glTF: {type(error).__name__}: {error}"
            ) from error
        with tempfile.TemporaryDirectory(prefix="fleet_tools_blender_") as folder:
            paths = {"scene": f"{folder}/scene.gltf", "image": f"{folder}/image.png"}
            Path(paths["scene"]).write_text(json.dumps(standard))
            blender = self._idle.get()
            try:
                blender.draw({**camera, **paths})
            finally:
                self._idle.put(blender)
            return Path(paths["image"]).read_bytes()

    def close(self) -> None:
        """Ends all processes."""
        for blender in self._all:
            blender.close()


class _Blender:
    """A Blender process, which is started again if it has ended."""

    def __init__(self, command: list[str], seconds: float, verbose: bool) -> None:
        self._command, self._seconds = command, seconds
        self._stderr = None if verbose else subprocess.DEVNULL
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            start_new_session=True,  # Ctrl-C reaches the server alone, which ends this process
        )
        self.version: str = self._ask(None)["blender"]

    def draw(self, job: Mapping[str, Any]) -> None:
        """Draws an image, see `drawing.draw`."""
        if self._process.poll() is not None:  # it crashed or was too slow with an earlier scene
            self._start()
        self._ask(job)

    def _ask(self, job: Mapping[str, Any] | None) -> dict[str, Any]:
        """Sends a job, if there is one, and returns the next answer."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None  # both are pipes
        timer = threading.Timer(self._seconds, self._process.kill)
        timer.start()
        try:
            if job is not None:
                print(json.dumps(job), file=stdin, flush=True)
            line = stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if not line:
            status = self._process.wait()
            raise RenderServerError(
                f"Blender ended with status {status}; after {self._seconds:g} s it is killed. "
                "--verbose shows its output."
            )
        answer = json.loads(line)
        if "error" in answer:
            raise RenderServerError(f"Blender cannot draw this scene: {answer['error']}")
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def proper_gltf(scene: dict[str, Any], roughness: float) -> dict[str, Any]:
    """Returns a scene of Drake as standard glTF.

    Drake's z axis points up, glTF's y axis does. Drake's colours are as displayed (sRGB), glTF's
    are linear. And VTK, which writes the file, declares every surface perfectly matte.

    Args:
        scene: The scene as Drake sends it.
        roughness: Roughness, from 0 (a mirror) to 1 (matte), of the surfaces to which VTK gives
            none.
    """
    scene = copy.deepcopy(scene)
    for material in scene.get("materials", []):
        surface = material.setdefault("pbrMetallicRoughness", {})
        *color, alpha = surface.get("baseColorFactor", [1.0, 1.0, 1.0, 1.0])
        surface["baseColorFactor"] = [*map(_linear, color), alpha]
        if surface.get("roughnessFactor", 1.0) == 1.0:
            surface["roughnessFactor"] = roughness
    for view in scene["scenes"]:
        half = math.sqrt(0.5)  # a quarter turn about x takes z to y
        scene["nodes"].append({"children": view["nodes"], "rotation": [-half, 0.0, 0.0, half]})
        view["nodes"] = [len(scene["nodes"]) - 1]
    return scene


def _linear(channel: float) -> float:
    """Returns the linear value of an sRGB channel (IEC 61966-2-1)."""
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4
