"""A server on a real socket: strangers are told little, and nobody else notices them."""

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("msgpack")
pytest.importorskip("websockets")

from support.served_policies import (
    Remembering,
    Scripted,
    constant,
    hello,
    observation,
    serving,
    slow_at_first,
)
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.sync.server import serve

from fleet_tools.errors import ConfigError, PolicyError
from fleet_tools.policies.remote.access import TOKEN_VARIABLE, Access, read_token, require_url
from fleet_tools.policies.remote.connection import PolicyConnection
from fleet_tools.policies.remote.messages import (
    Act,
    Acted,
    Failure,
    Hello,
    Ready,
    Reset,
    largest_request,
    read_message,
)
from fleet_tools.policies.remote.server import PolicyServer

TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.fixture(name="server", scope="module")
def _server() -> Iterator[PolicyServer]:
    with serving(Remembering) as server:
        yield server


def actions(connection: PolicyConnection, seeds: range) -> list[bytes]:
    connection.reset()
    return [connection.act(observation(seed), 0.0).tobytes() for seed in seeds]


def episode(url: str, seeds: range) -> list[bytes]:
    connection = PolicyConnection(url)
    found = actions(connection, seeds)
    connection.close()
    return found


def test_the_actions_are_those_of_the_policy_bit_for_bit(server: PolicyServer) -> None:
    policy = Remembering()
    policy.reset()
    expected = [policy.act(observation(seed)).tobytes() for seed in range(6)]
    connection = PolicyConnection(server.url)
    assert connection.hello == hello()
    assert actions(connection, range(6)) == expected == actions(connection, range(6))
    connection.close()


def test_connections_do_not_share_state(server: PolicyServer) -> None:
    apart = [episode(server.url, range(5)), episode(server.url, range(50, 55))]
    both = [PolicyConnection(server.url) for _ in range(2)]
    for connection in both:
        connection.reset()
    together: list[list[bytes]] = [[], []]
    for step in range(5):
        for number, connection in enumerate(both):
            action = connection.act(observation(50 * number + step), 0.0)
            together[number].append(action.tobytes())
    assert together == apart and apart[0] != apart[1]
    for connection in both:
        connection.close()


@pytest.mark.parametrize(
    "given", [{}, {"state": None}, {"state": np.zeros(3)}, {"state": np.full(3, np.nan, "f4")}]
)
def test_what_the_policy_cannot_read_is_not_sent(
    given: dict[str, Any], server: PolicyServer
) -> None:
    connection = PolicyConnection(server.url)
    connection.reset()
    wrong = {**observation(), **given} if given else {}
    with pytest.raises(PolicyError, match="not what the policy reads: 'state' is"):
        connection.act(wrong, 0.0)
    assert not connection.closed and len(actions(connection, range(2))) == 2
    more = {**observation(0), "secret": np.array([object()])}  # is not sent
    connection.reset()
    assert connection.act(more, 0.0).tobytes() == episode(server.url, range(1))[0]
    connection.close()


def opened(server: PolicyServer, **options: Any) -> Any:
    return connect(server.url, compression=None, proxy=None, **options)


