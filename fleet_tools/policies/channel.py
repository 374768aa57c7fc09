"""What carries a client's messages to the process of a policy; here over WebSocket.

The other one is the pipe to a confined policy, see `fleet_tools.policies.confined`.
"""

import contextlib
import socket
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fleet_tools.errors import PolicyError
from fleet_tools.policies.array_codec import ProtocolError
from fleet_tools.policies.server_access import (
    SCHEMES,
    TOKEN_VARIABLE,
    read_token,
    require_url,
)
from fleet_tools.policies.wire_messages import MAX_ANSWER, Failed
from fleet_tools.utils.accept_loop import quiet_logger
from fleet_tools.utils.libraries import require

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

TIMEOUT_S = 60.0
"""Time after which a server that does not answer counts as dead, s."""

_PORTS = {"ws": 80, "wss": 443}
_OPENING_S, _CLOSING_S = 10.0, 1.0


class PolicyChannel(ABC):
    """Carries messages to the process of a policy and back; its first error closes it.

    It is also closed when nobody holds it.
    """

    def __init__(self) -> None:
        self._open = contextlib.ExitStack()
        self._closed = False
        weakref.finalize(self, self._open.close)  # a thread or process would live on otherwise

    @property
    def closed(self) -> bool:
        """Whether it is closed; another one is needed then."""
        return self._closed

    @abstractmethod
    def send(self, content: bytes) -> None:
        """Sends a message."""

    @abstractmethod
    def receive(self, timeout_s: float | None) -> bytes | str:
        """Returns the next message, of at most `MAX_ANSWER` bytes.

        Args:
            timeout_s: Longest time to wait, s; None waits as long as the other side lives.
        """

    @abstractmethod
    def reason(self, error: Exception) -> str:
        """Returns in words why an exchange failed."""

    @abstractmethod
    def told(self, failed: Failed) -> str:
        """Returns in words what the other side says why it has no other answer."""

    def close(self) -> None:
        """Closes it."""
        self._closed = True
        self._open.close()

    @contextlib.contextmanager
    def exchange(self) -> Iterator[None]:
        """Encloses a request and its answer; every error closes the channel.

        Raises:
            PolicyError: The other side is not there, does not answer in time, or speaks otherwise.
        """
        try:
            yield
        except (OSError, EOFError, ProtocolError, *self._errors()) as error:  # and TimeoutError
            reason = self.reason(error)
            self.close()
            raise PolicyError(reason) from error
        except BaseException:  # such as Ctrl-C: an answer may be on its way
            self.close()
            raise

    def _errors(self) -> tuple[type[Exception], ...]:
        return ()


class WebSocketChannel(PolicyChannel):
    """A connection to the server of a policy, which leads nowhere else.

    The token is read from the environment variable `server_access.TOKEN_VARIABLE`. Certificates are
    checked against those that the system trusts, or those of OpenSSL's `SSL_CERT_FILE`.

    Args:
        url: Address, such as ws://127.0.0.1:8000.
        timeout_s: Longest time of connecting, s.
        scheme: How the token is presented, one of `server_access.SCHEMES`.

    Raises:
        ConfigError: It is no address that may be used, see `server_access.require_url`.
        PolicyError: There is no server, or it refuses the client.
        MissingLibraryError: A library is absent.
    """

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S, scheme: str = SCHEMES[0]) -> None:
        super().__init__()
        require_url(url)
        require("websockets", "reach a policy's server")
        self._url = url
        token = read_token()
        with self.exchange():
            self._connection = self._open.enter_context(
                _connected(url, min(_OPENING_S, timeout_s), scheme, token)
            )

    def send(self, content: bytes) -> None:
        """See `PolicyChannel`."""
        self._connection.send(content)

    def receive(self, timeout_s: float | None) -> bytes | str:
        """See `PolicyChannel`."""
        return self._connection.recv(timeout=timeout_s)

    def reason(self, error: Exception) -> str:
        """See `PolicyChannel`."""
        status = getattr(getattr(error, "response", None), "status_code", None)
        if isinstance(error, ProtocolError):
            why = f"it speaks otherwise: {error}"
        elif isinstance(error, TimeoutError):
            why = "it does not answer in time"
        elif status == 401:
            why = f"it asks for a token, which {TOKEN_VARIABLE} does not have"
        else:
            why = f"{error}"[:500] or type(error).__name__
        return f"The policy's server {self._url}: {why}"

    def told(self, failed: Failed) -> str:
        """See `PolicyChannel`."""
        said = f"{failed.code}: {failed.message[:500]}" if failed.message else failed.code
        return f"The policy's server {self._url} says {said}"

    def _errors(self) -> tuple[type[Exception], ...]:
        from websockets.exceptions import WebSocketException

        return (WebSocketException,)


@contextlib.contextmanager
def _connected(
    url: str, timeout_s: float, scheme: str, token: str | None
) -> "Iterator[ClientConnection]":
    from websockets.sync.client import connect

    parts = urlsplit(url)
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
