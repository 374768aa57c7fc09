"""Policies in processes of their own, which see observations and nothing else.

The process is new and not forked, and has no environment: it is sent the interface of one, then
observations. Its answers are treated as a policy server's, so that nothing it sends is run here.
This keeps a policy from what it must not see by any ordinary means; it is no sandbox, since the
process has its user's rights.
"""

import pickle
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from fleet_tools.config.values import Value
from fleet_tools.envs.array_spec import describe_action, describe_observation
from fleet_tools.envs.observation_modes import EnvKwargs
from fleet_tools.envs.recorded_env import EnvInterface
from fleet_tools.errors import FleetToolsError, PolicyError
from fleet_tools.parallel.backend import SAME_HASHES, begin_alike
from fleet_tools.parallel.child_process import ChildProcess
from fleet_tools.policies.array_codec import ProtocolError, decode, encode
from fleet_tools.policies.conversation import Conversation, Served
from fleet_tools.policies.policy import NeverCopied, policy_errors
from fleet_tools.policies.policy_client import PolicyChannel, PolicyClient
from fleet_tools.policies.sources import Kind, PolicySource, find_policy, is_address
from fleet_tools.policies.wire_messages import (
    MAX_ANSWER,
    FailureCode,
    Hello,
    failure,
    read_failure,
    read_value,
)

_TEXT = b"\xc1"
"""First byte of a text on the pipe, which is none of msgpack."""

_GRACE_S = 1.0
"""Time, s, in which the process ends once it has closed its connection."""


class ConfinedPolicy(NeverCopied):
    """A policy that acts in a process of its own.

    Args:
        source: The policy's source.
        interface: The interface of the environment in which it is to act.
        seed: See `PolicySource.make`.
    """

    def __init__(self, source: PolicySource, interface: EnvInterface, seed: int = 0) -> None:
        self._job = "act", source, interface, seed
        self._client: PolicyClient | None = None

    def reset(self, seed: int = 0) -> None:
        """Resets the policy, and makes it anew if its process has ended.

        Args:
            seed: See `policy.begin`.

        Raises:
            PolicyError: It cannot be made, or raised an error.
        """
        if self._client is None or self._client.closed:
            self._client = None
            self._client = PolicyClient(PolicyProcess(*self._job), None, confined=True)
        self._client.reset(seed)

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns the policy's action; whether it is valid, the environment decides.

        Raises:
            PolicyError: It raised an error, returned no numbers, or its process has ended.
        """
        if self._client is None:
            raise PolicyError("reset() comes before act()")
        return self._client.act(observation)

    @property
    def info(self) -> dict[str, Any]:
        """The policy's `info`."""
        return {} if self._client is None or self._client.closed else self._client.info()


def find_policy_apart(source: str) -> PolicySource:
    """Finds a policy, see `find_policy`; modules of others are imported in another process."""
    if ":" not in source or is_address(source):
        return find_policy(source)
    process = PolicyProcess("find", source)
    with process.exchange():
        told = process.receive(None)
        if isinstance(told, str):
            raise PolicyError(process.told(*read_failure(told)))
        found = read_value(_Found, decode(told))
    process.close()
    return PolicySource(found.kind, source, found.content_digest, dict(found.env_kwargs))


class PolicyProcess(PolicyChannel):
    """A process that finds a policy, or makes one and lets it act; it ends with this object.

    Args:
        job: What it is to do: "find" and a name, or "act" and what `ConfinedPolicy` is given.
    """

    def __init__(self, *job: Any) -> None:
        super().__init__()
        self._process = ChildProcess(__name__, variables=SAME_HASHES)
        self._open.callback(self._process.end)
        with self.exchange():
            self.send(pickle.dumps(job))

    @property
    def closed(self) -> bool:
        """Whether the process has ended."""
        return super().closed or self._process.ended

    @property
    def pid(self) -> int:
        """Process identifier."""
        return self._process.pid

    def send(self, content: bytes) -> None:
        """See `PolicyChannel`."""
        self._process.connection.send_bytes(content)

    def receive(self, timeout_s: float | None) -> bytes | str:
        """See `PolicyChannel`."""
        if timeout_s is not None and not self._process.connection.poll(timeout_s):
            raise TimeoutError
        content = self._process.connection.recv_bytes(MAX_ANSWER)
        is_text = content.startswith(_TEXT)
        return content[1:].decode(errors="replace") if is_text else content

    def reason(self, error: Exception) -> str:
        """See `PolicyChannel`."""
        if isinstance(error, ProtocolError):
            self._process.kill()
            return "the policy's process answered something else"
        ending = self._process.end(_GRACE_S)  # it may have closed the connection, and live on
        return f"the policy's process ended with {ending}"

    def told(self, code: FailureCode, why: str) -> str:
        """See `PolicyChannel`."""
        return why


# --- The process ----------------------------------------------------------------------------


class _Found(Value):
    """What a policy's source is, see `PolicySource`."""

    kind: Kind
    content_digest: str | None
    env_kwargs: EnvKwargs


def main(connection: Connection) -> None:
    """Does what it is told first, then answers requests until the connection is closed."""
    begin_alike()
    # What comes first is of the process that started this one, in whose name this one acts.
    job, *arguments = pickle.loads(connection.recv_bytes())
    try:
        if job == "find":
            found = find_policy(*arguments)
            fields = _Found(
                kind=found.kind, content_digest=found.content_digest, env_kwargs=found.env_kwargs
            )
            return _send(connection, encode(fields.model_dump(mode="json")))
        conversation = Conversation(_served(*arguments))
    except FleetToolsError as error:
        return _send(connection, failure("policy", error, most=2**12))
    _send(connection, conversation.greeting())
    while True:
        try:
            request = connection.recv_bytes()
        except (EOFError, OSError):
            return
        _send(connection, conversation.reply(request).content)


def _send(connection: Connection, content: bytes | str) -> None:
    connection.send_bytes(_TEXT + content.encode() if isinstance(content, str) else content)


def _served(source: PolicySource, interface: EnvInterface, seed: int) -> Served:
    with policy_errors("making it"):
        policy = source.make(interface, seed)  # pyright: ignore[reportArgumentType]
    hello = Hello(
        policy=source.name[:500],
        blueprint_digest="",
        content_digest=source.content_digest or "",
        observation=describe_observation(interface),
        action=describe_action(interface),
        control_period_s=1.0 / float(interface.metadata["render_fps"]),
        env_kwargs=source.env_kwargs,
    )
    return Served(hello, lambda: policy, confined=True)
