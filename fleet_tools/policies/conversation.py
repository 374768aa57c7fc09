"""The side of one connection where a policy acts: each request leads to one answer."""

import json
import logging
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fleet_tools.envs.array_spec import DTYPES, MAX_AXES, Layout
from fleet_tools.errors import FleetToolsError, PolicyError
from fleet_tools.policies.array_codec import ProtocolError, decode, encode
from fleet_tools.policies.policy import (
    Policy,
    begin,
    claim,
    episode_seed,
    policy_errors,
    policy_info,
)
from fleet_tools.policies.wire_messages import (
    CLOSING,
    CONTROL,
    RESET,
    Control,
    FailureCode,
    Hello,
    failure,
    read_value,
    require_arrays,
)

_LOGGER = logging.getLogger(__name__)

_LARGEST_ACTION = 4096
"""Largest size of an action of a confined policy, bytes; the environment decides about the rest."""


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
    """Reply to a request.

    Attributes:
        content: A binary message, or the text of a failure.
        closes: Whether the connection ends after it.
    """

    content: bytes | str
    closes: bool = False


class _RefusedError(Exception):
    """A request that the policy is not given.

    Args:
        code: Why.
        why: The same in words.
    """

    def __init__(self, code: FailureCode, why: object) -> None:
        super().__init__(str(why))
        self.code: FailureCode = code


class Conversation:
    """One connection: its policy, and where it is.

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
        self._last_number = -1

    def greeting(self) -> bytes:
        """Returns the metadata."""
        return encode({**self._hello.model_dump(mode="json"), "reset_entry": RESET})

    def reply(self, content: bytes | str) -> Reply:
        """Replies to a request; an invalid request gets an error message.

        Clients of openpi do not expect to go on after a failure: it ends their connections.
        """
        control: Control | None = None
        try:
            try:
                request = _read(content)
                if CONTROL in request:
                    control = read_value(Control, request.pop(CONTROL))
            except ProtocolError as error:
                raise _RefusedError("malformed", error) from None
            return Reply(encode(self._answer(request, control)))
        except _RefusedError as error:
            code, why = error.code, str(error)
        except FleetToolsError as error:  # of the policy, whatever it is
            self._acting = self._acting and control is not None and control.inform
            code, why = "policy", str(error)
            if not self._confined:
                _LOGGER.exception("The policy raised an error.")
                why = f"the policy raised {type(error.__cause__ or error).__name__}"
        closes = control is None or code in CLOSING
        return Reply(failure(code, why, 2**12 if self._confined else 500), closes)

    def _answer(self, request: dict[str, Any], control: Control | None) -> dict[str, Any]:
        begun = time.perf_counter()
        if control is None:
            observation = _cast(self._hello.observation, request)
            self._require(observation)
            again = request.get(RESET)
            if not self._acting or (isinstance(again, bool | int | np.generic) and again):
                self._reset(episode_seed(observation))
            action = self._act(observation)
            timing = {"infer_ms": 1e3 * (time.perf_counter() - begun)}
            return {"actions": action[None], "server_timing": timing}
        if control.number <= self._last_number:
            why = f"{control.number} does not come after {self._last_number}"
            raise _RefusedError("order", why)
        answer: dict[str, Any] = {"number": control.number}
        if control.inform and self._confined:
            with policy_errors("info"):
                answer["info"] = json.dumps(dict(policy_info(self._policy)), allow_nan=False)
        elif control.reset and not request:
            self._reset(0)
        elif not (control.reset or self._acting):
            raise _RefusedError(
                "order", "got act before reset; send reset first, also after an error of the policy"
            )
        else:
            self._require(request)
            if control.reset:
                self._reset(episode_seed(request))
            answer["actions"] = self._act(request)[None]
        self._last_number = control.number
        return answer

    def _require(self, observation: Mapping[str, Any]) -> None:
        if not self._confined:
            try:
                require_arrays(self._hello.observation, observation)
            except ProtocolError as error:
                raise _RefusedError("observation", error) from None

    def _reset(self, seed: int) -> None:
        self._acting = False
        with policy_errors("reset"):
            begin(self._policy, seed)
        self._acting = True

    def _act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        with policy_errors("act"):
            action = np.asarray(self._policy.act(observation))
        if not self._confined:
            require_arrays({"action": self._hello.action}, {"action": action})
        elif (
            action.dtype.name not in DTYPES
            or action.nbytes > _LARGEST_ACTION
            or action.ndim >= MAX_AXES
        ):
            what = f"an array of {action.dtype} with the shape {action.shape}"
            raise PolicyError(f"act returned {what}; expected an action of six numbers")
        return action


def _read(content: bytes | str) -> dict[str, Any]:
    if isinstance(content, str):
        raise ProtocolError("Expected a binary message; got text.")
    return decode(content)


def _cast(layout: Layout, request: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the entries that a policy reads, in its types where a request's have more bits."""
    found = {name: request[name] for name in layout if request.get(name) is not None}
    for name, value in found.items():
        dtype = layout[name].dtype
        if isinstance(value, np.ndarray) and np.can_cast(value.dtype, dtype, "same_kind"):
            with np.errstate(over="ignore"):  # is not finite then, which is refused
                found[name] = value.astype(dtype)
    return found
