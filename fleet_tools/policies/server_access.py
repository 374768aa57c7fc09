"""Tokens, addresses and the log of policy servers."""

import hmac
import ipaddress
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from fleet_tools.errors import ConfigError

TOKEN_VARIABLE = "FLEET_TOOLS_POLICY_TOKEN"
"""Environment variable with the token of a policy's server; command lines are seen by others."""

SCHEME = "Api-Key"
"""Prefix of a token in the header, as in openpi."""

_SHORTEST_TOKEN = 16


def admits(token: str, authorizations: Sequence[str]) -> bool:
    """Whether a client has the token, by the headers `Authorization` of its request."""
    given = authorizations[0] if len(authorizations) == 1 else ""
    return hmac.compare_digest(given.encode(errors="replace"), f"{SCHEME} {token}".encode())


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
        require_token(token)
    return token


def require_token(token: str) -> None:
    """Checks that a token can be sent, and not be guessed.

    Raises:
        ConfigError: It cannot, or is short.
    """
    if len(token) < _SHORTEST_TOKEN or not (token.isascii() and token.isprintable()):
        raise ConfigError(
            f"Expected a token of at least {_SHORTEST_TOKEN} ASCII characters. Make one by "
            "`openssl rand -hex 32`."
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
        raise ConfigError(f"{url!r} is not an address of a policy server: {error}.") from None
    if parts.scheme not in ("ws", "wss") or not host or parts.query or parts.fragment or "@" in url:
        raise ConfigError(
            "Expected ws://HOST:PORT or wss://HOST:PORT as the address of a policy server. Put the "
            f"token into the environment variable {TOKEN_VARIABLE}."
        )
    if parts.scheme == "ws" and not is_loopback(host):
        raise ConfigError(
            f"{host} is another machine, and ws:// is not encrypted. Use wss:// (TLS), or an SSH "
            "tunnel and ws://127.0.0.1:PORT."
        )


def quiet_logger() -> logging.Logger:
    """Returns a logger that says nothing of others who do not speak the protocol, or leave."""
    logger = logging.getLogger(f"{__name__}.websockets")
    logger.setLevel(logging.CRITICAL)
    return logger
