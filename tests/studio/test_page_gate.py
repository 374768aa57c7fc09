"""The gate of pages: the person who was told the address comes in, and nobody else."""

import contextlib
import importlib
import logging
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
import websockets.asyncio.server as websockets_server
from support.clicking import PATIENCE_S, wait_until
from support.strangers import CAMERA, VISER_PROTOCOL, drag_message, open_socket, request
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection
from websockets.sync.connection import Connection

from fleet_tools.errors import ConfigError, MissingLibraryError
from fleet_tools.studio.page_gate import PageGate, open_viser, stop_viser
from fleet_tools.studio.teleoperation.devices import Inputs
from fleet_tools.studio.teleoperation.page_server import Controls, PageServer

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    "Sec-WebSocket-Version": "13",
}
FORWARD = Controls(keys=frozenset({"KeyW"})).to_json()


@dataclass
class Served:
    """A page behind a gate.

    Attributes:
        url: Its address.
        socket: Path of its socket.
        options: Options of its socket.
        act: Moves something over its socket.
        acted: Whether something was moved since the last call.
    """

    url: str
    socket: str
    options: dict[str, Any]
    act: Callable[[Connection], None]
    acted: Callable[[], bool]

    def open(self, path: str | None = None, **options: Any) -> ClientConnection:
        return open_socket(self.url, path or self.socket, **(self.options | options))


@pytest.fixture(name="served", params=["page", "viser"])
def _served(request: pytest.FixtureRequest) -> Iterator[Served]:
    if request.param == "page":
        inputs = Inputs()

        def tap(page: Connection) -> None:
            page.send(FORWARD)
            page.send(Controls().to_json())

        with PageServer(inputs, 0) as pages:
            socket_path = f"{urlsplit(pages.url).path}socket"
            yield Served(pages.url, socket_path, {}, tap, lambda: inputs.take().moves)
        return
    gate, server = open_viser(0, "test its gate")
    drags: list[object] = []
    gizmo = server.scene.add_transform_controls("/gizmo")
    gizmo.on_update(lambda event: drags.append(event))

    def act(page: Connection) -> None:
        page.send(CAMERA)
        page.send(drag_message("/gizmo"))

    def dragged() -> bool:
        number = len(drags)
        drags.clear()
        return number > 0

    try:
        yield Served(gate.url, gate.path[:-1], {"subprotocols": [VISER_PROTOCOL]}, act, dragged)
    finally:
        stop_viser(server)


def require_refusal(served: Served, status: int, path: str | None = None, **options: Any) -> None:
    with pytest.raises(InvalidStatus) as refused:
        served.open(path, **options)
    assert refused.value.response.status_code == status
    assert not served.acted()


def require_motion(served: Served, page: Connection, patience_s: float = PATIENCE_S) -> None:
    served.act(page)
    wait_until(served.acted, "the motion", patience_s)


def visit(served: Served, **options: Any) -> None:
    """Opens the page, moves something, and leaves the place free."""
    with served.open(**options) as page:
        require_motion(served, page)
    await_the_place(served)


def await_the_place(served: Served) -> None:
    """The server hears of a closed page after the page's own side has ended."""
    wait_until(lambda: request(served.url)[0] == 200, "the place")


def port_of(served: Served) -> int:
    port = urlsplit(served.url).port
    assert port is not None
    return port


# --- Who may speak --------------------------------------------------------------------------


def test_who_was_told_the_address_acts_also_forwarded_to_another_port(served):
    visit(served)
    visit(served, host="localhost:9000", origin="http://localhost:9000")  # ssh -L 9000:...


@pytest.mark.parametrize(
    "origin",
    [None, "http://example.org", "null", "http://127.0.0.1:1", "http://127.0.0.1", "file://"],
)
def test_pages_of_other_sites_are_refused(served, origin):
    require_refusal(served, 403, origin=origin)


@pytest.mark.parametrize(
    "host",
    ["example.org", "127.0.0.1.example.org", "localhost.", "[", "127.0.0.1:8x", "0.0.0.0", ""],
)
def test_other_names_of_this_machine_are_refused(served: Served, host: str):  # DNS rebinding
    headers = {"Host": host, "Origin": f"http://{host}"}
    assert request(served.url, **headers)[0] == 403
    assert request(served.url, served.socket, **headers, **UPGRADE)[0] == 403
    assert not served.acted()


