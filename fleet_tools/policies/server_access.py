"""Who may reach a policy's server: this machine alone, or others with a token and by TLS."""

import hmac
import ipaddress
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from fleet_tools.errors import ConfigError

TOKEN_VARIABLE = "FLEET_TOOLS_POLICY_TOKEN"
"""Environment variable with the token of a policy's server; command lines are seen by others."""

SCHEMES = ("Bearer", "Api-Key")
"""Ways of presenting a token; the second one is used by openpi's clients."""

_SHORTEST_TOKEN = 16


@dataclass(frozen=True)
class Access:
    """Where a server listens, and what it asks of clients.

    Attributes:
        host: Address, such as 127.0.0.1.
        port: Port; 0 takes a free one.
        token: Token that clients must present; None asks for none.
        certificate, key: PEM files of the certificate and its key; None speaks without TLS.

    Raises:
        ConfigError: Others than this machine could reach the server without a token, or would send
            it in plain text; or the token cannot be sent, or is short.
    """

    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = None
    certificate: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        """Checks that strangers cannot reach the server."""
        if not 0 <= self.port < 2**16:
            raise ConfigError(f"A port is a number from 0 to 65535; given: {self.port}.")
        if self.token is not None:
            _require_token(self.token)
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("A certificate and its key are given together.")
        if not is_loopback(self.host) and (self.token is None or self.certificate is None):
            raise ConfigError(
                f"Others than this machine can reach {self.host!r}. Give a token (in a file, or in "
                f"the environment variable {TOKEN_VARIABLE}), and a certificate with its key; or "
                "listen on 127.0.0.1, and let clients come through an SSH tunnel."
            )

    def admits(self, authorization: str | None) -> bool:
        """Whether a client may speak, by the header `Authorization` of its request."""
        if self.token is None:
            return True
        given = (authorization or "").encode(errors="replace")
        known = [f"{scheme} {self.token}".encode() for scheme in SCHEMES]
        return any([hmac.compare_digest(given, each) for each in known])

    def tls(self) -> ssl.SSLContext | None:
        """Returns the server's side of TLS; None if it speaks without.

        Raises:
            ConfigError: The certificate or its key cannot be read, or they do not fit.
        """
        if self.certificate is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"{self.certificate} and {self.key} are no certificate with its key, in PEM: "
                f"{error}."
            ) from None
        return context


def is_loopback(host: str) -> bool:
    """Whether an address is one of this machine that no other machine can reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_token(path: Path | None = None) -> str | None:
    """Returns the token in a file, or else in `TOKEN_VARIABLE`; None if there is neither.

    Raises:
        ConfigError: The file cannot be read, or holds no token.
    """
    if path is None:
        token = os.environ.get(TOKEN_VARIABLE)
    else:
        try:
            token = path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} holds no token: {error}.") from None
    if token is not None:
        _require_token(token)
    return token


def _require_token(token: str) -> None:
    if len(token) < _SHORTEST_TOKEN or not (token.isascii() and token.isprintable()):
        raise ConfigError(
            f"A token has at least {_SHORTEST_TOKEN} characters of ASCII, such as those that "
            "`openssl rand -hex 32` prints."
        )


def require_url(url: str) -> None:
    """Checks the address of a server, before anything is sent there.

    Raises:
        ConfigError: It is no such address, or would send observations and the token to another
            machine.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"{url!r} is no address of a policy's server: {error}.") from None
    if parts.scheme not in ("ws", "wss") or not host or parts.query or parts.fragment or "@" in url:
        raise ConfigError(
            "The address of a policy's server is ws://HOST:PORT or wss://HOST:PORT; the token is "
            f"in the environment variable {TOKEN_VARIABLE}."
        )
    if parts.scheme == "ws" and not is_loopback(host):
        raise ConfigError(
            f"{host} is another machine, which is reached by wss:// (TLS); or, through an SSH "
            "tunnel, by ws://127.0.0.1:PORT."
        )
