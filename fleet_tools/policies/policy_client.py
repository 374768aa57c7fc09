"""Client's side of a connection to a policy's process, and the transports of its messages."""

import asyncio
import contextlib
import socket
import ssl
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import numpy as np

from fleet_tools.errors import PolicyError
from fleet_tools.policies.array_codec import ProtocolError, decode, encode
from fleet_tools.policies.server_access import (
    SCHEME,
    TOKEN_VARIABLE,
    quiet_logger,
    read_token,
    require_url,
)
from fleet_tools.policies.wire_messages import (
    CLOSING,
    CONTROL,
    MAX_ANSWER,
    Control,
    FailureCode,
    Hello,
    read_failure,
    read_value,
    require_arrays,
)
from fleet_tools.storage.strict_json import loads
from fleet_tools.utils.libraries import require

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

R = TypeVar("R")

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
    def told(self, code: FailureCode, why: str) -> str:
        """Returns in words why the other side has no other answer."""

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
        except (OSError, EOFError, ProtocolError) as error:  # and TimeoutError
            self._why = self.reason(error)
            self.abort()
            raise PolicyError(self._why) from error
        except BaseException:  # such as Ctrl-C: an answer may be on its way
            self.abort()
            raise


class WebSocketChannel(PolicyChannel):
    """A connection to the server of a policy, which leads nowhere else.

    The token is read from the environment variable `server_access.TOKEN_VARIABLE`. Certificates are
    checked against the ones that the system trusts, or OpenSSL's `SSL_CERT_FILE`. A thread answers
    the server's pings while the policy is not asked.

    Args:
        url: Address, such as ws://127.0.0.1:8000.
        timeout_s: Longest time of connecting, and of sending a message, s.

    Raises:
        ConfigError: It is no address that may be used, see `server_access.require_url`.
        PolicyError: There is no server, or it refuses the client.
        MissingLibraryError: A library is absent.
    """

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S) -> None:
        super().__init__()
        require_url(url)
        require("websockets", "reach a policy's server")
        self._url, self._limit_s = url, min(_OPENING_S, timeout_s)
        self._why = f"The connection to the policy's server {url} is closed."
        token = read_token()
        self._loop, ended = asyncio.new_event_loop(), asyncio.Event()
        connections: list[ClientConnection] = []
        threading.Thread(target=_live, args=(self._loop, ended, connections), daemon=True).start()
        self._open.callback(self._loop.call_soon_threadsafe, ended.set)
        with self.exchange():
            self._connection = self._do(_connected(url, token, self._limit_s), self._limit_s)
        connections.append(self._connection)
        self._limit_s = timeout_s

    def send(self, content: bytes) -> None:
        """See `PolicyChannel`."""
        self._do(self._connection.send(content), self._limit_s)

    def receive(self, timeout_s: float | None) -> bytes | str:
        """See `PolicyChannel`."""
        return self._do(self._connection.recv(), timeout_s)

    def abort(self) -> None:
        """See `PolicyChannel`."""
        if connection := getattr(self, "_connection", None):  # none before it is open
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(connection.transport.abort)
        self.close()

    def reason(self, error: Exception) -> str:
        """See `PolicyChannel`."""
        response = getattr(error.__cause__, "response", None)
        if isinstance(error, ProtocolError):
            why = f"protocol error: {error}"
        elif isinstance(error, TimeoutError):
            why = (
                f"it did not answer within {self._limit_s:g} s. Look whether its process hangs or "
                "is stopped, and start it again"
            )
        elif isinstance(error, EOFError):
            why = f"the connection ended before it answered ({f'{error}'[:500]})"
        elif getattr(response, "status_code", None) == 401:
            why = f"it asks for a token, which {TOKEN_VARIABLE} does not have"
        else:
            why = f"{error}"[:500] or type(error).__name__
        return f"The policy's server {self._url}: {why}"

    def told(self, code: FailureCode, why: str) -> str:
        """See `PolicyChannel`."""
        return f"The policy's server {self._url} reported {code}{': ' if why else ''}{why[:500]}"

    def _do(self, work: Coroutine[Any, Any, R], timeout_s: float | None) -> R:
        """Returns the result of work of the loop, whose errors are OSError or EOFError."""
        from websockets.exceptions import ConnectionClosed, WebSocketException

        future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, timeout_s), self._loop)
        try:
            return future.result()
        except (ConnectionClosed, CancelledError) as error:
            raise EOFError(f"{error}") from error
        except (WebSocketException, ValueError) as error:
            raise OSError(f"{error}") from error
        except BaseException:  # such as Ctrl-C
            future.cancel()
            raise


