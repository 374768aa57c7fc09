"""A client's side of one connection to a policy's server."""

import contextlib
import time
import weakref
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from fleet_tools.errors import PolicyError
from fleet_tools.policies.remote.codec import ProtocolError
from fleet_tools.policies.remote.messages import (
    CLOSING,
    Act,
    Acted,
    Failure,
    FailureCode,
    Hello,
    M,
    Ready,
    Reset,
    read_message,
    require_arrays,
)
from fleet_tools.policies.remote.websocket import open_websocket, reason

TIMEOUT_S = 60.0
"""Time after which a server that does not answer counts as dead, s."""


class PolicyConnection:
    """A connection to a policy's server; closed by the first error that is not of one request.

    The token is read from the environment variable `access.TOKEN_VARIABLE`. Certificates are
    checked against those that the system trusts, or those of OpenSSL's `SSL_CERT_FILE`.

    Args:
        url: Address, such as ws://127.0.0.1:8000.
        timeout_s: Time after which a server that does not answer counts as dead, s.

    Attributes:
        hello: What the server's policy is.
        closed: Whether it is closed; another one is needed then.

    Raises:
        ConfigError: It is no address that may be used, see `access.require_url`.
        PolicyError: There is no server, it refuses the client, or it speaks otherwise.
        MissingLibraryError: A library is absent.
    """

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S) -> None:
        self._url, self._timeout_s = url, timeout_s
        self._session, self._seq = -1, -1
        self.closed = False
        self._open = contextlib.ExitStack()
        weakref.finalize(self, self._open.close)  # its thread lives on otherwise
        opening = open_websocket(url, timeout_s)
        with self._errors():
            self._connection = self._open.enter_context(opening)
            self.hello = self._receive(Hello, timeout_s)

    def reset(self) -> None:
        """Asks the policy to forget the last episode.

        Raises:
            PolicyError: It cannot, or the server does not answer.
        """
        self._session += 1
        with self._errors():
            self._connection.send(Reset(session=self._session).to_bytes())
            self._answer(Ready, lambda answer: answer.session == self._session)

    def act(self, observation: Mapping[str, np.ndarray], time_s: float) -> np.ndarray:
        """Returns the policy's action, which is finite, and in the bounds if the policy keeps them.

        Answers with the number of an earlier request are dropped.

        Args:
            observation: Arrays by name; others than those that the policy reads are not sent.
            time_s: Time of the observation since the reset, s.

        Raises:
            PolicyError: The policy cannot read the observation, or raised an error; or the server
                does not answer, or not with an action.
        """
        sent = {name: observation[name] for name in self.hello.observation if name in observation}
        try:
            require_arrays(self.hello.observation, sent)
        except ProtocolError as error:
            raise PolicyError(f"The observation is not what the policy reads: {error}.") from None
        self._seq += 1
        with self._errors():
            request = Act(seq=self._seq, time_s=time_s, observation=sent)
            self._connection.send(request.to_bytes())
            action = self._answer(Acted, lambda answer: answer.seq == self._seq).action
            require_arrays({"action": self.hello.action}, {"action": action})
        return action

    def close(self) -> None:
        """Closes the connection."""
        self.closed = True
        self._open.close()

    def _answer(self, kind: type[M], is_mine: Callable[[M], bool]) -> M:
        end = time.monotonic() + self._timeout_s
        while True:
            answer = self._receive(kind, end - time.monotonic())
            if is_mine(answer):
                return answer

    def _receive(self, kind: type[M], timeout_s: float) -> M:
        content = self._connection.recv(timeout=max(0.0, timeout_s))
        answer: M | Failure = read_message(content, kind, Failure)
        if isinstance(answer, Failure):
            raise _RefusalError(answer.code, answer.message)
        return answer

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Closes the connection after an error, unless it is of one request alone."""
        from websockets.exceptions import WebSocketException

        try:
            yield
        except _RefusalError as refusal:
            if refusal.code in CLOSING:
                self.close()
            raise PolicyError(f"The policy's server {self._url} says {refusal}") from None
        except (OSError, WebSocketException, ProtocolError) as error:  # and TimeoutError
            self.close()
            raise PolicyError(f"The policy's server {self._url}: {reason(error)}") from error
        except BaseException:  # such as Ctrl-C: an answer may be on its way
            self.close()
            raise


class _RefusalError(Exception):
    def __init__(self, code: FailureCode, message: str) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
