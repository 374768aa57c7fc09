"""Strangers to a page, who were not told its address: requests, sockets and other sites."""

import base64
import http.client
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from websockets.sync.client import ClientConnection, connect

if TYPE_CHECKING:
    from playwright.sync_api import Page

viser = pytest.importorskip("viser", reason="the extra `browser` is not installed")
msgspec = pytest.importorskip("msgspec")  # which viser brings

VISER_PROTOCOL = f"viser-v{viser.__version__}"


def request(
    url: str, path: str | None = None, method: str = "GET", body: str | None = None, **headers: str
) -> tuple[int, str, Mapping[str, str]]:
    """Returns status, text and headers of an answer, whose page has an address."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=10)
    try:
        connection.request(method, parts.path if path is None else path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), dict(answer.getheaders())
    finally:
        connection.close()


def open_socket(
    url: str, path: str | None = None, host: str | None = None, **options: Any
) -> ClientConnection:
    """Opens the socket of a page with an address, as the page itself does under a name."""
    parts = urlsplit(url)
    host, path = host or parts.netloc, parts.path if path is None else path
    options = {"origin": f"http://{host}", "compression": None, **options}
    own = socket.create_connection((parts.hostname, parts.port), 10)
    own.settimeout(None)
    try:
        return connect(f"ws://{host}{path}", sock=own, proxy=None, **options)
    except Exception:
        own.close()
        raise


# --- What viser's own client says --------------------------------------------------------------


def viser_message(kind: str, **content: Any) -> bytes:
    """Returns a message to viser's server."""
    return msgspec.msgpack.encode({"type": kind, **content})


CAMERA = viser_message(
    "ViewerCameraMessage",
    wxyz=(1.0, 0.0, 0.0, 0.0),
    position=(0.0, 0.0, 1.0),
    fov=1.0,
    near=0.1,
    far=10.0,
    image_height=100,
    image_width=100,
    look_at=(0.0, 0.0, 0.0),
    up_direction=(0.0, 0.0, 1.0),
)
"""What a client says first."""


def drag_message(name: str) -> bytes:
    """Returns what a drag of a gizmo says."""
    return viser_message(
        "TransformControlsUpdateMessage",
        name=name,
        wxyz=(1.0, 0.0, 0.0, 0.0),
        position=(0.4, 0.0, 0.5),
        owner="",
    )


# --- A page of another site ---------------------------------------------------------------------

_ATTACK = """async ({url, protocol, messages}) => {
    const socket = protocol ? new WebSocket(url, protocol) : new WebSocket(url);
    const opened = await new Promise((resolve) => {
        socket.onopen = () => resolve(true);
        socket.onerror = () => resolve(false);
    });
    for (const text of opened ? messages : []) {
        socket.send(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)));
        await new Promise((resolve) => setTimeout(resolve, 300));
    }
    return opened;
}"""

_READ = """async (url) => {
    try { return await (await fetch(url)).text(); } catch (error) { return null; }
}"""

_SUBMIT = """async (url) => {
    const form = new FormData();
    form.append("clicked", "save");
    try { await fetch(url, {method: "POST", mode: "no-cors", body: form}); } catch (error) {}
}"""


@dataclass
class HostilePage:
    """A page of another site in a browser."""

    page: "Page"

    def attack(self, url: str, messages: Sequence[bytes], protocol: str | None = None) -> bool:
        """Opens a socket and sends messages; returns whether it opened."""
        texts = [base64.b64encode(message).decode() for message in messages]
        return self.page.evaluate(_ATTACK, {"url": url, "protocol": protocol, "messages": texts})

    def read(self, url: str) -> str | None:
        """Returns the text at an address, or None if the browser does not hand it out."""
        return self.page.evaluate(_READ, url)

    def submit(self, url: str) -> None:
        """Sends a form."""
        self.page.evaluate(_SUBMIT, url)


@contextmanager
def hostile_page(beside: "Page") -> Iterator[HostilePage]:
    """Opens a page of another site in the browser of a page."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>Free screensavers</title>")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = beside.context.new_page()
        try:
            page.goto(f"http://localhost:{server.server_port}/")
            yield HostilePage(page)
        finally:
            page.close()
            server.shutdown()