MALFORMED = {
    "random bytes": bytes(np.random.default_rng(0).integers(0, 256, 300, np.uint8)),
    "nothing": b"",
    "text": "reset",
    "truncated": Act(seq=0, time_s=0.0, observation=observation()).to_bytes()[:-7],
    "an answer": Ready(session=0).to_bytes(),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_no_request_ends_its_own_connection(name: str, server: PolicyServer) -> None:
    other = PolicyConnection(server.url)
    expected = actions(other, range(4))
    other.reset()
    found = [other.act(observation(seed), 0.0).tobytes() for seed in range(2)]
    with opened(server) as stranger:
        read_message(stranger.recv(), Hello)
        stranger.send(MALFORMED[name])
        failure = read_message(stranger.recv(), Failure)
        assert failure.code == "malformed" and "Traceback" not in failure.message
        with pytest.raises(ConnectionClosed):
            stranger.recv(timeout=5)
    found += [other.act(observation(seed), 0.0).tobytes() for seed in range(2, 4)]
    assert found == expected
    other.close()


def test_a_request_that_is_too_large_ends_its_own_connection(server: PolicyServer) -> None:
    with opened(server) as stranger:
        stranger.recv()
        stranger.send(bytes(largest_request(hello().observation) + 1))
        with pytest.raises(ConnectionClosed) as closed:
            stranger.recv(timeout=5)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009
    assert episode(server.url, range(3)) == episode(server.url, range(3))


def test_compressed_requests_are_not_understood(server: PolicyServer) -> None:
    with connect(server.url, compression="deflate", proxy=None) as stranger:
        assert stranger.protocol.extensions == []  # no bomb is unpacked


def test_one_request_is_in_flight() -> None:
    with serving(lambda: Scripted(slow_at_first)) as server, opened(server) as client:
        client.recv()
        client.send(Reset(session=0).to_bytes())
        client.recv()
        for seq in range(2):
            client.send(Act(seq=seq, time_s=0.0, observation=observation()).to_bytes())
        assert read_message(client.recv(), Failure, Acted) == Failure(
            code="busy", message="one request is in flight at a time"
        )
        with pytest.raises(ConnectionClosed):
            client.recv(timeout=5)


def test_connections_are_bounded_and_given_back() -> None:
    with serving(Remembering, max_connections=2) as server:
        kept = [PolicyConnection(server.url) for _ in range(2)]
        with pytest.raises(PolicyError, match="says full"):
            PolicyConnection(server.url)
        assert len(actions(kept[0], range(2))) == 2
        kept.pop().close()
        kept.append(connected_soon(server))
        kept.clear()  # connections that nobody holds are closed
        kept += [connected_soon(server), connected_soon(server)]
        for connection in kept:
            connection.close()


def connected_soon(server: PolicyServer) -> PolicyConnection:
    """Connects once there is a place."""
    end = time.monotonic() + 10
    while True:
        try:
            return PolicyConnection(server.url)
        except PolicyError:
            assert time.monotonic() < end
            time.sleep(0.05)


def test_pages_of_browsers_are_refused(server: PolicyServer) -> None:
    with pytest.raises(InvalidStatus) as refused, opened(server, origin="http://127.0.0.1"):
        pass
    assert refused.value.response.status_code == 403


def test_strangers_who_speak_otherwise_are_no_trouble(
    server: PolicyServer, capfd: pytest.CaptureFixture[str]
) -> None:
    _, _, address = server.url.rpartition("/")
    host, _, port = address.partition(":")
    for content in (b"", b"\0" * 1000, b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" + b"\0" * 50):
        with socket.create_connection((host, int(port))) as stranger:
            stranger.sendall(content)
    assert episode(server.url, range(2)) == episode(server.url, range(2))
    assert "Traceback" not in capfd.readouterr().err


# --- Tokens and TLS -------------------------------------------------------------------------


@pytest.mark.parametrize("given", [None, "0" * 32, TOKEN + "0", TOKEN[:-1], TOKEN.upper()])
def test_a_wrong_token_is_refused(given: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    if given is not None:
        monkeypatch.setenv(TOKEN_VARIABLE, given)
    with serving(Remembering, Access(token=TOKEN)) as server:
        with pytest.raises(PolicyError, match=f"asks for a token.*{TOKEN_VARIABLE}"):
            PolicyConnection(server.url)
        headers = [("Authorization", f"Bearer {TOKEN}"), ("Authorization", "Bearer x")]
        with pytest.raises(InvalidStatus), opened(server, additional_headers=headers):
            pass
        monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
        assert len(episode(server.url, range(2))) == 2


def test_a_token_is_in_a_file_or_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    file = tmp_path / "token"
    assert read_token() is None
    file.write_text(f"{TOKEN}\n")
    assert read_token(file) == TOKEN
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN[::-1])
    assert (read_token(), read_token(file)) == (TOKEN[::-1], TOKEN)
    for bad in ("", "short", "ä" * 20, "0" * 20 + "\r\nX: y" + "0" * 20):
        file.write_text(bad)
        with pytest.raises(ConfigError, match="A token has at least 16"):
            read_token(file)
    file.write_bytes(b"\xff" * 20)
    for path in (file, tmp_path / "absent", tmp_path):
        with pytest.raises(ConfigError, match="holds no token"):
            read_token(path)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "localhost.example.org", "lo"])
