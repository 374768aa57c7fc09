"""Messages of openpi's protocol, extended by episodes and deadlines.

The server begins with a map of metadata, a `Hello`. Each request is a map of an observation's
entries, and leads to one answer: a map with `actions`, (1, action), or a text that says why not. A
client has one request in flight. A client of openpi sends nothing else; the entry `reset`, if true,
begins another episode. A client of this package adds a `Control` to each request: its number, which
the answer repeats, so that no late answer is taken for another one, and whether an episode begins.
A request without an observation only resets, so that the time of a reset is in no step's deadline.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, get_args

import numpy as np
import pydantic

from fleet_tools.config.values import Number, Positive, V, Value, parse
from fleet_tools.envs.array_spec import ArraySpec, Layout, misfits
from fleet_tools.envs.observation_modes import EnvKwargs
from fleet_tools.errors import ConfigError
from fleet_tools.policies.array_codec import ProtocolError

PROTOCOL = 1
"""Version of the protocol; others are refused."""

RESET, CONTROL = "reset", "fleet_tools"
"""Names of the entries of a request that are not of its observation."""

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
"""Largest size of a message to a client, bytes."""

_Natural = Annotated[int, pydantic.Field(strict=True, ge=0, lt=2**63)]
_Text = Annotated[str, pydantic.Field(strict=True, max_length=500)]
_OTHER_ENTRIES = 2**16


class Hello(Value):
    """Description of the server's policy, its inputs and its actions.

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


class Control(Value):
    """Entries of a request beside the observation, from clients of this package.

    Attributes:
        number: Number of the request, larger than the last one's of the connection.
        reset: Whether an episode begins.
        inform: Whether a confined policy is asked for its `info` instead.
    """

    number: _Natural
    reset: Annotated[bool, pydantic.Field(strict=True)] = False
    inform: Annotated[bool, pydantic.Field(strict=True)] = False


def failure(code: FailureCode, why: object = "", most: int = 500) -> str:
    """Returns the text of a failure, of a reason that may be too long."""
    return f"{code}: {why}"[:most].encode(errors="replace").decode()


def read_failure(text: str) -> tuple[FailureCode, str]:
    """Returns the code of a failure, and its reason.

    Raises:
        ProtocolError: It is no failure of this package's servers.
    """
    code, separator, why = text.partition(": ")
    for each in get_args(FailureCode):
        if separator and code == each:
            return each, why
    raise ProtocolError(f"expected a binary answer; got text: {text[:500]}")


def read_value(kind: type[V], data: object) -> V:
    """Reads a value from a map of its fields; others are refused, but not of a `Hello`.

    Raises:
        ProtocolError: They are not its fields.
    """
    if kind is Hello and isinstance(data, dict):  # the metadata hold more
        data = {name: value for name, value in data.items() if name in kind.model_fields}
    try:
        return parse(kind, data, "The message")
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
    """Returns the largest size of a request with observations of a layout, bytes.

    Clients of openpi may send numbers of 64 bits, and other entries, such as a prompt.
    """
    numbers = sum(8 * int(np.prod(spec.shape, dtype=object)) for spec in layout.values())
    return numbers + sum(len(name.encode()) + 256 for name in layout) + _OTHER_ENTRIES
