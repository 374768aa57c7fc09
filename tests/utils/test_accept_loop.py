"""The bounded server: all kinds of clients, and a machine that is short of things."""

import contextlib
import logging
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.processes import run_python

from fleet_tools.utils import accept_loop
from fleet_tools.utils.accept_loop import BUSY, BoundedServer


class Echo(socketserver.BaseRequestHandler):
    """Opens with the first byte, and echoes."""

    server: BoundedServer

    def handle(self) -> None:
        while content := self.request.recv(100):
            self.request.sendall(content if self.server.opened(self.request) else b"no place")


@contextlib.contextmanager
def looping(
    handler: type[Echo] = Echo, max_open: int = 2, **options: Any
) -> Iterator[BoundedServer]:
    with BoundedServer(("127.0.0.1", 0), handler, max_open, **options) as loop:
        thread = threading.Thread(target=loop.serve_forever)
        thread.start()
        yield loop
    thread.join()


def connected(loop: BoundedServer) -> socket.socket:
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


def test_the_oldest_slow_stranger_gives_way(monkeypatch):
    monkeypatch.setattr(accept_loop, "_PATIENCE_S", 0.0)
    with looping(max_opening=2, max_open=9) as loop, contextlib.ExitStack() as stack:
        opened = stack.enter_context(connected(loop))
        assert ask(opened) == b"?"
        silent = [stack.enter_context(connected(loop)) for _ in range(2)]
        for _ in range(5):
            assert ask(stack.enter_context(connected(loop))) == b"?"
        assert silent[0].recv(1) == b""
        assert ask(silent[1]) == b"?"  # there was no need
        assert ask(opened) == b"?"
        assert loop.dropped == {"gave way to others": 1}


def test_further_strangers_are_told_at_once(monkeypatch):
    monkeypatch.setattr(accept_loop, "_PATIENCE_S", 1e9)
    with looping(max_opening=2) as loop, connected(loop) as first, connected(loop) as second:
        for _ in range(3):
            with connected(loop) as third:
                assert third.recv(1000) == BUSY
        assert (ask(first), ask(second)) == (b"?", b"?")
        assert loop.dropped == {"too many at once": 3}


def test_errors_of_a_client_end_its_connection(capsys):
    defects = [ConnectionResetError("left"), ValueError("a defect")]

    class Failing(Echo):
        def handle(self) -> None:
            super().handle()
            raise defects.pop()

    with looping(Failing) as loop:
        for left in (1, 0):
            with connected(loop) as client:
                assert ask(client) == b"?"
            wait_until(lambda left=left: len(defects) == left)
    said = capsys.readouterr().err
    assert "ValueError: a defect" in said and "ConnectionResetError" not in said


def test_the_log_counts_in_few_lines(caplog):
    with caplog.at_level(logging.WARNING), looping() as loop:
        for _ in range(200):
            connected(loop).close()
        wait_until(lambda: loop.dropped.total() == 200)
    lines = [each.getMessage() for each in caplog.records]
    assert len(lines) < 20  # one each ten seconds
    counts = [int(line.partition(": ")[2].partition(" ")[0]) for line in lines]
    assert sum(counts) == 200


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
    never = BoundedServer(("127.0.0.1", 0), Echo, 1)
    never.close()
    never.close()
    never.serve_forever()


def test_a_socket_that_listens_no_more_is_an_error():
    with BoundedServer(("127.0.0.1", 0), Echo, 1) as loop:
        loop.socket.shutdown(socket.SHUT_RDWR)
        with pytest.raises(OSError, match="It listens no more"):
            loop.serve_forever()


SHORT = """
import json, os, resource, socket, socketserver, sys, threading, time
from fleet_tools.utils.accept_loop import BoundedServer

class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while content := self.request.recv(100):
            self.server.opened(self.request)
            self.request.sendall(content)

def ask(client):
    client.sendall(b"?")
    return client.recv(1) == b"?"

loop = BoundedServer(("127.0.0.1", 0), Echo, 8)
address = loop.address
threading.Thread(target=loop.serve_forever, daemon=True).start()
clients = [socket.socket() for _ in range(20)]
for client in clients:
    client.settimeout(20)
time.sleep(0.2)  # the loop has its selector
if sys.argv[1] == "descriptors":
    most = max(map(int, os.listdir("/proc/self/fd"))) + 4
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
else:
    threading.stack_size(2**30)
    pages = int(open("/proc/self/statm").read().split()[0])
    most = pages * resource.getpagesize() + 2**29
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
for client in clients:
    client.connect(address)
while not {"Too many open files", "no thread could be started"} & loop.dropped.keys():
    time.sleep(0.05)
time.sleep(1.0)
for client in clients[:-1]:
    client.close()
if sys.argv[1] == "threads":
    threading.stack_size(0)
    clients[-1].close()
    clients[-1] = socket.create_connection(address, timeout=20)
print(json.dumps({"served": ask(clients[-1]), "dropped": loop.dropped}))
"""


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("descriptors", "Too many open files"),
        pytest.param("threads", "no thread could be started", marks=pytest.mark.slow),
    ],
)
def test_it_outlives_a_shortage(what, reason):
    found = run_python(SHORT, what)
    assert found["served"]
    assert 1 <= found["dropped"][reason] < 500  # it waits instead of trying again at once
