"""The page's server: its files, what the page says, and what it is shown."""

import json
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from support.clicking import wait_until
from support.strangers import open_socket, request
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from fleet_tools.studio.teleoperation.inputs import Inputs
from fleet_tools.studio.teleoperation.page_server import MAX_MESSAGE, Controls, PageServer

FORWARD = Controls(keys=frozenset({"KeyW"})).to_json()


@pytest.fixture(name="inputs")
def _inputs() -> Inputs:
    return Inputs()


@pytest.fixture(name="pages")
def _pages(inputs: Inputs) -> Iterator[PageServer]:
    with PageServer(inputs, 0) as pages:
        yield pages


def open_page(pages: PageServer, **options: Any) -> ClientConnection:
    return open_socket(pages.url, f"{urlsplit(pages.url).path}socket", **options)


def get(pages: PageServer, file: str) -> tuple[int, str]:
    status, text, _ = request(pages.url, f"{urlsplit(pages.url).path}{file}")
    return status, text


# --- Files ------------------------------------------------------------------------------------


def test_the_page_names_only_files_that_are_served(pages: PageServer):
    status, text = get(pages, "")
    assert (status, "<!doctype html>" in text) == (200, True)
    for file in ("page.css", "page.js"):
        assert f'"{file}"' in text
        assert get(pages, file)[0] == 200


def test_the_address_without_its_last_slash_leads_to_the_page(pages: PageServer):
    path = urlsplit(pages.url).path
    status, _, headers = request(pages.url, path[:-1])
    assert (status, headers["Location"]) == (307, path)


@pytest.mark.parametrize(
    "file", ["page.py", "../errors.py", "%2e%2e/errors.py", "/", "page.html", "socket/"]
)
def test_there_are_no_other_files(pages: PageServer, file: str):
    assert get(pages, file)[0] == 404


# --- What the page says -----------------------------------------------------------------------


def test_keys_move_while_the_page_is_open(pages: PageServer, inputs: Inputs):
    with open_page(pages) as page:
        wait_until(lambda: inputs.watched, "the page")
        page.send(FORWARD)
        wait_until(lambda: inputs.given().moves, "the motion")
        np.testing.assert_array_equal(inputs.take().commands[0].twist, np.eye(6)[0])
        page.send(Controls().to_json())
        wait_until(lambda: not inputs.given().moves, "the end of the motion")
        page.send(FORWARD)
        wait_until(lambda: inputs.given().moves, "the motion")
    wait_until(lambda: not inputs.given().moves, "the end of the motion")
    assert not inputs.watched


def test_a_key_that_is_held_asks_once(pages: PageServer, inputs: Inputs):
    with open_page(pages) as page:
        for keys in ({"Enter"}, {"Enter", "KeyW"}, {"Enter"}, set(), {"KeyT"}):
            page.send(Controls(keys=frozenset(keys)).to_json())
        taken = []

        def take() -> bool:
            if request := inputs.take_request():
                taken.append(request)
            return "retry" in taken

        wait_until(take, "the requests")
        assert taken == ["save", "retry"]


@pytest.mark.parametrize("message", ["{", b"\x00\xff", '{"keys": 1}', "x" * (MAX_MESSAGE + 1)])
def test_a_page_that_sends_nonsense_is_closed_and_may_come_again(
    pages: PageServer, inputs: Inputs, message: str | bytes
):
    with open_page(pages) as bad:
        bad.send(FORWARD)
        wait_until(lambda: inputs.given().moves, "the motion")
        bad.send(message)
        with pytest.raises(ConnectionClosed):
            bad.recv(timeout=10)
        wait_until(lambda: not inputs.given().moves, "the end of the motion")
    wait_until(lambda: get(pages, "")[0] == 200, "the place")
    with open_page(pages) as good:
        good.send(FORWARD)
        wait_until(lambda: inputs.given().moves, "the motion")


# --- What pages are shown -------------------------------------------------------------------


def test_a_page_is_shown_the_latest_of_each_kind(pages: PageServer):
    for number in range(3):
        pages.show("status", {"number": number})
    pages.show("scene", {"port": 1})
    with open_page(pages) as page:
        shown = [json.loads(page.recv(timeout=10)) for _ in range(2)]
        assert shown == [{"type": "status", "number": 2}, {"type": "scene", "port": 1}]
        pages.show("status", {"number": 2})  # the same
        pages.show("status", {"number": 3})
        assert json.loads(page.recv(timeout=10)) == {"type": "status", "number": 3}


def test_a_page_that_does_not_listen_delays_nobody(pages: PageServer):
    with open_page(pages, max_queue=1) as page:
        started = time.monotonic()
        for number in range(200):
            pages.show("images", {"number": number, "image": "x" * 100_000})
        assert time.monotonic() - started < 2
        while json.loads(page.recv(timeout=10))["number"] < 199:
            pass


def test_at_its_end_pages_are_closed_and_no_thread_stays():
    before = threading.active_count()
    with PageServer(Inputs(), 0) as pages:
        page = open_page(pages)
    with pytest.raises(ConnectionClosed):
        page.recv(timeout=10)
    page.close()
    wait_until(lambda: threading.active_count() <= before, "the end of threads")
