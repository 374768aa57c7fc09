"""The side of one connection where a policy acts: each request leads to one answer."""

import json
import logging
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fleet_tools.envs.array_spec import DTYPES
from fleet_tools.errors import FleetToolsError, PolicyError
from fleet_tools.policies.array_codec import ProtocolError
from fleet_tools.policies.policy import Policy, begin, claim, policy_errors, policy_info
from fleet_tools.policies.wire_messages import (
    CLOSING,
    Act,
    Acted,
    Failed,
    FailureCode,
    Hello,
    Inform,
    Informed,
    Ready,
    Reset,
    largest_request,
    read_message,
    require_arrays,
)

_LOGGER = logging.getLogger(__name__)

_LARGEST_ACTION = 4096
"""Largest size of an action of a confined policy, bytes; the environment decides about the rest."""

Request = Reset | Act | Inform
Answer = Ready | Acted | Informed | Failed


@dataclass(frozen=True)
class Served:
    """A policy that acts for clients.

    Attributes:
        hello: What it is.
        make: Makes it, once for each connection; hidden state belongs to one connection.
        confined: Whether its client is the process that started this one, whose environment judges
            the actions. Then arrays are not compared with the hello, and errors are told in full.
    """

    hello: Hello
    make: Callable[[], Policy]
    confined: bool = False


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
    """The policy's side of one connection in some protocol."""

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

    Raises:
        PolicyError: `served.make` returned the policy of another connection.
    """

    def __init__(self, served: Served) -> None:
        self._hello, self._confined = served.hello, served.confined
        self._policy = served.make()
        weakref.finalize(self, claim(self._policy))
        self._acting = False
        self._last_seq = -1

    @staticmethod
    def largest_request(hello: Hello) -> int:
        """Returns the largest size of a request, bytes."""
        return largest_request(hello.observation)

    @staticmethod
    def refusal(code: FailureCode, why: str) -> Reply:
        """Returns the failure that a refused client is told."""
        return _reply(Failed.because(code, why))

    def greeting(self) -> bytes:
        """Returns the hello."""
        return self._hello.to_bytes()

    def reply(self, content: bytes | str) -> Reply:
        """Replies to a request; whatever it holds, the reply is a message."""
        kinds: tuple[type[Any], ...] = (Reset, Act, Inform) if self._confined else (Reset, Act)
        try:
            request = read_message(content, *kinds)
        except ProtocolError as error:
            return _reply(Failed.because("malformed", error))
        return _reply(self.answer(request))

    def answer(self, request: Request) -> Answer:
        """Answers a request; details of the policy's errors are logged here, and not sent."""
        try:
            match request:
                case Reset():
                    return self._reset(request)
                case Act():
                    return self._act(request)
            with policy_errors("info"):
                info = json.dumps(dict(policy_info(self._policy)), allow_nan=False)
            return Informed(info=info)
        except FleetToolsError as error:  # of the policy, whatever it is
            self._acting = self._acting and isinstance(request, Inform)
            if self._confined:
                return Failed.because("policy", error, most=2**12)
            _LOGGER.exception("The policy raised an error.")
            return Failed.because(
                "policy", f"the policy raised {type(error.__cause__ or error).__name__}"
            )

    def _reset(self, request: Reset) -> Ready:
        self._acting = False
        with policy_errors("reset"):
            begin(self._policy, request.seed)
        self._acting = True
        return Ready(session=request.session)

    def _act(self, request: Act) -> Acted | Failed:
        if not self._acting:
            why = "reset comes before act, also after an error of the policy"
            return Failed.because("order", why)
        if request.seq <= self._last_seq:
            return Failed.because("order", f"{request.seq} does not come after {self._last_seq}")
        if not self._confined:
            try:
                require_arrays(self._hello.observation, request.observation)
            except ProtocolError as error:
                return Failed.because("observation", error)
        self._last_seq = request.seq
        with policy_errors("act"):
            action = np.asarray(self._policy.act(request.observation))
        if self._confined:
            _require_numbers(action)
        else:
            require_arrays({"action": self._hello.action}, {"action": action})
        return Acted(seq=request.seq, action=action)


def _require_numbers(action: np.ndarray) -> None:
    if action.dtype.name not in DTYPES or action.nbytes > _LARGEST_ACTION:
        what = f"an array of {action.dtype} with the shape {action.shape}"
        raise PolicyError(f"act returned {what}; an action is six numbers")


def _reply(answer: Answer) -> Reply:
    return Reply(answer.to_bytes(), isinstance(answer, Failed) and answer.code in CLOSING)
