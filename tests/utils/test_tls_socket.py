"""TLS connections of which one thread receives while another sends."""

import contextlib
import shutil
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hostile_clients import certificate

from fleet_tools.utils.tls_socket import TlsSocket

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl makes the certificate"
)

HOST = "127.0.0.1"
Contexts = tuple[ssl.SSLContext, ssl.SSLContext]


@pytest.fixture(scope="module")
def contexts(tmp_path_factory) -> Contexts:
    """Settings of a server and of a client that trusts it."""
    folder = tmp_path_factory.mktemp("tls")
    certificate(folder)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return server, ssl.create_default_context(cafile=folder / "certificate.pem")


def of_the_library(
    connected: socket.socket, context: ssl.SSLContext, server_hostname: str | None = None
) -> ssl.SSLSocket:
    """Returns the connection of the standard library with the same arguments."""
    return context.wrap_socket(
        connected,
        server_side=server_hostname is None,
        server_hostname=server_hostname,
        do_handshake_on_connect=False,
    )


@contextlib.contextmanager
def connections(
    contexts: Contexts, make_server: Any = TlsSocket, make_client: Any = TlsSocket
) -> Iterator[tuple[Any, Any]]:
    """Both sides of a connection, after their handshakes."""
    one, other = socket.socketpair()
    one.settimeout(20)
    other.settimeout(20)
    server, client = make_server(one, contexts[0]), make_client(other, contexts[1], HOST)
    with server, client, ThreadPoolExecutor(1) as threads:
        answered = threads.submit(server.do_handshake)
        client.do_handshake()
        answered.result()
        yield server, client


def received(connection: Any, count: int) -> bytes:
    """Returns so many bytes of a stream, or all until its end."""
    content = bytearray()
    while len(content) < count and (piece := connection.recv(2**16)):
        content += piece
    return bytes(content)


def exchanged(ends: tuple[Any, Any], sent: tuple[bytes, bytes], piece: int) -> list[bytes]:
    """Returns what each of two ends receives while both send, in four threads at once."""
    together = threading.Barrier(4)

    def send(connection: Any, content: bytes) -> None:
        together.wait()
        for start in range(0, len(content), piece):
            connection.sendall(content[start : start + piece])

    def receive(connection: Any, count: int) -> bytes:
        together.wait()
        return received(connection, count)

    with ThreadPoolExecutor(4) as threads:
        futures = [
            threads.submit(receive, *pair)
            for pair in zip(ends, map(len, reversed(sent)), strict=True)
        ]
        sends = [threads.submit(send, *pair) for pair in zip(ends, sent, strict=True)]
        for each in sends:
            each.result()
        return [each.result() for each in futures]


@pytest.mark.parametrize(("size", "piece", "times"), [(2**10, 100, 300), (2**23, 2**23, 2)])
def test_both_sides_send_while_they_receive(contexts, size, piece, times):
    """With `ssl.SSLSocket`, 45 of 300 connections failed on Python 3.13.0; 3.11.7 crashed."""
    generator = np.random.default_rng(0)
    for _ in range(times):
        sent = generator.bytes(size), generator.bytes(size + 1)
        with connections(contexts) as ends:
            assert exchanged(ends, sent, piece) == [sent[1], sent[0]]


@pytest.mark.parametrize("makers", [(TlsSocket, of_the_library), (of_the_library, TlsSocket)])
def test_it_speaks_with_the_standard_library(contexts, makers: tuple[Callable[..., Any], ...]):
    content = np.random.default_rng(1).bytes(100_000)
    with connections(contexts, *makers) as (server, client):
        for giver, taker in ((server, client), (client, server)):
            with ThreadPoolExecutor(1) as threads:
                taken = threads.submit(received, taker, len(content))
                giver.sendall(np.frombuffer(content, np.uint16))
                assert taken.result() == content
        client.shutdown(socket.SHUT_RDWR)
        assert server.recv(1) == server.recv(1) == b""


def test_what_is_sent_cannot_be_read_underway(contexts):
    with connections(contexts) as (server, client):
        for send in (client.sendall, client.send):
            send(b"a token that nobody may see")
            seen = socket.socket.recv(server, 2**16)
            assert seen and b"token" not in seen


def test_what_is_no_tls_is_an_error(contexts):
    with connections(contexts) as (server, client):
        socket.socket.sendall(client, b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises(ssl.SSLError):
            server.recv(1)
    for content in (b"GET / HTTP/1.1\r\n\r\n", b""):
        one, other = socket.socketpair()
        with TlsSocket(one, contexts[0]) as server, other:
            other.sendall(content)
            other.close()  # so that there is nobody to be told
            with pytest.raises(ssl.SSLError):
                server.do_handshake()


def test_no_other_content_is_taken_for_what_was_sent(contexts):
    content = b"an observation " * 20
    generator = np.random.default_rng(2)
    for _ in range(60):
        with connections(contexts) as (server, client):
            server.sendall(content)
            underway = bytearray(socket.socket.recv(client, 2**16))
            underway[generator.integers(len(underway))] ^= 1 << generator.integers(8)
            socket.socket.sendall(server, underway)
            server.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ssl.SSLError):
                taken = received(client, len(content))
                assert taken != content
                assert content.startswith(taken)


def test_a_refused_certificate_is_told_to_its_server(contexts):
    one, other = socket.socketpair()
    server = TlsSocket(one, contexts[0])
    client = TlsSocket(other, ssl.create_default_context(), HOST)
    with server, client, ThreadPoolExecutor(1) as threads:
        answered = threads.submit(server.do_handshake)
        with pytest.raises(ssl.SSLCertVerificationError):
            client.do_handshake()
        with pytest.raises(ssl.SSLError, match="ALERT"):
            answered.result()  # in TLS 1.3, it may have ended before
            server.recv(1)
