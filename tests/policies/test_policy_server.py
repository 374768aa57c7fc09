"""A server on a real socket: strangers are told little, and nobody else notices them."""

import contextlib
import socket
import threading
import time
import urllib.request
from typing import Any

import numpy as np
import pytest

pytest.importorskip("websockets")

from support.served_policies import (
    Remembering,
    Scripted,
    actions,
    episode,
    hello,
    observation,
    opened,
    serving,
    slow_at_first,
)
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from fleet_tools.errors import ConfigError, PolicyError
from fleet_tools.policies import policy_server
from fleet_tools.policies.array_codec import encode
from fleet_tools.policies.policy_client import PolicyClient
from fleet_tools.policies.policy_server import PolicyServer
from fleet_tools.policies.wire_messages import CONTROL, largest_request, read_failure


def request(number: int, **control: Any) -> bytes:
    return encode({**observation(), CONTROL: {"number": number, **control}})


def test_the_actions_are_those_of_the_policy_bit_for_bit(server):
    policy = Remembering()
    policy.reset()
    expected = [policy.act(observation(seed)).tobytes() for seed in range(6)]
    connection = PolicyClient.at(server.url)
    assert connection.hello == hello()
    assert actions(connection, range(6)) == expected == actions(connection, range(6))
    connection.close()


def test_a_connection_outlives_a_pause(server):
    connection = PolicyClient.at(server.url, timeout_s=0.5)
    expected = actions(connection, range(2))
    time.sleep(0.7)  # more than the time of an answer
    assert actions(connection, range(2)) == expected
    connection.close()


def test_connections_do_not_share_state(server):
    apart = [episode(server.url, range(5)), episode(server.url, range(50, 55))]
    both = [PolicyClient.at(server.url) for _ in range(2)]
    for connection in both:
        connection.reset()
    together: list[list[bytes]] = [[], []]
    for step in range(5):
        for number, connection in enumerate(both):
            action = connection.act(observation(50 * number + step))
            together[number].append(action.tobytes())
    assert together == apart and apart[0] != apart[1]
    for connection in both:
        connection.close()


@pytest.mark.parametrize(
    "given", [{}, {"state": None}, {"state": np.zeros(3)}, {"state": np.full(3, np.nan, "f4")}]
)
def test_what_the_policy_cannot_read_is_not_sent(given, server):
    connection = PolicyClient.at(server.url)
    connection.reset()
    wrong = {**observation(), **given} if given else {}
    with pytest.raises(PolicyError, match="inputs of the policy: 'state' is"):
        connection.act(wrong)
    assert not connection.closed and len(actions(connection, range(2))) == 2
    more = {**observation(0), "secret": np.array([object()])}  # is not sent
    connection.reset()
    assert connection.act(more).tobytes() == episode(server.url, range(1))[0]
    connection.close()


MALFORMED = {
    "text": "reset",
    "truncated": request(0)[:-7],
}
"""More of it is fuzzed: the kind "bytes to a served policy"."""


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_no_request_ends_its_own_connection(name, server):
    other = PolicyClient.at(server.url)
    expected = actions(other, range(4))
    other.reset()
    found = [other.act(observation(seed)).tobytes() for seed in range(2)]
    with opened(server) as stranger:
        stranger.recv()
        stranger.send(MALFORMED[name])
        code, why = read_failure(stranger.recv())
        assert code == "malformed" and "Traceback" not in why
        with pytest.raises(ConnectionClosed):
            stranger.recv(timeout=5)
    found += [other.act(observation(seed)).tobytes() for seed in range(2, 4)]
    assert found == expected
    other.close()


def test_a_request_that_is_too_large_ends_its_own_connection(server):
    with opened(server) as stranger:
        stranger.recv()
        stranger.send(bytes(largest_request(hello().observation) + 1))
        with pytest.raises(ConnectionClosed) as closed:
            stranger.recv(timeout=5)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009
    assert episode(server.url, range(3)) == episode(server.url, range(3))


