"""The server's side of openpi's protocol: a policy of this package answers openpi's clients."""

import logging
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from fleet_tools.policies.openpi import wire
from fleet_tools.policies.remote.codec import ProtocolError
from fleet_tools.policies.remote.conversation import Reply, Served
from fleet_tools.policies.remote.messages import (
    FailureCode,
    Hello,
    largest_request,
    require_arrays,
)

_LOGGER = logging.getLogger(__name__)

RESET = "reset"
"""Name of an entry of a request that, if true, forgets the last episode before it acts."""

_EXTRA = 2**20


class OpenpiConversation:
    """One connection: each request has one action, in the form of a chunk of length 1.

    A request has the entries of the hello's observation, whose numbers may have more bits; others,
    such as a prompt, are not read. Episodes are not part of openpi's protocol: the policy begins
    one with the connection, and another one with each request in which `RESET` is true. The
    metadata are the hello's fields.

    Args:
        served: The policy.
    """

    def __init__(self, served: Served) -> None:
        self._hello = served.hello
        self._policy = served.make()
        self._policy.reset()

    @staticmethod
    def largest_request(hello: Hello) -> int:
        """Returns the largest size of a request, bytes."""
        return 8 * largest_request(hello.observation) + _EXTRA  # other bits, other entries

    @staticmethod
    def refusal(code: FailureCode, why: str) -> Reply:
        """Returns the text that a refused client is told; openpi's clients raise it."""
        return Reply(f"{code}: {why}"[:500] if why else code, closes=True)

    def greeting(self) -> bytes:
        """Returns the metadata."""
        return wire.encode({**self._hello.model_dump(mode="json"), "reset_entry": RESET})

    def reply(self, content: bytes | str) -> Reply:
        """Replies with an action, or with a text that says why not, after which it closes."""
        begin = time.perf_counter()
        try:
            request = _read(content)
            observation = _observation(self._hello, request)
        except ProtocolError as error:
            return self.refusal("observation", str(error))
        try:
            if request.get(RESET):
                self._policy.reset()
            action = np.asarray(self._policy.act(observation))
            require_arrays({"action": self._hello.action}, {"action": action})
        except Exception as error:  # of the policy, whatever it is
            _LOGGER.exception("The policy raised an error.")
            return self.refusal("policy", f"the policy raised {type(error).__name__}")
        timing = {"infer_ms": 1e3 * (time.perf_counter() - begin)}
        return Reply(wire.encode({"actions": action[None], "server_timing": timing}))


def _read(content: bytes | str) -> dict[str, Any]:
    if isinstance(content, str):
        raise ProtocolError("Not a message: text instead of bytes.")
    return wire.decode(content)


def _observation(hello: Hello, request: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Returns the entries that the policy reads, in its types."""
    found: dict[str, np.ndarray] = {}
    for name, spec in hello.observation.items():
        value = request.get(name)
        if isinstance(value, np.ndarray) and np.can_cast(value.dtype, spec.dtype, "same_kind"):
            with np.errstate(over="ignore"):  # is not finite then, which is refused
                found[name] = value.astype(spec.dtype)
        elif value is not None:
            found[name] = value
    require_arrays(hello.observation, found)
    return found
