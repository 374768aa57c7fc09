"""Hostile clients of the servers of policies and of Blender, and a good one beside them."""

import contextlib
import os
import signal
import socket
import ssl
import struct
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from attacked_server import TOKEN
from websockets.exceptions import WebSocketException

from fleet_tools.errors import FleetToolsError
from fleet_tools.policies import openpi
from fleet_tools.policies.policy_client import PolicyClient, WebSocketChannel
from fleet_tools.policies.server_access import SCHEMES

_OBSERVATION = {"state": np.zeros(7, np.float32)}
_BACKLOG = 100
"""Number of connections that wait for a stopped server in any case."""


class Resources(NamedTuple):
    """What a process holds: resident memory in MB, descriptors and threads."""

    memory_mb: float
    descriptors: int
    threads: int

    def largest(self, other: "Resources") -> "Resources":
        """Returns the larger one of each."""
        return Resources(
            max(self.memory_mb, other.memory_mb),
            max(self.descriptors, other.descriptors),
            max(self.threads, other.threads),
        )


@dataclass(frozen=True)
class Target:
    """A server that is attacked.

    Attributes:
        kind: What it serves, see `attacked_server`.
        url: Its address.
        pid: Its process.
        tls: The client's side of TLS, or None.
    """

    kind: str
    url: str
    pid: int
    tls: ssl.SSLContext | None

    def connect(self, secured: bool = True, timeout_s: float = 5.0) -> socket.socket:
        """Connects to it, after a handshake of TLS if there is one and it is wanted."""
        host, port = self.url.rpartition("/")[2].split(":")
        client = socket.create_connection((host, int(port)), timeout_s)
        if self.tls is None or not secured:
            return client
        try:
            return self.tls.wrap_socket(client, server_hostname=host)
        except OSError:
            client.close()
            raise

    def is_served(self) -> bool:
        """Returns whether a good client is."""
        try:
            if self.kind == "Blender":
                with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                    return answer.status == 200
            if self.kind == "openpi":
                channel = WebSocketChannel(self.url, 5.0, SCHEMES[1])
                with channel.exchange():
                    channel.receive(5.0)
                    channel.send(openpi.encode(dict(_OBSERVATION)))
                    answer = channel.receive(5.0)
                channel.close()
                return isinstance(answer, bytes) and "actions" in openpi.decode(answer)
            connection = PolicyClient.at(self.url, 5.0)
            connection.reset()
            zeros = connection.act(_OBSERVATION, 0.0)
            connection.close()
            return not zeros.any()
        except (FleetToolsError, OSError, WebSocketException):
            return False

    def resources(self) -> Resources:
        """Returns what its process holds."""
        status = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in status)
        memory_mb = int(fields["VmRSS"].split()[0]) / 1000
        descriptors = len(os.listdir(f"/proc/{self.pid}/fd"))
        return Resources(memory_mb, descriptors, int(fields["Threads"]))


# --- Attacks --------------------------------------------------------------------------------

Attack = Callable[[Target, int], Iterator[list[socket.socket]]]
"""Begins with a number of clients, and yields those that stay; each next step goes on."""


def _reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def _each(number: int, begin: Callable[[], socket.socket]) -> list[socket.socket]:
    clients = []
    for _ in range(number):
        try:
            clients.append(begin())
        except TimeoutError:  # there is no room for more
            break
        except OSError:
            pass
    return clients


def _resets(target: Target, number: int) -> Iterator[list[socket.socket]]:
    for _ in range(0, number, _BACKLOG):
        os.kill(target.pid, signal.SIGSTOP)
        clients = _each(min(number, _BACKLOG), lambda: target.connect(False, 0.5))
        for client in clients:
            _reset(client)
        os.kill(target.pid, signal.SIGCONT)
        time.sleep(0.3)  # it accepts them, before it is stopped again
    yield []


def _hello_of_tls() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def _resets_in_handshake(target: Target, number: int) -> Iterator[list[socket.socket]]:
    beginning = _hello_of_tls() if target.tls else b"GET / HTTP/1.1\r\nHost: x\r\n"
    for part in (len(beginning), len(beginning) // 2):
        for client in _each(number // 2, lambda: target.connect(False)):
            with contextlib.suppress(OSError):
                client.sendall(beginning[:part])
            _reset(client)
    yield []


def _silent(target: Target, number: int) -> Iterator[list[socket.socket]]:
    clients = _each(number, lambda: target.connect(False))
    while True:
        yield clients


def _slow(target: Target, number: int) -> Iterator[list[socket.socket]]:
    clients = _each(number, lambda: target.connect(False))
    beginning = _hello_of_tls() if target.tls else b"GET / HTTP/1.1\r\nHost: " + b"x" * 1000
    for byte in beginning:
        for client in clients:
            with contextlib.suppress(OSError):
                client.send(bytes([byte]))
        yield clients


def _half(target: Target, number: int) -> Iterator[list[socket.socket]]:
    """Yields clients that announce more than they send, after a whole handshake."""
    upgrade = (
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
    )
    if target.tls:
        upgrade += f"Authorization: {SCHEMES[0]} {TOKEN}\r\n".encode()
    frames = [b"\x82\xe0", b"\x82\xfe\xff\xff", b"\x82\xff" + b"\x7f" + b"\xff" * 7]
    message = b"POST /render HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nhalf"

    def begin() -> socket.socket:
        client = target.connect()
        if target.kind == "Blender":
            client.sendall(message)
        else:
            client.sendall(upgrade + b"\r\n" + frames[client.fileno() % 3] + b"\0\0\0\0half")
        return client

    clients = _each(number, begin)
    while True:
        yield clients


ATTACKS: dict[str, Attack] = {
    "reset before accept": _resets,
    "reset in the handshake": _resets_in_handshake,
    "silent": _silent,
    "a byte a second": _slow,
    "half messages": _half,
    "silent, few descriptors": _silent,
    "silent, few threads": _silent,
}
SHORT_OF = {"silent, few descriptors": "descriptors", "silent, few threads": "threads"}
"""What the server has little of in an attack, see `attacked_server`."""
