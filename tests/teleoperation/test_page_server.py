"""The page's server: for this machine and its own page alone, whatever is sent."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from fleet_tools.errors import ConfigError
from fleet_tools.teleoperation.controls import MAX_MESSAGE, Controls
from fleet_tools.teleoperation.inputs import Inputs
from fleet_tools.teleoperation.page_server import PageServer

FORWARD = Controls(keys=frozenset({"KeyW"})).to_json()


@pytest.fixture(name="inputs")
def _inputs() -> Inputs:
    return Inputs()


@pytest.fixture(name="pages")
def _pages(inputs: Inputs) -> Iterator[PageServer]:
    with PageServer(inputs, 0) as pages:
        yield pages


def host_of(pages: PageServer) -> str:
    return urlsplit(pages.url).netloc


def open_socket(pages: PageServer, **options: object) -> ClientConnection:
    options = {"origin": f"http://{host_of(pages)}", "compression": None, **options}
    return connect(f"ws://{host_of(pages)}/socket", **options)  # pyright: ignore


def get(pages: PageServer, path: str, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(host_of(pages), timeout=10)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


# --- Who may speak --------------------------------------------------------------------------


def test_the_page_names_only_files_that_are_served(pages: PageServer):
    status, text = get(pages, "/")
    assert (status, "<!doctype html>" in text) == (200, True)
    for file in ("page.css", "page.js"):
        assert f'"{file}"' in text
        assert get(pages, f"/{file}")[0] == 200


@pytest.mark.parametrize(
    "path", ["/page.py", "/../errors.py", "/%2e%2e/errors.py", "//", "/page.html"]
)
def test_there_are_no_other_files(pages: PageServer, path: str):
    assert get(pages, path)[0] == 404


@pytest.mark.parametrize("host", ["example.org", "example.org:8090", "127.0.0.1.example.org", ""])
def test_requests_to_other_names_are_refused(pages: PageServer, host: str):
    assert get(pages, "/", Host=host)[0] == 403  # a name that leads here: DNS rebinding


@pytest.mark.parametrize("origin", [None, "http://example.org", "null", "http://127.0.0.1:1"])
def test_the_socket_is_for_the_page_alone(pages: PageServer, inputs: Inputs, origin: str | None):
    with pytest.raises(InvalidStatus) as refused:
        open_socket(pages, origin=origin)
    assert refused.value.response.status_code == 403
    assert not inputs.watched


def test_a_taken_port_is_refused_with_a_remedy(pages: PageServer):
    port = urlsplit(pages.url).port
    assert port is not None
    with pytest.raises(ConfigError, match=f"{port}.*--port"):
        PageServer(Inputs(), port)


# --- What pages say -------------------------------------------------------------------------


def test_keys_move_while_the_page_is_open(pages: PageServer, inputs: Inputs):
    with open_socket(pages) as page:
        wait_until(lambda: inputs.watched)
        page.send(FORWARD)
        wait_until(lambda: inputs.given().moves)
        np.testing.assert_array_equal(inputs.take().commands[0].twist, np.eye(6)[0])
        page.send(Controls().to_json())
        wait_until(lambda: not inputs.given().moves)
        page.send(FORWARD)
        wait_until(lambda: inputs.given().moves)
    wait_until(lambda: not inputs.given().moves)
    assert not inputs.watched


def test_a_key_that_is_held_asks_once(pages: PageServer, inputs: Inputs):
    with open_socket(pages) as page:
        for keys in ({"Enter"}, {"Enter", "KeyW"}, {"Enter"}, set(), {"KeyT"}):
            page.send(Controls(keys=frozenset(keys)).to_json())
        taken = []

        def take() -> bool:
            if request := inputs.take_request():
                taken.append(request)
            return "retry" in taken

        wait_until(take)
        assert taken == ["save", "retry"]


@pytest.mark.parametrize("message", ["{", b"\x00\xff", '{"keys": 1}', "x" * (MAX_MESSAGE + 1)])
def test_a_page_that_sends_nonsense_is_closed_and_others_stay(
    pages: PageServer, inputs: Inputs, message: str | bytes
):
    with open_socket(pages) as good, open_socket(pages) as bad:
        bad.send(FORWARD)
        wait_until(lambda: inputs.given().moves)
        bad.send(message)
        with pytest.raises(ConnectionClosed):
            bad.recv(timeout=10)
        wait_until(lambda: not inputs.given().moves)
        good.send(FORWARD)
        wait_until(lambda: inputs.given().moves)


# --- What pages are shown -------------------------------------------------------------------


def test_a_page_is_shown_the_latest_of_each_kind(pages: PageServer):
    for number in range(3):
        pages.show("status", {"number": number})
    pages.show("scene", {"port": 1})
    with open_socket(pages) as page:
        shown = [json.loads(page.recv(timeout=10)) for _ in range(2)]
        assert shown == [{"type": "status", "number": 2}, {"type": "scene", "port": 1}]
        pages.show("status", {"number": 2})  # the same
        pages.show("status", {"number": 3})
        assert json.loads(page.recv(timeout=10)) == {"type": "status", "number": 3}


def test_a_page_that_does_not_listen_delays_nobody(pages: PageServer):
    with open_socket(pages, max_queue=1) as page:
        started = time.monotonic()
        for number in range(200):
            pages.show("images", {"number": number, "image": "x" * 100_000})
        assert time.monotonic() - started < 2
        while json.loads(page.recv(timeout=10))["number"] < 199:
            pass


def test_at_its_end_pages_are_closed_and_no_thread_stays():
    before = threading.active_count()
    with PageServer(Inputs(), 0) as pages:
        page = open_socket(pages)
    with pytest.raises(ConnectionClosed):
        page.recv(timeout=10)
    page.close()
    wait_until(lambda: threading.active_count() <= before)
