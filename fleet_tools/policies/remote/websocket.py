"""A client's connection to the server of a policy, which leads nowhere else."""

import contextlib
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fleet_tools.policies.remote.access import (
    SCHEMES,
    TOKEN_VARIABLE,
    read_token,
    require_url,
)
from fleet_tools.policies.remote.codec import ProtocolError
from fleet_tools.policies.remote.messages import MAX_ANSWER
from fleet_tools.utils.accept_loop import quiet_logger
from fleet_tools.utils.libraries import require

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

_PORTS = {"ws": 80, "wss": 443}
_OPENING_S, _CLOSING_S = 10.0, 1.0


def open_websocket(
    url: str, timeout_s: float, scheme: str = SCHEMES[0]
) -> "AbstractContextManager[ClientConnection]":
    """Returns a context manager that connects, and closes the connection.

    The token is read from the environment variable `access.TOKEN_VARIABLE`. Certificates are
    checked against those that the system trusts, or those of OpenSSL's `SSL_CERT_FILE`.

    Args:
        url: Address, such as ws://127.0.0.1:8000.
        timeout_s: Longest time of connecting, s.
        scheme: How the token is presented, one of `access.SCHEMES`.

    Raises:
        ConfigError: It is no address that may be used, see `access.require_url`.
        MissingLibraryError: A library is absent.
    """
    require_url(url)
    for module in ("websockets", "msgpack"):
        require(module, "reach a policy's server")
    return _open(url, min(_OPENING_S, timeout_s), scheme)


def reason(error: Exception) -> str:
    """Returns in words why a connection could not be made, or ended."""
    if isinstance(error, ProtocolError):
        return f"it speaks otherwise: {error}"
    if isinstance(error, TimeoutError):
        return "it does not answer in time"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status == 401:
        return f"it asks for a token, which {TOKEN_VARIABLE} does not have"
    return f"{error}"[:500] or type(error).__name__


@contextlib.contextmanager
def _open(url: str, timeout_s: float, scheme: str) -> "Iterator[ClientConnection]":
    from websockets.sync.client import connect

    token, parts = read_token(), urlsplit(url)
    address = str(parts.hostname), parts.port or _PORTS[parts.scheme]
    with socket.create_connection(address, timeout_s) as own:
        own.settimeout(None)  # websockets 16 would read with it, also after the opening handshake
        try:
            connection = connect(
                url,
                sock=own,  # so that neither proxies nor redirects lead observations elsewhere
                proxy=None,
                additional_headers=None
                if token is None
                else {"Authorization": f"{scheme} {token}"},
                user_agent_header=None,
                compression=None,
                open_timeout=timeout_s,
                close_timeout=_CLOSING_S,
                max_size=MAX_ANSWER,
                logger=quiet_logger(),
            )
        except ValueError as error:
            raise ProtocolError(f"{error}.") from error
        except AssertionError as error:  # of websockets 16, where the request comes too late
            raise ConnectionResetError("it closes the connection at once") from error
        with connection:
            yield connection
