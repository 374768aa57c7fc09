"""Who may reach a server: tokens, TLS, and addresses beyond this machine."""

import shutil
from typing import Any

import pytest

pytest.importorskip("websockets")

from hostile_clients import certificate
from support.served_policies import Remembering, episode, opened, serving
from websockets.exceptions import InvalidStatus

from fleet_tools.errors import ConfigError, PolicyError
from fleet_tools.policies.policy_client import PolicyClient
from fleet_tools.policies.server_access import TOKEN_VARIABLE, Access, read_token, require_url

TOKEN = "0123456789abcdef0123456789abcdef"


def test_a_wrong_token_is_refused(monkeypatch):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    with serving(Remembering, Access(token=TOKEN)) as server:
        for given in (None, "0" * 32, TOKEN + "0", TOKEN[:-1], TOKEN.upper()):
            if given is not None:
                monkeypatch.setenv(TOKEN_VARIABLE, given)
            with pytest.raises(PolicyError, match=f"asks for a token.*{TOKEN_VARIABLE}"):
                PolicyClient.at(server.url)
        headers = [("Authorization", f"Bearer {TOKEN}"), ("Authorization", "Bearer x")]
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
        with pytest.raises(ConfigError, match="A token has at least 16"):
            read_token(file)
    file.write_bytes(b"\xff" * 20)
    for path in (file, tmp_path / "absent", tmp_path):
        with pytest.raises(ConfigError, match="holds no token"):
            read_token(path)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "localhost.example.org", "lo"])
def test_nothing_listens_beyond_this_machine_without_token_and_tls(host, tmp_path):
    files: dict[str, Any] = {"certificate": tmp_path / "a", "key": tmp_path / "b"}
    without: list[dict[str, Any]] = [{}, {"token": TOKEN}, files]
    for given in without:
        with pytest.raises(ConfigError, match="Others than this machine"):
            Access(host, **given)
    with pytest.raises(ConfigError, match="given together"):
        Access(host, token=TOKEN, certificate=tmp_path / "a")
    with pytest.raises(ConfigError, match="no certificate with its key"):
        Access(host, token=TOKEN, **files).tls()


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


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls(tmp_path, monkeypatch, server):
    certificate(tmp_path)
    own = tmp_path / "certificate.pem"
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    # On all addresses, as beyond this machine.
    access = Access("0.0.0.0", token=TOKEN, certificate=own, key=tmp_path / "key.pem")
    with serving(Remembering, access) as secured:
        url = secured.url.replace("0.0.0.0", "127.0.0.1")
        assert url.startswith("wss://")
        with pytest.raises(PolicyError, match=r"(?i)certificate verify failed"):
            PolicyClient.at(url)
        with pytest.raises(PolicyError):
            PolicyClient.at(url.replace("wss", "ws"))
        monkeypatch.setenv("SSL_CERT_FILE", str(own))
        with pytest.raises(PolicyError, match=r"(?i)certificate verify failed"):
            PolicyClient.at(url.replace("127.0.0.1", "localhost"))  # not its name
        assert episode(url, range(3)) == episode(server.url, range(3))
