"""Effects of hostile clients on the servers of policies and of Blender, during and after an attack.

Each attack is tried on a server in its own process, while a good client sends requests. Afterwards,
the server must serve the good client, with the memory, descriptors and threads of before.
"""

import contextlib
import os
import resource
import signal
import socket
import struct
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scaffold import Child, answering, main_of, print_now, table_head, table_row
from websockets.exceptions import WebSocketException

from fleet_tools.config.values import Count
from fleet_tools.envs.array_spec import ArraySpec
from fleet_tools.errors import FleetToolsError
from fleet_tools.policies.conversation import Served
from fleet_tools.policies.policy_client import PolicyClient
from fleet_tools.policies.policy_server import PolicyServer
from fleet_tools.policies.wire_messages import Hello
from fleet_tools.studio.photographs.render_requests import RenderServer
from fleet_tools.utils import cli

_OBSERVATION = {"state": np.zeros(7, np.float32)}
_BACKLOG = 100
"""Number of connections that wait for a stopped server in any case."""
_SERVER = "--server"
"""First argument of the process of a server."""
_SETTLES_S = 30.0


# --- The server, in its own process ----------------------------------------------------

HELLO = Hello(
    policy="zeros",
    blueprint_digest="",
    content_digest="",
    observation={
        "state": ArraySpec(kind="state", shape=(7,), dtype="float32", unit="rad", frame=None)
    },
    action=ArraySpec(kind="action", shape=(6,), dtype="float32", unit="m", frame="E"),
    control_period_s=1.0 / 6.0,
)
PLACES = 4
"""Number of connections of a policy's server."""

_FEW_DESCRIPTORS, _FEW_THREADS = 15, 40

SERVERS = ("policy", "Blender")


class _Zeros:
    def reset(self) -> None:
        pass

    def act(self, observation: object) -> np.ndarray:
        return np.zeros(6, np.float32)


def _made(kind: str) -> tuple[str, Callable[[], None], Callable[[], dict[str, int]]]:
    """Returns the address of a server, a function that serves, and one that counts drops."""
    if kind == "Blender":
        loop = RenderServer("127.0.0.1", 0, lambda *_: b"image", {}, 10**6)
        host, port = loop.address
        return f"http://{host}:{port}", loop.serve_forever, lambda: dict(loop.dropped)
    server = PolicyServer(Served(HELLO, _Zeros), max_connections=PLACES)
    return server.url, server.serve_forever, lambda: server.dropped


def _limit(what: str) -> None:
    """Leaves little room for "descriptors" or "threads"."""
    if what == "descriptors":
        most = len(os.listdir("/proc/self/fd")) + _FEW_DESCRIPTORS
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    elif what == "threads":  # by the addresses of their stacks
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + _FEW_THREADS * 2**23
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _serve(kind: str, limit: str) -> None:
    """Serves until its input ends.

    Args:
        kind: One of `SERVERS`.
        limit: Scarce resource, see `_limit`; empty for none.
    """
    with answering() as answer:
        url, serve, dropped = _made(kind)
        _limit(limit)
        threading.Thread(target=serve, daemon=True).start()
        answer(url)
        for _ in sys.stdin:
            answer(dropped())


# --- The target ------------------------------------------------------------------------------


class Resources(NamedTuple):
    """Resources of a process: resident memory in MB, descriptors and threads."""

    memory_mb: float
    descriptors: int
    threads: int

    def largest(self, other: "Resources") -> "Resources":
        """Returns the larger one of each."""
        memory_mb = max(self.memory_mb, other.memory_mb)
        descriptors = max(self.descriptors, other.descriptors)
        return Resources(memory_mb, descriptors, max(self.threads, other.threads))


