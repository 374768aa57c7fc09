"""Who may reach a server: tokens, TLS, and addresses beyond this machine."""

import asyncio
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("websockets")

from support.served_policies import Remembering, episode, hello, opened, serving
from websockets.exceptions import InvalidStatus

from fleet_tools.errors import ConfigError, PolicyError
from fleet_tools.policies.conversation import Served
from fleet_tools.policies.policy_client import PolicyClient
from fleet_tools.policies.policy_server import PolicyServer
from fleet_tools.policies.server_access import SCHEME, TOKEN_VARIABLE, read_token, require_url

TOKEN = "0123456789abcdef0123456789abcdef"


def test_a_wrong_token_is_refused(monkeypatch):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    with serving(Remembering, token=TOKEN) as server:
        for given in (None, "0" * 32, TOKEN + "0", TOKEN[:-1], TOKEN.upper()):
            if given is not None:
                monkeypatch.setenv(TOKEN_VARIABLE, given)
            with pytest.raises(PolicyError, match=f"asks for a token.*{TOKEN_VARIABLE}"):
                PolicyClient.at(server.url)
        headers = [("Authorization", f"{SCHEME} {TOKEN}"), ("Authorization", f"{SCHEME} x")]
        with pytest.raises(InvalidStatus), opened(server, additional_headers=headers):
            pass
        monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
        assert len(episode(server.url, range(2))) == 2


def test_a_token_is_in_a_file_or_in_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    file = tmp_path / "token"
    assert read_token() is None
    file.write_text(f"{TOKEN}\n")
    assert read_token(file) == TOKEN
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN[::-1])
    assert (read_token(), read_token(file)) == (TOKEN[::-1], TOKEN)
    for bad in ("", "short", "ä" * 20, "0" * 20 + "\r\nX: y" + "0" * 20):
        file.write_text(bad)
        with pytest.raises(ConfigError, match="a token of at least 16"):
            read_token(file)
    file.write_bytes(b"\xff" * 20)
    for path in (file, tmp_path / "absent", tmp_path):
        with pytest.raises(ConfigError, match="holds no token"):
            read_token(path)


def test_it_listens_on_this_machine_alone_and_a_proxy_needs_a_token(server):
    assert server.url.startswith("ws://127.0.0.1:")
    for header in ("Forwarded", "X-Forwarded-For"):
        with (
            pytest.raises(InvalidStatus) as refused,
            opened(server, additional_headers={header: "192.0.2.1"}),
        ):
            pass
        assert refused.value.response.status_code == 403
    with serving(Remembering, token=TOKEN) as secured:
        headers = {"X-Forwarded-For": "192.0.2.1", "Authorization": f"{SCHEME} {TOKEN}"}
        with opened(secured, additional_headers=headers) as client:
            assert client.recv()
    with pytest.raises(ConfigError, match="a token of at least 16"):
        PolicyServer(Served(hello(), Remembering), token="short")


REFUSED_URLS = (
    "ws://192.0.2.1:8000 ws://example.org ws://[2001:db8::1]:80 ws://127.0.0.1.example.org "
    "ws://token@127.0.0.1:8000 ws://127.0.0.1:8000?token=x ws://127.0.0.1:notaport "
    "ws://127.0.0.1:99999 ws:// wss://[::1 http://127.0.0.1"
)


@pytest.mark.parametrize("url", REFUSED_URLS.split())
def test_nothing_is_sent_to_an_address_that_may_not_be_used(url):
    with pytest.raises(ConfigError):
        require_url(url)
    with pytest.raises(ConfigError):
        PolicyClient.at(url)


def certificate(folder: Path) -> None:
    """Writes `certificate.pem` and `key.pem` of 127.0.0.1."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=x", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")),
        ],
        check=True,
        capture_output=True,
    )


@contextmanager
def proxy(folder: Path, port: int) -> Iterator[str]:
    """Speaks TLS before a port of this machine, as a reverse proxy does."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while content := await reader.read(2**16):
                writer.write(content)
        writer.close()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pipe(reader, there[1]), pipe(there[0], writer))

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(forward, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield f"wss://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    server.close()
    loop.run_until_complete(asyncio.sleep(0.1))
    loop.close()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls_of_a_proxy(tmp_path, monkeypatch, server):
    certificate(tmp_path)
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with (
        serving(Remembering, token=TOKEN) as secured,
        proxy(tmp_path, int(secured.url.rpartition(":")[2])) as url,
    ):
        with pytest.raises(PolicyError, match=r"(?i)certificate verify failed"):
            PolicyClient.at(url)
        with pytest.raises(PolicyError):
            PolicyClient.at(url.replace("wss", "ws"), timeout_s=2.0)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        with pytest.raises(PolicyError, match=r"(?i)certificate verify failed"):
            PolicyClient.at(url.replace("127.0.0.1", "localhost"))  # not its name
        assert episode(url, range(3)) == episode(server.url, range(3))