def test_nothing_listens_beyond_this_machine_without_token_and_tls(
    host: str, tmp_path: Path
) -> None:
    files: dict[str, Any] = {"certificate": tmp_path / "a", "key": tmp_path / "b"}
    without: list[dict[str, Any]] = [{}, {"token": TOKEN}, files]
    for given in without:
        with pytest.raises(ConfigError, match="Others than this machine"):
            Access(host, **given)
    with pytest.raises(ConfigError, match="given together"):
        Access(host, token=TOKEN, certificate=tmp_path / "a")
    with pytest.raises(ConfigError, match="no certificate with its key"):
        Access(host, token=TOKEN, **files).tls()


@pytest.mark.parametrize(
    "url",
    [
        "ws://192.0.2.1:8000",
        "ws://example.org",
        "ws://[2001:db8::1]:80",
        "ws://127.0.0.1.example.org",
        "ws://token@127.0.0.1:8000",
        "ws://127.0.0.1:8000?token=x",
        "ws://127.0.0.1:notaport",
        "ws://127.0.0.1:99999",
        "ws://",
        "wss://[::1",
        "http://127.0.0.1",
    ],
)
def test_nothing_is_sent_to_an_address_that_may_not_be_used(url: str) -> None:
    with pytest.raises(ConfigError):
        require_url(url)
    with pytest.raises(ConfigError):
        PolicyConnection(url)


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Makes a certificate that signs itself, for a name or address of a host."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is absent, which makes the certificate")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=tests", "-addext", f"subjectAltName={name}"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


def test_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: PolicyServer) -> None:
    certificate, key = make_certificate(tmp_path, "IP:127.0.0.1")
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    # On all addresses, as beyond this machine.
    access = Access("0.0.0.0", token=TOKEN, certificate=certificate, key=key)
    with serving(Remembering, access) as secured:
        url = secured.url.replace("0.0.0.0", "127.0.0.1")
        assert url.startswith("wss://")
        with pytest.raises(PolicyError, match=r"(?i)certificate verify failed"):
            PolicyConnection(url)
        with pytest.raises(PolicyError):
            PolicyConnection(url.replace("wss", "ws"))
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with pytest.raises(PolicyError, match=r"(?i)certificate verify failed"):
            PolicyConnection(url.replace("127.0.0.1", "localhost"))  # not its name
        assert episode(url, range(3)) == episode(server.url, range(3))


# --- Servers that lie, for clients -----------------------------------------------------------


def lying(*answers: Any) -> Any:
    """Returns a handler that says hello, and answers requests by what is given."""

    def handle(connection: Any) -> None:
        connection.send(hello().to_bytes())
        for answer, _ in zip(answers, connection, strict=False):
            for each in answer if isinstance(answer, list) else [answer]:
                connection.send(each if isinstance(each, (bytes, str)) else each.to_bytes())

    return handle


def lying_client(handle: Any) -> Iterator[PolicyConnection]:
    with serve(handle, "127.0.0.1", 0, compression=None) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        port = server.socket.getsockname()[1]
        try:
            yield PolicyConnection(f"ws://127.0.0.1:{port}", timeout_s=0.5)
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
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)

    def redirect(connection: Any, request: Any) -> Any:
        response = connection.respond(302, "elsewhere")
        response.headers["Location"] = server.url
        return response

    with serve(lambda _: None, "127.0.0.1", 0, process_request=redirect) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        with pytest.raises(PolicyError, match=r"cannot follow redirect|HTTP 302"):
            PolicyConnection(f"ws://127.0.0.1:{other.socket.getsockname()[1]}")
        other.shutdown()
        thread.join()


def test_there_is_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(PolicyError, match="not answer in time"):
            PolicyConnection(f"ws://127.0.0.1:{port}", timeout_s=0.3)
    with pytest.raises(PolicyError, match="refused"):
        PolicyConnection(f"ws://127.0.0.1:{port}")


def test_an_occupied_port_is_refused(server: PolicyServer) -> None:
    port = int(server.url.rpartition(":")[2])
    with (
        pytest.raises(ConfigError, match=f"Cannot listen on 127.0.0.1:{port}"),
        serving(Remembering, Access(port=port)),
    ):
        pass