@dataclass(frozen=True)
class Target:
    """A server under attack.

    Attributes:
        kind: One of `SERVERS`.
        url: Its address.
        pid: Its process.
    """

    kind: str
    url: str
    pid: int

    def connect(self, timeout_s: float = 5.0) -> socket.socket:
        """Connects to it."""
        host, port = self.url.rpartition("/")[2].split(":")
        return socket.create_connection((host, int(port)), timeout_s)

    def is_served(self) -> bool:
        """Returns whether it serves a good client."""
        try:
            if self.kind == "Blender":
                with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                    return answer.status == 200
            connection = PolicyClient.at(self.url, 5.0)
            connection.reset()
            zeros = connection.act(_OBSERVATION)
            connection.close()
            return not zeros.any()
        except (FleetToolsError, OSError, WebSocketException):
            return False

    def resources(self) -> Resources:
        """Returns the resources of its process."""
        status = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in status)
        memory_mb = int(fields["VmRSS"].split()[0]) / 1000
        descriptors = len(os.listdir(f"/proc/{self.pid}/fd"))
        return Resources(memory_mb, descriptors, int(fields["Threads"]))


# --- Attacks --------------------------------------------------------------------------------

Attack = Callable[[Target, int], Iterator[list[socket.socket]]]
"""Begins with a number of clients, and yields the remaining ones; each next step continues."""


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
        clients = _each(min(number, _BACKLOG), lambda: target.connect(0.5))
        for client in clients:
            _reset(client)
        os.kill(target.pid, signal.SIGCONT)
        time.sleep(0.3)  # it accepts them, before it is stopped again
    yield []


