"""Requests to the Blender server: their forms, and what is sent over a connection."""

import contextlib
import json
import socket
import threading
from pathlib import Path
from typing import Any

import numpy as np
from support.blender_forms import BOUNDARY, FORM, MAX_BYTES, SCENE, form
from support.damage import damaged

from fleet_tools.errors import FleetToolsError
from fleet_tools.studio.photographs import render_requests as server
from fuzz.kernel import SECONDS, Subject, require
from fuzz.mutations import JSON_TOKENS, changed_json, changed_text, pick, scalar

_FORM_TOKENS = (
    *(f"--{BOUNDARY}", f"--{BOUNDARY}--", "\r\n\r\n", "\r\n", 'name="scene"', 'name=""'),
    *("name*=x''y", "Content-Disposition: form-data", "Content-Type: multipart/mixed; boundary=a"),
    *("; ", "=?utf-8?q?=00?="),
)
_TYPE_TOKENS = (
    *("boundary=", ";", '"', "''", "*0=", "\\", "=?x?b?y?=", "multipart/", "charset*=", "("),
)


def _changed_form(generator: np.random.Generator) -> tuple[str, bytes]:
    """Returns a content type and a body."""
    match int(generator.integers(6)):
        case 0:
            return FORM, damaged(form(), generator)
        case 1:
            return changed_text(FORM, generator, _TYPE_TOKENS).replace("\n", ""), form()
        case 2:
            text = changed_text(form().decode(), generator, (*_FORM_TOKENS, *JSON_TOKENS))
            return FORM, text.encode(errors="surrogatepass")
        case 3:
            name = pick(generator, ("width", "height", "near", "far", "focal_x", "center_y"))
            return FORM, form(**{name: str(scalar(generator)).encode(errors="replace").decode()})
        case 4:
            return FORM, form(**{pick(generator, ("width", "scene_sha256", "submit")): None})
    return FORM, form(changed_json(json.dumps(SCENE), generator))


def blender_forms(folder: Path) -> Subject:
    """Forms that the Blender server is sent."""

    def read(given: tuple[str, bytes]) -> Any:
        return server.parse_request(*given)

    def check(given: tuple[str, bytes], request: Any) -> None:
        scene, camera = request
        require(all(np.isfinite(each) for each in camera.values()), "a number is not finite")
        require(1 <= camera["width"] <= server.MAX_PIXELS, "the width is out of range")
        require(0 < camera["near"] <= camera["far"], "near is beyond far")
        json.dumps(scene, allow_nan=False).encode()

    return Subject(_changed_form, read, check, (server.RequestError,))


def http_requests(folder: Path) -> Subject:
    """Requests to the Blender server, over a connection."""
    errors: list[BaseException | None] = []

    def draw(scene: dict[str, Any], camera: dict[str, float]) -> bytes:
        return b"image"

    running = server.RenderServer("127.0.0.1", 0, draw, {}, MAX_BYTES)
    # What its threads raise, no client sees.
    before, threading.excepthook = threading.excepthook, lambda each: errors.append(each.exc_value)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()

    def close() -> None:
        running.close()
        thread.join()
        threading.excepthook = before

    def make(generator: np.random.Generator) -> bytes:
        content_type, body = _changed_form(generator)
        head = f"POST /render HTTP/1.1\r\nHost: x\r\nContent-Type: {content_type}\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        content = head.encode(errors="surrogatepass") + body
        match int(generator.integers(4)):
            case 0:
                return damaged(content, generator)
            case 1:
                changed = changed_text(head, generator, _HTTP_TOKENS)
                return changed.encode(errors="surrogatepass") + body
        return content

    def read(content: bytes) -> int | None:
        errors.clear()
        with socket.create_connection(running.address, timeout=SECONDS) as client:
            with contextlib.suppress(ConnectionError):
                client.sendall(content)
            with contextlib.suppress(OSError):  # if the server has closed it meanwhile
                client.shutdown(socket.SHUT_WR)
            reply = b""
            with contextlib.suppress(ConnectionError):
                while chunk := client.recv(65536):
                    reply += chunk
        if errors and not isinstance(errors[0], ConnectionError):
            raise RuntimeError("in a thread of the server") from errors[0]
        status = int(reply.split(b" ", 2)[1]) if reply.startswith(b"HTTP/1.") else None
        if status is None or 400 <= status < 500 or status in (501, 505):
            raise FleetToolsError(f"refused with the status {status}")
        return status

    def check(given: bytes, status: int) -> None:
        if status == 500:
            raise RuntimeError("the server answered with 500")

    return Subject(make, read, check, close=close)


_HTTP_TOKENS = (
    *("Content-Length: 5\r\n", "Content-Length: -1\r\n", "Transfer-Encoding: chunked\r\n", "\r\n"),
    *("Expect: 100-continue\r\n", "GET /health ", "HTTP/9.9", "HTTP/0.9", "\0", " ", "\n", "\t"),
    *("X: " + "y" * 70_000, "X: y\r\n" * 200, "CONNECT ", "é", ":", "Connection: x"),
)
