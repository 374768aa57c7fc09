"""A client's side of one connection to the process of a policy."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fleet_tools.errors import PolicyError
from fleet_tools.policies.array_codec import ProtocolError
from fleet_tools.policies.channel import TIMEOUT_S, PolicyChannel, WebSocketChannel
from fleet_tools.policies.wire_messages import (
    CLOSING,
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


class PolicyClient:
    """The client of a policy that acts elsewhere; closed by errors that are not of one request.

    Args:
        channel: What carries its messages; closed with it.
        timeout_s: Time after which a process that does not answer counts as dead, s; None waits as
            long as it lives.
        confined: Whether this process has started that of the policy, see `Served.confined`.

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

    def reset(self) -> None:
        """Asks the policy to forget the last episode.

        Raises:
            PolicyError: It cannot, or its process does not answer.
        """
        self._session += 1
        session = self._session
        self.ask(Reset(session=session), Ready, lambda answer: answer.session == session)

    def act(self, observation: Mapping[str, np.ndarray], time_s: float) -> np.ndarray:
        """Returns the policy's action.

        It is finite, and in the bounds if the policy keeps them; that of a confined policy is any
        array of numbers. Answers with the number of an earlier request are dropped.

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
            is_mine: Whether an answer is that of this request; others are dropped.

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
