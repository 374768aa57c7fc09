"""The time of a served policy's answer on this machine, beside that of the bytes alone.

The policy returns zeros at once, so that the figures are of codec, server and network. It runs in a
process of its own.
"""

import multiprocessing
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from console import table_head, table_row

from fleet_tools.config.values import Count
from fleet_tools.envs.array_spec import ArraySpec
from fleet_tools.policies.array_codec import decode
from fleet_tools.policies.conversation import Served
from fleet_tools.policies.policy_client import PolicyClient
from fleet_tools.policies.policy_server import PolicyServer
from fleet_tools.policies.remote_policy import RealTimePolicy
from fleet_tools.policies.server_access import Access
from fleet_tools.policies.wire_messages import Act, Acted, Hello
from fleet_tools.utils import cli

_PERIOD_S = 1.0 / 6.0
_HELLO = Hello(
    policy="zeros",
    blueprint_digest="",
    content_digest="",
    observation={
        "end_effector_pose": ArraySpec(
            kind="state", shape=(3, 4), dtype="float32", unit="m", frame="W"
        ),
        "end_effector_wrench": ArraySpec(
            kind="state", shape=(6,), dtype="float32", unit="N", frame="E"
        ),
        "joint_position": ArraySpec(
            kind="state", shape=(7,), dtype="float32", unit="rad", frame=None
        ),
        "point_cloud": ArraySpec(
            kind="points", shape=(1024, 4), dtype="float32", unit="m", frame="E"
        ),
    },
    action=ArraySpec(kind="action", shape=(6,), dtype="float32", unit="m", frame="E"),
    control_period_s=_PERIOD_S,
)


class ServingOptions(cli.Options):
    """Times requests to a served policy on this machine."""

    requests: Count = 2000
    """Number of timed requests of each kind."""


@dataclass(frozen=True)
class Times:
    """Wall times of one kind of request, ms.

    Attributes:
        p10_ms: The 10th percentile, which other programs of the machine hardly distort.
        median_ms, p99_ms: The median and the 99th percentile.
    """

    p10_ms: float
    median_ms: float
    p99_ms: float

    @classmethod
    def of(cls, work: Callable[[], object], requests: int) -> "Times":
        """Times a piece of work, after some runs that are not counted."""
        seconds = []
        for number in range(requests + requests // 10):
            started = time.perf_counter()
            work()
            if number >= requests // 10:
                seconds.append(time.perf_counter() - started)
        return cls(*(round(float(1e3 * each), 4) for each in np.percentile(seconds, (10, 50, 99))))


class _Zeros:
    def reset(self) -> None:
        pass

    def act(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.zeros(6, np.float32)


def _serve(ready: Connection) -> None:
    with PolicyServer(Served(_HELLO, _Zeros), Access()) as server:
        ready.send(server.url)
        server.serve_forever()


def _echo(ready: Connection, question: int, answer: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ready.send(listening.getsockname()[1])
        connection, _ = listening.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while _received(connection, question):
            connection.sendall(bytes(answer))


def _received(connection: socket.socket, size: int) -> bool:
    while size:
        part = connection.recv(size)
        if not part:
            return False
        size -= len(part)
    return True


@contextmanager
def _process(target: Callable[..., None], *arguments: Any) -> Any:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=target, args=(there, *arguments), daemon=True)
    process.start()
    try:
        yield here.recv()
    finally:
        process.terminate()
        process.join()


def measure(requests: int) -> tuple[int, dict[str, Times]]:
    """Returns the size of a request in bytes, and the times by name."""
    generator = np.random.default_rng(0)
    observation = {
        name: generator.standard_normal(spec.shape).astype(spec.dtype)
        for name, spec in _HELLO.observation.items()
    }
    question = Act(seq=0, time_s=0.0, observation=observation).to_bytes()
    answer = Acted(seq=0, action=np.zeros(6, np.float32)).to_bytes()
    times = {}

    def bare() -> None:
        plain.sendall(question)
        _received(plain, len(answer))

    with (
        _process(_echo, len(question), len(answer)) as port,
        socket.create_connection(("127.0.0.1", port)) as plain,
    ):
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        times["the bytes alone, over TCP"] = Times.of(bare, requests)
    times["request to bytes and back"] = Times.of(
        lambda: decode(Act(seq=0, time_s=0.0, observation=observation).to_bytes()), requests
    )
    with _process(_serve) as url:
        connection = PolicyClient.at(url)
        connection.reset()
        times["served, for simulations"] = Times.of(
            lambda: connection.act(observation, 0.0), requests
        )
        connection.close()
        policy = RealTimePolicy(url, 0.9 * _PERIOD_S)
        policy.reset()
        times["served, with a deadline"] = Times.of(lambda: policy.act(observation, 0.0), requests)
        policy.close()
    return len(question), times


def _benchmark(options: ServingOptions) -> int:
    size, times = measure(options.requests)
    floor = next(iter(times.values())).median_ms

    def text() -> str:
        head = table_head(["request", "10% ms", "median ms", "99% ms", "median over the bytes"])
        rows = [
            table_row(
                [name]
                + [f"{each:.3f}" for each in (t.p10_ms, t.median_ms, t.p99_ms)]
                + [f"{t.median_ms / floor:.1f}"]
            )
            for name, t in times.items()
        ]
        return "\n".join(
            [f"A request has {size:,} bytes. Percentiles of wall times:", "", head, *rows]
        )

    options.report({"bytes": size} | {name: asdict(t) for name, t in times.items()}, text)
    return cli.OK


PROGRAM = cli.Program(
    "serving.py", cli.Command(ServingOptions, _benchmark), launcher="python benchmarks/"
)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(main())