def _live(
    loop: asyncio.AbstractEventLoop, ended: asyncio.Event, connections: "list[ClientConnection]"
) -> None:
    """Runs the loop of a connection, which ends with it."""

    async def live() -> None:
        await ended.wait()
        for each in connections:
            await each.close()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(live())


async def _connected(url: str, token: str | None, timeout_s: float) -> "ClientConnection":
    from websockets.asyncio.client import connect

    parts = urlsplit(url)
    address = str(parts.hostname), parts.port or _PORTS[parts.scheme]
    secured: dict[str, Any] = {"ssl": ssl.create_default_context()} if parts.scheme == "wss" else {}
    own = socket.create_connection(address, timeout_s)
    own.setblocking(False)
    return await connect(
        url,
        sock=own,  # so that neither proxies nor redirects lead observations elsewhere
        proxy=None,
        additional_headers=None if token is None else {"Authorization": f"{SCHEME} {token}"},
        user_agent_header=None,
        compression=None,
        open_timeout=None,
        close_timeout=_CLOSING_S,
        ping_interval=None,  # the client has a limit, also for a policy that computes
        max_size=MAX_ANSWER,
        logger=quiet_logger(),
        **secured,
    )


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
        self._number = -1
        with channel.exchange():
            first = self._receive()
        metadata = self._required(first)
        with channel.exchange():
            self.hello = read_value(Hello, metadata)

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

    def reset(self) -> None:
        """Asks the policy to forget the last episode, before there is an observation.

        Raises:
            PolicyError: It cannot, or its process does not answer.
        """
        self._ask({}, reset=True)

    def act(self, observation: Mapping[str, np.ndarray], *, begins: bool = False) -> np.ndarray:
        """Returns the policy's action.

        It is finite, and in the bounds if the policy keeps them; a confined policy's is any array
        of numbers.

        Args:
            observation: Arrays by name; others than those that the policy reads are not sent.
            begins: Whether it begins an episode, whose seed then follows from what is sent.

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
                    f"The observation does not match the inputs of the policy: {error}."
                ) from None
        answer = self._ask(sent, reset=begins)
        with self._channel.exchange():
            actions = answer.get("actions")
            if not isinstance(actions, np.ndarray) or actions.shape[:1] != (1,):
                raise ProtocolError("expected an answer with a chunk of one action")
            action = actions[0, ...]
            if not self._confined:
                require_arrays({"action": self.hello.action}, {"action": action})
        return action

    def info(self) -> dict[str, Any]:
        """Returns the info of a confined policy; empty if it is not a JSON object.

        Raises:
            PolicyError: Its `info` raised an error, or its process does not answer.
        """
        informed = self._ask({}, inform=True).get("info")
        with self._channel.exchange():
            try:
                found = loads(informed if isinstance(informed, str) else "")
            except (ValueError, RecursionError) as error:
                raise ProtocolError("the information is not JSON") from error
        return found if isinstance(found, dict) else {}

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def _ask(self, observation: Mapping[str, Any], **control: Any) -> dict[str, Any]:
        """Returns the answer to a request."""
        self._number += 1
        fields = Control(number=self._number, **control).model_dump(exclude_defaults=True)
        with self._channel.exchange():
            self._channel.send(encode({**observation, CONTROL: fields}))
            answer = self._receive()
            number = answer.get("number") if isinstance(answer, dict) else self._number
            if type(number) is not int or number != self._number:
                raise ProtocolError("got the answer to another request")
        return self._required(answer)

    def _receive(self) -> dict[str, Any] | tuple[FailureCode, str]:
        """Returns the next message, or the failure that it is; in an exchange."""
        content = self._channel.receive(self._timeout_s)
        return decode(content) if isinstance(content, bytes) else read_failure(content)

    def _required(self, answer: dict[str, Any] | tuple[FailureCode, str]) -> dict[str, Any]:
        if isinstance(answer, dict):
            return answer
        if answer[0] in CLOSING:
            self.close()
        raise PolicyError(self._channel.told(*answer))
