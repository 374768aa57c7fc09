"""What a server must not answer is an error of the policy, and leads nowhere."""

import socket
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("websockets")

from support.served_policies import constant, hello, observation
from websockets.sync.server import serve

from fleet_tools.errors import PolicyError
from fleet_tools.policies.policy_client import PolicyClient
from fleet_tools.policies.policy_server import PolicyServer
from fleet_tools.policies.server_access import TOKEN_VARIABLE
from fleet_tools.policies.wire_messages import Acted, Ready


def lying(*answers: Any) -> Any:
    """Returns a handler that says hello, and answers requests by what is given."""

    def handle(connection: Any) -> None:
        connection.send(hello().to_bytes())
        for answer, _ in zip(answers, connection, strict=False):
            for each in answer if isinstance(answer, list) else [answer]:
                connection.send(each if isinstance(each, (bytes, str)) else each.to_bytes())

    return handle


def lying_client(handle: Any) -> Iterator[PolicyClient]:
    with serve(handle, "127.0.0.1", 0, compression=None) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        port = server.socket.getsockname()[1]
        try:
            yield PolicyClient.at(f"ws://127.0.0.1:{port}", timeout_s=0.5)
        finally:
            server.shutdown()
            thread.join()


ACTION = constant(0)
LIES = {
    "NaN": Acted(seq=0, action=np.full(6, np.nan, np.float32)),
    "another shape": Acted(seq=0, action=np.zeros(5, np.float32)),
    "another dtype": Acted(seq=0, action=np.zeros(6)),
    "another answer": Ready(session=0),
    "no message": b"\xc1",
    "text": "go",
    "only late answers": [Acted(seq=7, action=ACTION)] * 3,
    "too much": bytes(2**20 + 1),
}


@pytest.mark.parametrize("name", LIES)
def test_what_a_server_must_not_answer_is_an_error_of_the_policy(name: str) -> None:
    for connection in lying_client(lying(Ready(session=0), LIES[name])):
        connection.reset()
        with pytest.raises(PolicyError):
            connection.act(observation(), 0.0)
        assert connection.closed
        with pytest.raises(PolicyError):
            connection.reset()


def test_answers_of_other_requests_are_dropped() -> None:
    wrong = [Acted(seq=seq, action=constant(seq)) for seq in (9, 1, 2**62)]
    answers = [*wrong, Acted(seq=0, action=ACTION)]
    for connection in lying_client(lying([Ready(session=8), Ready(session=0)], answers)):
        connection.reset()
        assert connection.act(observation(), 0.0).tobytes() == ACTION.tobytes()


@pytest.mark.parametrize(
    "first", [b"", b"\x80", "hello", hello().to_bytes().replace(b"protocol\x01", b"protocol\x02")]
)
def test_a_server_of_another_protocol_is_refused(first: Any) -> None:
    with pytest.raises(PolicyError, match="speaks otherwise"):
        list(lying_client(lambda connection: connection.send(first)))


def test_redirects_are_not_followed(server: PolicyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "0123456789abcdef")

    def redirect(connection: Any, request: Any) -> Any:
        response = connection.respond(302, "elsewhere")
        response.headers["Location"] = server.url
        return response

    with serve(lambda _: None, "127.0.0.1", 0, process_request=redirect) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        with pytest.raises(PolicyError, match=r"cannot follow redirect|HTTP 302"):
            PolicyClient.at(f"ws://127.0.0.1:{other.socket.getsockname()[1]}")
        other.shutdown()
        thread.join()


def test_there_is_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(PolicyError, match="not answer in time"):
            PolicyClient.at(f"ws://127.0.0.1:{port}", timeout_s=0.3)
    with pytest.raises(PolicyError, match="refused"):
        PolicyClient.at(f"ws://127.0.0.1:{port}")