def test_without_the_address_nothing_opens(served):
    token = urlsplit(served.url).path.strip("/")
    assert len(token) >= 32
    other = ("A" if token[0] != "A" else "B") + token[1:]
    wrong = ("/", "", f"/{other}", f"/{token[:-1]}", f"/{token}x", f"//{token}", f"/x/../{token}")
    for path in wrong:
        for end in ("", "/", "/socket", f"?{token}", f"/?token={token}"):
            require_refusal(served, 403, f"{path}{end}" or "/")
            status, text, _ = request(served.url, f"{path}{end}" or "/")
            assert status == 403
            assert "/" not in text  # it tells nothing of the address


def test_addresses_differ_between_servers():
    gates = [PageGate(0) for _ in range(3)]
    for gate in gates:
        gate.close()
    assert len({gate.path for gate in gates}) == 3


def test_a_header_that_is_given_twice_is_refused(served):
    port, path = port_of(served), served.socket
    for twice in (
        f"Host: 127.0.0.1:{port}",
        f"Origin: http://127.0.0.1:{port}",
        "Upgrade: websocket",
    ):
        own = {"Host": f"127.0.0.1:{port}", "Origin": f"http://127.0.0.1:{port}", **UPGRADE}
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in own.items())]
        with socket.create_connection(("127.0.0.1", port), 10) as raw:
            raw.sendall("\r\n".join([*lines, twice, "", ""]).encode())
            assert b" 101 " not in raw.recv(100)
    assert not served.acted()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_forms_of_other_sites_do_nothing(served, method):
    headers = {"Origin": "http://example.org", "Content-Type": "application/x-www-form-urlencoded"}
    try:
        status, _, answered = request(served.url, None, method, "clicked=save", **headers)
    except ConnectionError:  # it was closed
        return
    assert 400 <= status < 500
    assert "Access-Control-Allow-Origin" not in answered
    assert not served.acted()


def test_the_address_is_in_no_log_and_no_referer(served, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.WARNING, "websockets.client")  # of the test
    paths = [urlsplit(served.url).path, "/", f"{served.socket}/none"]
    for path in paths:
        assert request(served.url, path)[2]["Referrer-Policy"] == "no-referrer"
    visit(served)
    said = "".join(capfd.readouterr()) + caplog.text
    assert urlsplit(served.url).path.strip("/") not in said


# --- One page at a time -----------------------------------------------------------------------


def test_a_second_page_waits_until_the_first_one_is_closed(served):
    with served.open() as first:
        require_motion(served, first)
        require_refusal(served, 409)
        status, text, _ = request(served.url)
        assert (status, "open in another tab" in text) == (409, True)
        require_motion(served, first)
    await_the_place(served)
    visit(served)


def test_strangers_do_not_take_the_place(served):
    for options in ({"origin": "http://example.org"}, {"path": "/"}, {"host": "example.org"}):
        require_refusal(served, 403, **options)
    visit(served)


def test_of_many_that_come_at_once_one_is_served(served):
    opened, barrier = [], threading.Barrier(8)

    def come() -> None:
        barrier.wait()
        try:
            page = served.open()
            served.act(page)
            page.ping().wait(5)
            opened.append(page)
        except Exception:
            pass

    threads = [threading.Thread(target=come) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    still = [page for page in opened if page.protocol.state.name == "OPEN"]
    assert len(still) == 1
    still[0].close()


def test_halves_of_messages_end_their_own_connection(served):
    longest = struct.pack("!BBQ", 0x82, 0xFF, 2**62)
    for half in (b"\x82\xfe\xff\xff", b"\x82\xff" + 8 * b"\x7f", b"\xff\xff", longest):
        page = served.open()
        page.socket.sendall(half)
        with contextlib.suppress(OSError):  # the server may have ended it already
            page.socket.shutdown(socket.SHUT_WR)
        page.socket.close()
        await_the_place(served)
    visit(served)


# --- Its own beginning and end ------------------------------------------------------------------


def test_a_taken_port_is_refused_with_a_remedy(served):
    with pytest.raises(ConfigError, match=f"{port_of(served)}.*--port"):
        open_viser(port_of(served), "test its gate")


def test_only_viser_is_put_behind_the_gate():
    before = websockets_server.serve
    _, server = open_viser(0, "test its gate")
    stop_viser(server)
    assert websockets_server.serve is before


def test_viser_that_starts_otherwise_is_refused(monkeypatch):
    infra: Any = importlib.import_module("viser.infra._infra")
    seen = infra.websockets
    server = SimpleNamespace(server=SimpleNamespace(serve=websockets_server.serve))
    other = SimpleNamespace(
        asyncio=server, exceptions=seen.exceptions, datastructures=seen.datastructures
    )
    monkeypatch.setattr(infra, "websockets", other)
    with pytest.raises(MissingLibraryError, match="pages of other sites"):
        open_viser(0, "test its gate")
