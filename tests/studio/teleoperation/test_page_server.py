"""The page's server: its files, what the page says, and what it is shown."""

import json
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clicking import wait_until
from support.strangers import open_socket, request
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from fleet_tools.errors import ConfigError
from fleet_tools.studio.teleoperation.devices import Inputs
from fleet_tools.studio.teleoperation.page_server import (
    MAX_MESSAGE,
    Controls,
    GamepadState,
    PageServer,
    read_controls,
)

FORWARD = Controls(keys=frozenset({"KeyW"})).to_json()


@pytest.fixture(name="inputs")
def _inputs() -> Inputs:
    return Inputs()


@pytest.fixture(name="pages")
def _pages(inputs: Inputs) -> Iterator[PageServer]:
    with PageServer(inputs, 0) as pages:
        yield pages


def await_motion(inputs: Inputs, moves: bool = True) -> None:
    wait_until(lambda: inputs.given().moves == moves, "the motion, or its end")


def open_page(pages: PageServer, **options: Any) -> ClientConnection:
    return open_socket(pages.url, f"{urlsplit(pages.url).path}socket", **options)


def get(pages: PageServer, file: str) -> tuple[int, str]:
    status, text, _ = request(pages.url, f"{urlsplit(pages.url).path}{file}")
    return status, text


# --- Files ------------------------------------------------------------------------------------


def test_the_page_names_only_files_that_are_served(pages):
    status, text = get(pages, "")
    assert (status, "<!doctype html>" in text) == (200, True)
    for file in ("page.css", "page.js"):
        assert f'"{file}"' in text
        assert get(pages, file)[0] == 200


def test_the_address_without_its_last_slash_leads_to_the_page(pages):
    path = urlsplit(pages.url).path
    status, _, headers = request(pages.url, path[:-1])
    assert (status, headers["Location"]) == (307, path)


@pytest.mark.parametrize(
    "file", ["page.py", "../errors.py", "%2e%2e/errors.py", "/", "page.html", "socket/"]
)
def test_there_are_no_other_files(pages, file):
    assert get(pages, file)[0] == 404


# --- What the page says -----------------------------------------------------------------------


def test_keys_move_while_the_page_is_open(pages, inputs):
    with open_page(pages) as page:
        wait_until(lambda: inputs.watched, "the page")
        page.send(FORWARD)
        await_motion(inputs)
        np.testing.assert_array_equal(inputs.take().commands[0].twist, np.eye(6)[0])
        page.send(Controls().to_json())
        await_motion(inputs, False)
        page.send(FORWARD)
        await_motion(inputs)
    await_motion(inputs, False)
    assert not inputs.watched


@pytest.mark.parametrize("message", ["{", b"\x00\xff", '{"keys": 1}', "x" * (MAX_MESSAGE + 1)])
def test_a_page_that_sends_nonsense_is_closed_and_may_come_again(pages, inputs, message):
    with open_page(pages) as bad:
        bad.send(FORWARD)
        await_motion(inputs)
        bad.send(message)
        with pytest.raises(ConnectionClosed):
            bad.recv(timeout=10)
        await_motion(inputs, False)
    wait_until(lambda: get(pages, "")[0] == 200, "the place")
    with open_page(pages) as good:
        good.send(FORWARD)
        await_motion(inputs)


# --- What pages are shown -------------------------------------------------------------------


def test_a_page_is_shown_the_latest_of_each_kind(pages):
    for number in range(3):
        pages.show("status", {"number": number})
    pages.show("scene", {"port": 1})
    with open_page(pages) as page:
        shown = [json.loads(page.recv(timeout=10)) for _ in range(2)]
        assert shown == [{"type": "status", "number": 2}, {"type": "scene", "port": 1}]
        pages.show("status", {"number": 2})  # the same
        pages.show("status", {"number": 3})
        assert json.loads(page.recv(timeout=10)) == {"type": "status", "number": 3}


def test_a_page_that_does_not_listen_delays_nobody(pages):
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


# --- What a page says of its devices --------------------------------------------------------

A_SAVES = GamepadState(axes=(), buttons=(1.0,))

names = st.sampled_from(["KeyW", "KeyT", "Enter", "Backspace", "ShiftLeft"])
states = st.builds(
    Controls,
    keys=st.frozensets(names),
    gamepad=st.sampled_from([None, A_SAVES, GamepadState(axes=(0.5,), buttons=(0.0,))]),
    frame=st.sampled_from(["world", "end_effector"]),
)


@given(states)
def test_controls_are_read_as_written_and_ask_for_nothing_again_but_by_clicks(controls):
    assert read_controls(controls.to_json()) == controls
    assert controls.requests(before=controls) == set()
    click = controls.model_copy(update={"clicked": "retry"})
    assert click.requests(before=click) == {"retry"}


@given(st.lists(states, min_size=1))
def test_a_key_asks_once_for_each_press(history):
    before, presses, asked = Controls(), 0, 0
    for state in history:
        held, was = ("Enter" in each.keys or each.gamepad == A_SAVES for each in (state, before))
        presses += held and not was
        asked += "save" in state.requests(before)
        before = state
    assert asked == presses


ODD = ("", b"\xff", "[" * 2000, "null", '{"keys": "KeyW"}', '{"gamepad": {"axes": [NaN]}}')


@pytest.mark.parametrize("message", ODD)
def test_other_messages_are_refused(message):
    with pytest.raises(ConfigError, match=r"message (from the|of a) page"):
        read_controls(message)
