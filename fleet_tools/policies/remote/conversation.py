"""A server's side of one connection, without the network: each request leads to one answer."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fleet_tools.policies.policy import Policy
from fleet_tools.policies.remote.codec import ProtocolError
from fleet_tools.policies.remote.messages import (
    CLOSING,
    Act,
    Acted,
    Failure,
    FailureCode,
    Hello,
    Ready,
    Reset,
    largest_request,
    read_message,
    require_arrays,
)

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class Served:
    """A policy to be served.

    Attributes:
        hello: What it is.
        make: Makes it, once for each connection; hidden state belongs to one connection.
    """

    hello: Hello
    make: Callable[[], Policy]


@dataclass(frozen=True)
class Reply:
    """What is sent for a request.

    Attributes:
        content: A binary message, or a text.
        closes: Whether the connection ends after it.
    """

    content: bytes | str
    closes: bool = False


class Dialect(Protocol):
    """A server's side of one connection in some protocol."""

    def __init__(self, served: Served) -> None: ...

    @staticmethod
    def largest_request(hello: Hello) -> int:
        """Returns the largest size of a request, bytes."""
        ...

    @staticmethod
    def refusal(code: FailureCode, why: str) -> Reply:
        """Returns what a client is told that is refused."""
        ...

    def greeting(self) -> bytes:
        """Returns the first message."""
        ...

    def reply(self, content: bytes | str) -> Reply:
        """Replies to a request, whatever it holds."""
        ...


class Conversation:
    """One connection in this package's protocol: its policy, and where it is.

    Args:
        served: The policy.
    """

    def __init__(self, served: Served) -> None:
        self._hello = served.hello
        self._policy = served.make()
        self._acting = False
        self._last_seq = -1

    @staticmethod
    def largest_request(hello: Hello) -> int:
        """Returns the largest size of a request, bytes."""
        return largest_request(hello.observation)

    @staticmethod
    def refusal(code: FailureCode, why: str) -> Reply:
        """Returns the failure that a refused client is told."""
        return Reply(_failure(code, why).to_bytes(), code in CLOSING)

    def greeting(self) -> bytes:
        """Returns the hello."""
        return self._hello.to_bytes()

    def reply(self, content: bytes | str) -> Reply:
        """Replies as `answer` does."""
        answer = self.answer(content)
        return Reply(answer.to_bytes(), isinstance(answer, Failure) and answer.code in CLOSING)

    def answer(self, content: bytes | str) -> Ready | Acted | Failure:
        """Answers a request; whatever it holds, the answer is a message.

        Details of the policy's errors are logged here, and not sent.
        """
        try:
            request = read_message(content, Reset, Act)
        except ProtocolError as error:
            return _failure("malformed", error)
        try:
            return self._reset(request) if isinstance(request, Reset) else self._act(request)
        except Exception as error:  # of the policy, whatever it is
            self._acting = False
            _LOGGER.exception("The policy raised an error.")
            return _failure("policy", f"the policy raised {type(error).__name__}")

    def _reset(self, request: Reset) -> Ready:
        self._acting = False
        self._policy.reset()
        self._acting = True
        return Ready(session=request.session)

    def _act(self, request: Act) -> Acted | Failure:
        if not self._acting:
            return _failure("order", "reset comes before act, also after an error of the policy")
        if request.seq <= self._last_seq:
            return _failure("order", f"{request.seq} does not come after {self._last_seq}")
        try:
            require_arrays(self._hello.observation, request.observation)
        except ProtocolError as error:
            return _failure("observation", error)
        self._last_seq = request.seq
        action = np.asarray(self._policy.act(request.observation))
        require_arrays({"action": self._hello.action}, {"action": action})
        return Acted(seq=request.seq, action=action)


def _failure(code: FailureCode, why: object) -> Failure:
    return Failure(code=code, message=str(why)[:500])
