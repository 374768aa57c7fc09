"""A client's side of one connection to the process of a policy, and what carries its messages."""

import contextlib
import socket
import ssl
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from fleet_tools.errors import PolicyError
from fleet_tools.policies.array_codec import ProtocolError
from fleet_tools.policies.server_access import (
    SCHEMES,
    TOKEN_VARIABLE,
    read_token,
    require_url,
)
from fleet_tools.policies.wire_messages import (
    CLOSING,
    MAX_ANSWER,
    Act,
    Acted,
    Failed,
    Hello,
    Inform,
    Informed,
    M,
    Message,
    Ready,
    Reset,
    read_message,
    require_arrays,
)
from fleet_tools.storage.strict_json import loads
from fleet_tools.utils.accept_loop import quiet_logger
from fleet_tools.utils.libraries import require
from fleet_tools.utils.tls_socket import TlsSocket

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

TIMEOUT_S = 60.0
"""Time after which a server that does not answer counts as dead, s."""

_PORTS = {"ws": 80, "wss": 443}
_OPENING_S, _CLOSING_S = 10.0, 1.0
_UNREAD = 2**15
"""Size of a message, bytes, that any connection takes before the server reads it."""


class PolicyChannel(ABC):
    """Carries messages to the process of a policy and back; its first error closes it.

    It is also closed when nobody holds it.
    """

    def __init__(self) -> None:
        self._open = contextlib.ExitStack()
        self._closed, self._why = False, "it is closed"
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

    def abort(self) -> None:
        """Closes it without a word to the other side, which may not listen."""
        self.close()

    @contextlib.contextmanager
    def exchange(self) -> Iterator[None]:
        """Encloses a request and its answer; every error closes the channel.

        Raises:
            PolicyError: The other side is not there, does not answer in time, or speaks otherwise;
                or it was so before, which has closed the channel.
        """
        if self._closed:
            raise PolicyError(self._why)
        try:
            yield
        except (OSError, EOFError, ProtocolError, *self._errors()) as error:  # and TimeoutError
            self._why = self.reason(error)
            self.abort()
            raise PolicyError(self._why) from error
        except BaseException:  # such as Ctrl-C: an answer may be on its way
            self.abort()
            raise

    def _errors(self) -> tuple[type[Exception], ...]:
        return ()


