"""What a client and the process of a policy say to each other, as values.

    process of the policy           client
    Hello                           once, after the connection is made
                                    Reset(session, seed)
    Ready(session)
                                    Act(seq, time_s, observation)
    Acted(seq, action)              or Failed(code, message)

A client has one request in flight. Sequence numbers grow over the whole connection, so that an
answer belongs to one request alone. A confined policy is also asked what it reports:

                                    Inform()
    Informed(info)
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import pydantic

from fleet_tools.config.values import Number, Positive, Value, parse
from fleet_tools.envs.array_spec import ArraySpec, Layout, misfits
from fleet_tools.envs.observation_modes import EnvKwargs
from fleet_tools.errors import ConfigError
from fleet_tools.policies.array_codec import ProtocolError, decode, encode

PROTOCOL = 1
"""Version of the protocol; others are refused."""

FailureCode = Literal["malformed", "busy", "full", "observation", "order", "policy"]
"""Why a request has no other answer; the first three end the connection.

malformed: the bytes are not a request. busy: a request came before the last one was answered. full:
there are too many connections. observation: it is not what the policy reads, or not finite. order:
an act before a reset or after an error of the policy, or a number that does not grow. policy: the
policy raised an error.
"""

CLOSING: tuple[FailureCode, ...] = ("malformed", "busy", "full")
"""Failures after which the connection is closed."""

MAX_ANSWER = 2**20
"""Largest size of what is sent to a client, bytes."""

_Number = Annotated[int, pydantic.Field(strict=True, ge=0, lt=2**63)]
_Text = Annotated[str, pydantic.Field(strict=True, max_length=500)]
_MAX_REASON = 4096


class Message(Value):
    """Something that is said; its name on the wire is its class's in small letters."""

    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)

    def to_bytes(self) -> bytes:
        """Returns the message as bytes."""
        return encode({"type": type(self).__name__.lower(), **self._fields()})

    def _fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).model_fields}


class Hello(Message):
    """What the server's policy is, and what it reads and returns.

    Attributes:
        protocol: `PROTOCOL`.
        policy: Name of the policy, for people.
        blueprint_digest: Hash of everything of the policy but its weights.
        content_digest: Hash of the checkpoint's file, as `PolicySource.content_digest`.
        observation: Layout of the entries that it reads, by name.
        action: Layout of its actions; `scale` is the motion that 1 stands for.
        action_bounds: Least and largest entry of an action.
        control_period_s: Time from one action to the next, s.
        env_kwargs: Keyword arguments of the environment whose observations it reads.
    """

    protocol: Literal[1] = PROTOCOL
    policy: _Text
    blueprint_digest: _Text
    content_digest: _Text
    observation: dict[str, ArraySpec]
    action: ArraySpec
    action_bounds: tuple[Number, Number] = (-1.0, 1.0)
    control_period_s: Positive
    env_kwargs: EnvKwargs = {}

    def _fields(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


class Reset(Message):
    """Asks the policy to forget the last episode; the answer is `Ready` with the same number.

    Attributes:
        session: Number of the request.
        seed: Seed of the episode, see `policy.begin`.
    """

    session: _Number
    seed: _Number = 0


class Ready(Message):
    """The policy has forgotten the last episode."""

    session: _Number


class Act(Message):
    """Asks for an action; the answer is `Acted` with the same number.

    Attributes:
        seq: Number of the request.
        time_s: Time of the observation since the reset, s.
        observation: Arrays by name, exactly the hello's.
    """

    seq: _Number
    time_s: Annotated[float, pydantic.Field(strict=True)]
    observation: dict[str, np.ndarray]


class Acted(Message):
    """The action that an observation led to."""

    seq: _Number
    action: np.ndarray


class Inform(Message):
    """Asks a confined policy for its `info`; the answer is `Informed`."""


class Informed(Message):
    """What a policy stores with its episode.

    Attributes:
        info: A JSON object.
    """

    info: Annotated[str, pydantic.Field(strict=True)]


class Failed(Message):
    """Why a request has no other answer; policies' servers tell strangers at most 500 letters."""

    code: FailureCode
    message: Annotated[str, pydantic.Field(strict=True, max_length=_MAX_REASON)] = ""

    @classmethod
    def because(cls, code: FailureCode, why: object, most: int = 500) -> "Failed":
        """Returns a failure with a reason that may be too long."""
        return cls(code=code, message=str(why)[: min(most, _MAX_REASON)])


M = TypeVar("M", bound=Message)


def read_message(content: bytes | str, *kinds: type[M]) -> M:
    """Reads a message of one of some classes.

    Raises:
        ProtocolError: It is none of them.
    """
    if isinstance(content, str):
        raise ProtocolError("Not a message: text instead of bytes.")
    data = decode(content)
    name = data.pop("type", None)
    by_name = {each.__name__.lower(): each for each in kinds}
    kind = by_name.get(name) if isinstance(name, str) else None  # an array equals nothing
    if kind is None:
        raise ProtocolError(f"The message is none of: {', '.join(by_name)}.")
    return read_fields(kind, data)


def read_fields(kind: type[M], data: Mapping[str, Any]) -> M:
    """Reads a message of one class from its fields; others are refused, but not of a `Hello`.

    Raises:
        ProtocolError: They are not its fields.
    """
    if kind is Hello:  # openpi's metadata hold more
        data = {name: value for name, value in data.items() if name in kind.model_fields}
    try:
        return parse(kind, dict(data), "The message")
    except ConfigError as error:
        raise ProtocolError(str(error)[:500]) from None


def require_arrays(layout: Layout, arrays: Mapping[str, np.ndarray]) -> None:
    """Checks that arrays are exactly a layout's, and finite but for depth where nothing is seen.

    Raises:
        ProtocolError: They are not; the message names every difference.
    """
    found = misfits(layout, arrays)
    found += [f"{name[:80]!r} is not asked for" for name in arrays if name not in layout]
    if not found:
        found = [
            f"{name!r} is not finite"
            for name, spec in layout.items()
            if not np.isfinite(arrays[name]).all()
            and (spec.kind != "depth" or not (arrays[name] >= 0).all())
        ]
    if found:
        raise ProtocolError("; ".join(found)[:500])


def largest_request(layout: Layout) -> int:
    """Returns the largest size of a request with observations of a layout, bytes."""
    numbers = sum(
        int(np.prod(spec.shape, dtype=object)) * np.dtype(spec.dtype).itemsize
        for spec in layout.values()
    )
    around = sum(len(name.encode()) + 256 for name in layout)
    return numbers + around + 1024