def test_one_request_is_in_flight():
    with serving(lambda: Scripted(slow_at_first)) as server, opened(server) as client:
        client.recv()
        for number in range(2):
            client.send(request(number, reset=True))
        assert client.recv() == "busy: one request is in flight at a time"
        with pytest.raises(ConnectionClosed):
            client.recv(timeout=5)


def test_connections_are_bounded_and_given_back():
    with serving(Remembering, max_connections=2) as server:
        kept = [PolicyClient.at(server.url) for _ in range(2)]
        with pytest.raises(PolicyError, match="reported full"):
            PolicyClient.at(server.url)
        assert len(actions(kept[0], range(2))) == 2
        kept.pop().close()
        kept.append(connected_soon(server))
        kept.clear()  # connections that nobody holds are closed
        kept += [connected_soon(server), connected_soon(server)]
        for connection in kept:
            connection.close()


def connected_soon(server: PolicyServer) -> PolicyClient:
    """Connects once there is a place."""
    end = time.monotonic() + 10
    while True:
        try:
            return PolicyClient.at(server.url)
        except PolicyError:
            assert time.monotonic() < end
            time.sleep(0.05)


def test_pages_of_browsers_are_refused_and_nothing_is_compressed(server):
    with pytest.raises(InvalidStatus) as refused, opened(server, origin="http://127.0.0.1"):
        pass
    assert refused.value.response.status_code == 403
    with connect(server.url, compression="deflate", proxy=None) as stranger:
        assert stranger.protocol.extensions == []  # no bomb is unpacked


SHORT_REQUEST = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
PING = b"\x89\xfd\0\0\0\0" + b"x" * 125


def test_clients_that_answer_nothing_do_not_hold_up_the_end():
    """One is silent, one sends half a frame, and one does not read the answers to its pings."""
    clients, others = [], set(threading.enumerate())  # such as of clients of earlier tests
    with serving(Remembering) as server:
        host, _, port = server.url.rpartition("/")[2].partition(":")
        for content in (b"", b"\x82\xff" + bytes(10), PING * 1000):
            client = socket.create_connection((host, int(port)), timeout=20)
            client.sendall(SHORT_REQUEST)
            assert client.recv(12) == b"HTTP/1.1 101"
            clients.append(client)
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                for _ in range(100 if content else 0):
                    client.send(content)
        good = PolicyClient.at(server.url)
        assert len(actions(good, range(2))) == 2
    for client in clients:
        client.close()
    good.close()
    started = set(threading.enumerate()) - others
    assert not [each for each in started if "recv_events" in each.name]


def test_an_occupied_port_is_refused(server):
    port = int(server.url.rpartition(":")[2])
    with (
        pytest.raises(ConfigError, match=f"Cannot listen on 127.0.0.1:{port}"),
        serving(Remembering, port=port),
    ):
        pass


def test_one_policy_is_not_shared_by_connections():
    shared = Remembering()
    with serving(lambda: shared) as server:
        first = PolicyClient.at(server.url)
        alone = actions(first, range(3))
        with pytest.raises(PolicyError, match=r"Remembering object .* acting in another episode"):
            PolicyClient.at(server.url)
        assert actions(first, range(3)) == alone
        first.close()
        deadline = time.monotonic() + 60  # until the server has seen it
        while True:
            with contextlib.suppress(PolicyError):
                assert episode(server.url, range(3)) == alone
                return
            assert time.monotonic() < deadline


def test_it_says_that_it_runs(server):
    with urllib.request.urlopen(
        f"{server.url.replace('ws', 'http')}/healthz", timeout=10
    ) as answer:
        assert (answer.status, answer.read()) == (200, b"OK\n")


class Hanging:
    """Never answers."""

    def reset(self) -> None:
        pass

    def act(self, observation: Any) -> np.ndarray:
        threading.Event().wait()
        raise AssertionError


def test_a_policy_that_hangs_does_not_hold_up_the_end(monkeypatch):
    monkeypatch.setattr(policy_server, "_FAREWELL_S", 0.25)
    with serving(Hanging) as server, opened(server) as client:
        client.recv()
        client.send(request(0, reset=True))
        time.sleep(0.2)
        started = time.monotonic()
        server.close()
        assert time.monotonic() - started < 5