class WebSocketChannel(PolicyChannel):
    """A connection to the server of a policy, which leads nowhere else.

    The token is read from the environment variable `server_access.TOKEN_VARIABLE`. Certificates are
    checked against the ones that the system trusts, or OpenSSL's `SSL_CERT_FILE`.

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
        self._url, self._limit_s = url, min(_OPENING_S, timeout_s)
        self._why = f"The connection to the policy's server {url} is closed."
        token = read_token()
        with self.exchange():
            self._connection = self._open.enter_context(
                _connected(url, self._limit_s, scheme, token)
            )
        self._limit_s = timeout_s

    def send(self, content: bytes) -> None:
        """See `PolicyChannel`."""
        if len(content) <= _UNREAD:
            return self._connection.send(content)
        # A stopped server reads nothing, and a large message waits until it does.
        hang_up = threading.Timer(self._limit_s, self._hang_up)
        hang_up.daemon = True
        end = time.monotonic() + self._limit_s
        hang_up.start()
        try:
            self._connection.send(content)
        except self._errors() as error:
            if time.monotonic() >= end:
                raise TimeoutError from error
            raise
        finally:
            hang_up.cancel()

    def receive(self, timeout_s: float | None) -> bytes | str:
        """See `PolicyChannel`."""
        return self._connection.recv(timeout=timeout_s)

    def abort(self) -> None:
        """See `PolicyChannel`."""
        self._hang_up()
        self.close()

    def _hang_up(self) -> None:
        """Ends the connection, so that nothing waits for the server any more."""
        if connection := getattr(self, "_connection", None):  # none before it is open
            with contextlib.suppress(OSError):  # it has ended
                connection.socket.shutdown(socket.SHUT_RDWR)

    def reason(self, error: Exception) -> str:
        """See `PolicyChannel`."""
        from websockets.exceptions import ConnectionClosed

        status = getattr(getattr(error, "response", None), "status_code", None)
        if isinstance(error, ProtocolError):
            why = f"it speaks otherwise: {error}"
        elif isinstance(error, TimeoutError):
            why = (
                f"it did not answer within {self._limit_s:g} s. Look whether its process hangs or "
                "is stopped, and start it again"
            )
        elif isinstance(error, ConnectionClosed):
            why = f"the connection ended before it answered ({f'{error}'[:500]})"
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
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(socket.create_connection(address, timeout_s))
        if parts.scheme == "wss":
            secured = TlsSocket(own, ssl.create_default_context(), parts.hostname)
            stack.enter_context(secured).do_handshake()
            own = secured
        own.settimeout(None)  # websockets 16 would read with it, also after the opening handshake
        try:
            connection = connect(
                parts._replace(scheme="ws").geturl(),
                sock=own,  # so that neither proxies nor redirects lead observations elsewhere
                proxy=None,
                additional_headers=None
                if token is None
                else {"Authorization": f"{scheme} {token}"},
                user_agent_header=None,
                compression=None,
                open_timeout=timeout_s,
                close_timeout=_CLOSING_S,
                ping_interval=None,  # `timeout_s` is the limit, also of a policy that computes
                max_size=MAX_ANSWER,
                logger=quiet_logger(),
            )
        except ValueError as error:
            raise ProtocolError(f"{error}.") from error
        except AssertionError as error:  # of websockets 16, where the request comes too late
            raise ConnectionResetError("it closes the connection at once") from error
        with connection:
            yield connection


class PolicyClient:
    """The client of a policy that acts elsewhere; closed by errors that are not of one request.

    Args:
        channel: What carries its messages; closed with it.
        timeout_s: Time after which a process that does not answer counts as dead, s; None waits as
            long as it lives.
        confined: Whether this process has started the policy's, see `Served.confined`.

    Attributes:
        hello: What the policy is.

    Raises:
        PolicyError: It cannot be made, its process does not answer, or it speaks otherwise.
    """

    def __init__(
        self, channel: PolicyChannel, timeout_s: float | None = TIMEOUT_S, *, confined: bool = False
    ) -> None:
        self._channel, self._timeout_s, self._confined = channel, timeout_s, confined
        self._session, self._seq = -1, -1
        self.hello = self.ask(None, Hello)

    @classmethod
    def at(cls, url: str, timeout_s: float = TIMEOUT_S) -> "PolicyClient":
        """Returns the client of the server at an address, such as ws://127.0.0.1:8000.

        Raises:
            ConfigError, PolicyError, MissingLibraryError: See `WebSocketChannel`.
        """
        return cls(WebSocketChannel(url, timeout_s), timeout_s)

    @property
    def closed(self) -> bool:
        """Whether the connection is closed; another client is needed then."""
        return self._channel.closed

    def reset(self, seed: int = 0) -> None:
        """Asks the policy to forget the last episode.

        Args:
            seed: See `policy.begin`.

        Raises:
            PolicyError: It cannot, or its process does not answer.
        """
        self._session += 1
        session = self._session
        self.ask(Reset(session=session, seed=seed), Ready, lambda answer: answer.session == session)

    def act(self, observation: Mapping[str, np.ndarray], time_s: float) -> np.ndarray:
        """Returns the policy's action.

        It is finite, and in the bounds if the policy keeps them; a confined policy's is any array
        of numbers. Answers with the number of an earlier request are dropped.

        Args:
            observation: Arrays by name; others than those that the policy reads are not sent.
            time_s: Time of the observation since the reset, s.

        Raises:
            PolicyError: The policy cannot read the observation, or raised an error; or its process
                does not answer, or not with an action.
        """
        sent = observation
        if not self._confined:
            read = self.hello.observation
            sent = {name: observation[name] for name in read if name in observation}
            try:
                require_arrays(read, sent)
            except ProtocolError as error:
                raise PolicyError(
                    f"The observation is not what the policy reads: {error}."
                ) from None
        self._seq += 1
        seq = self._seq
        request = Act(seq=seq, time_s=time_s, observation=dict(sent))
        action = self.ask(request, Acted, lambda answer: answer.seq == seq).action
        if not self._confined:
            with self._channel.exchange():
                require_arrays({"action": self.hello.action}, {"action": action})
        return action

    def info(self) -> dict[str, Any]:
        """Returns what a confined policy stores with its episode; empty if that is no JSON object.

        Raises:
            PolicyError: Its `info` raised an error, or its process does not answer.
        """
        informed = self.ask(Inform(), Informed)
        with self._channel.exchange():
            try:
                found = loads(informed.info)
            except (ValueError, RecursionError) as error:
                raise ProtocolError("the information is not JSON") from error
        return found if isinstance(found, dict) else {}

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def ask(
        self,
        request: Message | None,
        kind: type[M],
        is_mine: Callable[[M], bool] = lambda answer: True,
    ) -> M:
        """Returns the answer to a request, or the first message.

        Args:
            request: What is asked for; None for what the other side says by itself.
            kind: Class of the answer.
            is_mine: Whether an answer is this request's; others are dropped.

        Raises:
            PolicyError: There is another answer, or none.
        """
        end = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        with self._channel.exchange():
            if request is not None:
                self._channel.send(request.to_bytes())
            while True:
                left = None if end is None else max(0.0, end - time.monotonic())
                content = self._channel.receive(left)
                answer: M | Failed = read_message(content, kind, Failed)
                if isinstance(answer, Failed) or is_mine(answer):
                    break
        if isinstance(answer, Failed):
            if answer.code in CLOSING:
                self.close()
            raise PolicyError(self._channel.told(answer))
        return answer
