"""The bounded server: all kinds of clients, and a machine that is short of things."""

import asyncio
import contextlib
import logging
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.processes import run_python

from fleet_tools.utils.bounded_server import BUSY, BoundedServer, Connections


class Echo(BoundedServer):
    """Opens a connection with its first byte, and echoes."""

    def __init__(self, **options: Any) -> None:
        super().__init__("127.0.0.1", 0, Connections(**options))

    async def start(self) -> asyncio.Server:
        return await asyncio.start_server(self.converse, sock=self._socket)

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.connections.admit(writer.transport):
            return
        with contextlib.suppress(OSError):
            while content := await reader.read(100):
                is_open = self.connections.opened(writer.transport)
                writer.write(content if is_open else b"no place")
        self.connections.lost(writer.transport)
        writer.close()


@contextlib.contextmanager
def looping(**options: Any) -> Iterator[Echo]:
    with Echo(**options) as loop:
        thread = threading.Thread(target=loop.serve_forever)
        thread.start()
        yield loop
    thread.join()


def connected(loop: Echo) -> socket.socket:
    return socket.create_connection(loop.address, timeout=20)


def ask(client: socket.socket, content: bytes = b"?") -> bytes:
    client.sendall(content)
    return client.recv(100)


def is_ended(client: socket.socket) -> bool:
    """Returns whether a connection has ended: in order, or, before it was accepted, by a reset."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_clients_are_served_side_by_side():
    with looping() as loop, connected(loop) as silent, connected(loop) as other:
        assert (ask(other), ask(other, b"more"), ask(silent)) == (b"?", b"more", b"?")
        assert loop.dropped == {}


def test_open_connections_are_bounded_and_places_are_given_back():
    with looping(max_open=1) as loop, connected(loop) as second:
        with connected(loop) as first:
            assert (ask(first), ask(second)) == (b"?", b"no place")
        wait_until(lambda: ask(second) == b"?")
        assert loop.dropped["no place"] >= 1


def test_who_does_not_open_in_time_is_ended_and_who_has_opened_stays():
    with looping(opening_s=0.5) as loop, connected(loop) as good, connected(loop) as silent:
        assert ask(good) == b"?"
        assert silent.recv(1) == b""
        assert ask(good) == b"?"
        assert loop.dropped == {"not open after 0.5 s": 1}


def test_the_oldest_slow_stranger_gives_way():
    with looping(max_opening=2, patience_s=0.0) as loop, contextlib.ExitStack() as stack:
        opened = stack.enter_context(connected(loop))
        assert ask(opened) == b"?"
        silent = [stack.enter_context(connected(loop)) for _ in range(2)]
        for _ in range(5):
            assert ask(stack.enter_context(connected(loop))) == b"?"
        assert is_ended(silent[0])
        assert ask(silent[1]) == b"?"  # there was no need
        assert ask(opened) == b"?"
        assert loop.dropped == {"gave way to others": 1}


def test_further_strangers_are_told_at_once():
    with (
        looping(max_opening=2, patience_s=1e9) as loop,
        connected(loop) as first,
        connected(loop) as second,
    ):
        for _ in range(3):
            with connected(loop) as third:
                assert third.recv(1000) == BUSY
        assert (ask(first), ask(second)) == (b"?", b"?")
        assert loop.dropped == {"too many at once": 3}


def test_the_log_counts_in_few_lines(caplog):
    with caplog.at_level(logging.WARNING), looping() as loop:
        for _ in range(200):
            connected(loop).close()
        wait_until(lambda: sum(loop.dropped.values()) == 200)
    lines = [each.getMessage() for each in caplog.records]
    assert len(lines) < 20  # one each ten seconds
    assert sum(int(count) for line in lines for count in re.findall(r"(\d+) \(", line)) == 200


def test_closing_ends_everything_and_may_come_before_all_else():
    with looping() as loop:
        clients = [connected(loop) for _ in range(4)]
        assert ask(clients[0]) == b"?"
        loop.close()
        assert all(map(is_ended, clients))
        with pytest.raises(OSError):
            connected(loop)
        for each in clients:
            each.close()
    never = Echo()
    never.close()
    never.close()
    never.serve_forever()


def test_a_socket_that_listens_no_more_is_an_error():
    with Echo() as loop:
        threading.Timer(0.2, loop._socket.shutdown, [socket.SHUT_RDWR]).start()
        with pytest.raises(OSError, match="The server stopped listening"):
            loop.serve_forever()


SHORT = """
import json, os, resource, socket, sys, threading, time
sys.path[:0] = [sys.argv[1]]
from test_bounded_server import Echo, ask

loop = Echo()
threading.Thread(target=loop.serve_forever, daemon=True).start()
clients = [socket.socket() for _ in range(20)]
for client in clients:
    client.settimeout(20)
time.sleep(0.2)  # it has its selector
most = max(map(int, os.listdir("/proc/self/fd"))) + 4
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
for client in clients:
    client.connect(loop.address)
while "Too many open files" not in loop.dropped:
    time.sleep(0.05)
time.sleep(1.0)
for client in clients[:-1]:
    client.close()
print(json.dumps({"served": ask(clients[-1]) == b"?", "dropped": loop.dropped}))
"""


def test_it_outlives_a_shortage_of_descriptors():
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    found = run_python(SHORT, str(Path(__file__).parent), **paths)
    assert found["served"]
    # Once for each client that waits, a second: asyncio tries again instead of at once.
    assert 1 <= found["dropped"]["Too many open files"] < 1000
