"""What a server must not answer is an error of the policy, and leads nowhere."""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

pytest.importorskip("websockets")

from support.processes import running_process
from support.served_policies import constant, hello, observation
from websockets.sync.server import serve

from fleet_tools.errors import PolicyError
from fleet_tools.policies.array_codec import encode
from fleet_tools.policies.policy_client import PolicyClient
from fleet_tools.policies.server_access import TOKEN_VARIABLE


@contextmanager
def running(handle: Any, **options: Any) -> Iterator[str]:
    with serve(handle, "127.0.0.1", 0, **options) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()
        thread.join()


GREETING = encode(hello().model_dump(mode="json"))
READY = encode({"number": 0})


@contextmanager
def lying(*answers: Any) -> Iterator[PolicyClient]:
    """Yields the client of a server that says hello, and answers requests by what is given."""

    def handle(connection: Any) -> None:
        connection.send(GREETING)
        for answer, _ in zip(answers, connection, strict=False):
            connection.send(encode(answer) if isinstance(answer, dict) else answer)

    with running(handle, compression=None) as url:
        yield PolicyClient.at(url, timeout_s=0.5)


ACTIONS = constant(0)[None]
LIES = {
    "NaN": {"number": 1, "actions": np.full((1, 6), np.nan, np.float32)},
    "no action": {"number": 1},
    "more than one": {"number": 1, "actions": np.zeros((2, 6), np.float32)},
    "text": "go",
    "a late answer": {"number": 0, "actions": ACTIONS},
    "the answer to another request": {"number": 7, "actions": ACTIONS},
    "no number": {"actions": ACTIONS},
    "an array for a number": {"number": np.ones(2), "actions": ACTIONS},
    "too much": bytes(2**20 + 1),
}
"""More of it is fuzzed: the kind "answers of policy servers"."""


@pytest.mark.parametrize("name", LIES)
def test_what_a_server_must_not_answer_is_an_error_of_the_policy(name):
    with lying(READY, LIES[name]) as client:
        client.reset()
        with pytest.raises(PolicyError):
            client.act(observation())
        assert client.closed
        with pytest.raises(PolicyError):
            client.reset()


@pytest.mark.parametrize(
    "first", [b"", b"\x80", "hello", encode({**hello().model_dump(mode="json"), "protocol": 2})]
)
def test_a_server_of_another_protocol_is_refused(first):
    with (
        running(lambda connection: connection.send(first), compression=None) as url,
        pytest.raises(PolicyError, match="protocol error"),
    ):
        PolicyClient.at(url, timeout_s=0.5)


def test_redirects_are_not_followed(server, monkeypatch):
    monkeypatch.setenv(TOKEN_VARIABLE, "0123456789abcdef")

    def redirect(connection: Any, request: Any) -> Any:
        response = connection.respond(302, "elsewhere")
        response.headers["Location"] = server.url
        return response

    with (
        running(lambda _: None, process_request=redirect) as url,
        pytest.raises(PolicyError, match=r"cannot follow redirect|HTTP 302"),
    ):
        PolicyClient.at(url)


def test_there_is_no_server():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(PolicyError, match=r"not answer within 0\.3 s"):
            PolicyClient.at(f"ws://127.0.0.1:{port}", timeout_s=0.3)
    with pytest.raises(PolicyError, match="refused"):
        PolicyClient.at(f"ws://127.0.0.1:{port}")


SERVER = """
import sys
from support.served_policies import *
x = ArraySpec(kind="state", shape=(int(sys.argv[1]),), dtype="float32", unit="", frame=None)
served = Served(hello(observation={"x": x}), lambda: Scripted(constant))
with PolicyServer(served) as server:
    print(server.url, flush=True)
    server.serve_forever()
"""


def acted(url: str, seen: dict[str, np.ndarray], timeout_s: float) -> PolicyClient:
    """Returns a client that has acted; on a busy machine, 16 MB take several attempts."""
    for _ in range(20):
        client = PolicyClient.at(url, timeout_s)
        try:
            client.reset()
            client.act(seen)
        except PolicyError:
            client.close()
        else:
            return client
    raise AssertionError(f"20 clients got no answer within {timeout_s} s.")


@pytest.mark.parametrize("size", [1, 4 * 2**20], ids=["small", "more than fits the connection"])
def test_a_frozen_server_is_named_with_the_time_and_nothing_waits_for_it(size):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with running_process(
        [sys.executable, "-c", SERVER, str(size)],
        environment=environment,
        stderr=sys.stderr.fileno(),
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        seen = {"x": np.zeros(size, np.float32)}
        clients = [acted(url, seen, timeout_s=0.5) for _ in range(2)]
        late = rf"{url}: it did not answer within 0\.5 s\. Look whether its process hangs"
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)  # until it has stopped
        begin = time.monotonic()
        for ask in (clients[0].reset, lambda: clients[1].act(seen)):
            with pytest.raises(PolicyError, match=late):
                ask()
        for client in clients:
            client.close()
            with pytest.raises(PolicyError, match=late):  # and not what closing it has led to
                client.reset()
        with pytest.raises(PolicyError, match=late):
            PolicyClient.at(url, timeout_s=0.5)
        assert time.monotonic() - begin < 4.0
        process.send_signal(signal.SIGCONT)
        again = PolicyClient.at(url)
        again.reset()
        assert again.act(seen).tobytes() == constant(0).tobytes()
        again.close()