def _resets_in_handshake(target: Target, number: int) -> Iterator[list[socket.socket]]:
    beginning = b"GET / HTTP/1.1\r\nHost: x\r\n"
    for part in (len(beginning), len(beginning) // 2):
        for client in _each(number // 2, target.connect):
            with contextlib.suppress(OSError):
                client.sendall(beginning[:part])
            _reset(client)
    yield []


def _silent(target: Target, number: int) -> Iterator[list[socket.socket]]:
    clients = _each(number, target.connect)
    while True:
        yield clients


def _slow(target: Target, number: int) -> Iterator[list[socket.socket]]:
    clients = _each(number, target.connect)
    beginning = b"GET / HTTP/1.1\r\nHost: " + b"x" * 1000
    for byte in beginning:
        for client in clients:
            with contextlib.suppress(OSError):
                client.send(bytes([byte]))
        yield clients


def _half(target: Target, number: int) -> Iterator[list[socket.socket]]:
    """Yields clients that announce more than they send, after a whole handshake."""
    upgrade = (
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    frames = [b"\x82\xe0", b"\x82\xfe\xff\xff", b"\x82\xff" + b"\x7f" + b"\xff" * 7]
    message = b"POST /render HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nhalf"

    def begin() -> socket.socket:
        client = target.connect()
        if target.kind == "Blender":
            client.sendall(message)
        else:
            client.sendall(upgrade + frames[client.fileno() % 3] + b"\0\0\0\0half")
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
"""Scarce resource of the server in an attack, see `_limit`."""


# --- An attack ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """Result of an attack.

    Attributes:
        kind, attack: Server, and name of the attack.
        tried, served: How often a good client asked during the attack, and was served.
        served_after_s: Time after its end until a good client was served, s.
        dropped: Number of connections that the server reports as dropped.
        processor_s: Processor time of the server, s.
        before, height, after: Its resources before the attack, at most, and after it.
    """

    kind: str
    attack: str
    tried: int
    served: int
    served_after_s: float
    dropped: int
    processor_s: float
    before: Resources
    height: Resources
    after: Resources

    @property
    def is_well(self) -> bool:
        """Whether the server has recovered."""
        return (
            self.served_after_s < _SETTLES_S
            and self.after.descriptors <= self.before.descriptors
            and self.after.threads <= self.before.threads
            and self.after.memory_mb < self.before.memory_mb + 30
        )


def attacked(kind: str, attack: str, clients: int, seconds: float) -> Found:
    """Attacks a server.

    Args:
        kind: One of `SERVERS`.
        attack: Name of an attack.
        clients: Number of hostile clients.
        seconds: Time for which the attack goes on, s.
    """
    arguments = [_SERVER, kind, SHORT_OF.get(attack, "")]
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(Child("hostile_clients.py", arguments))
        target = Target(kind, server.answer(), server.pid)
        for _ in range(3):  # the first clients load data that remain
            if _served_after_s(target) >= _SETTLES_S:
                raise FleetToolsError("The server does not serve a good client.")
        before = _settled(target)
        begun_s = _processor_s(target.pid)
        height, tried, served = before, 0, 0
        steps = ATTACKS[attack](target, clients)
        hostile = next(steps)
        end = time.monotonic() + seconds
        next_step = 0.0
        while True:
            if time.monotonic() >= next_step:
                hostile = next(steps, hostile)
                next_step = time.monotonic() + 1.0
            height = height.largest(target.resources())
            tried += 1
            served += target.is_served()
            if time.monotonic() >= end:
                break
            time.sleep(0.2)
        for client in hostile:
            client.close()
        served_after_s = _served_after_s(target)
        after = _settled(target, before)
        server.ask("dropped")
        return Found(
            kind,
            attack,
            tried,
            served,
            round(served_after_s, 2),
            sum(server.answer().values()),
            round(_processor_s(target.pid) - begun_s, 2),
            before,
            height,
            after,
        )


def _served_after_s(target: Target) -> float:
    """Returns the time until a good client is served, s; about `_SETTLES_S` if it is not."""
    begin = time.monotonic()
    while not target.is_served() and time.monotonic() < begin + _SETTLES_S:
        time.sleep(0.05)
    return time.monotonic() - begin


def _settled(target: Target, wanted: Resources | None = None) -> Resources:
    """Returns the resources as soon as they are the wanted ones; by default after 1 s."""
    end = time.monotonic() + (1.0 if wanted is None else _SETTLES_S)
    while True:
        found = target.resources()
        if time.monotonic() > end or (wanted is not None and found[1:] <= wanted[1:]):
            return found
        time.sleep(0.1)


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- The program ----------------------------------------------------------------------------


class HostileClientsOptions(cli.Options):
    """Attacks servers on this machine, and prints the effects. Linux only.

    Exit codes:
    0: all servers recovered.
    1: one was not.
    """

    clients: Count = 1000
    """Number of hostile clients at the same time."""
    seconds: Count = 5
    """Time for which they stay, s."""


COLUMNS = (
    *("server", "clients", "good ones served", "after, s", "dropped", "processor, s"),
    *("memory, MB", "descriptors", "threads"),
)


def _benchmark(options: HostileClientsOptions) -> int:
    all_found = []
    print_now(options, table_head(COLUMNS))
    for kind in SERVERS:
        for attack in ATTACKS:
            found = attacked(kind, attack, options.clients, options.seconds)
            all_found.append(found)
            print_now(options, table_row(_cells(found)))
    report = {"servers": [asdict(each) for each in all_found]}
    options.report(report, lambda: f"\n{options.clients} clients, {options.seconds} s each.")
    return cli.OK if all(each.is_well for each in all_found) else cli.FAILED


def _cells(found: Found) -> list[str]:
    return [
        *(found.kind, found.attack, f"{found.served} of {found.tried}"),
        *(f"{found.served_after_s:.2f}", f"{found.dropped:,}", f"{found.processor_s:.2f}"),
        *(
            " / ".join(f"{each:.0f}" for each in three)
            for three in zip(found.before, found.height, found.after, strict=True)
        ),
    ]


main = main_of(__file__, HostileClientsOptions, _benchmark)

if __name__ == "__main__":
    if sys.argv[1:2] == [_SERVER]:
        _serve(*sys.argv[2:])
        os._exit(0)
    sys.exit(main())
