"""Policies in processes of their own, which see observations and nothing else.

The process is new and not forked, and has no environment: it is sent the interface of one, then
observations. It answers with JSON, so that nothing it sends is run here. This keeps a policy from
what it must not see by any ordinary means; it is no sandbox, since the process has its user's
rights.
"""

import pickle
import weakref
from typing import Any

import numpy as np

from fleet_tools.envs.recorded_env import EnvInterface
from fleet_tools.errors import FleetToolsError, PolicyError
from fleet_tools.parallel.child_process import ChildProcess
from fleet_tools.policies import confined_process
from fleet_tools.policies.confined_replies import GarbledReplyError, read_action, read_reply
from fleet_tools.policies.policy import NeverCopied
from fleet_tools.policies.sources import PolicySource, find_policy, is_address

LONGEST_REPLY = 2**20
"""Largest size of an answer, bytes."""

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
        self._source, self._interface, self._seed = source, interface, seed
        self._process: PolicyProcess | None = None

    def reset(self) -> None:
        """Resets the policy, and makes it anew if its process has ended.

        Raises:
            PolicyError: It cannot be made, or raised an error.
        """
        if self._process is None or self._process.ended:
            self._process = PolicyProcess()
            try:
                self._process.ask("make", self._source, self._interface, self._seed)
            except PolicyError:
                self._process = None
                raise
        self._process.ask("reset")

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns the policy's action; whether it is valid, the environment decides.

        Raises:
            PolicyError: It raised an error, returned no numbers, or its process has ended.
        """
        if self._process is None:
            raise PolicyError("reset() comes before act()")
        return read_action(self._process.ask("act", observation))

    @property
    def info(self) -> dict[str, Any]:
        """The policy's `info`."""
        if self._process is None or self._process.ended:
            return {}
        found = self._process.ask("info")
        return found if isinstance(found, dict) else {}


def find_policy_apart(source: str) -> PolicySource:
    """Finds a policy, see `find_policy`; modules of others are imported in another process."""
    if ":" not in source or is_address(source):
        return find_policy(source)
    kind, digest, env_kwargs = PolicyProcess().ask("find", source)
    return PolicySource(kind, source, digest, env_kwargs)


class PolicyProcess:
    """A process that makes a policy and lets it act; it ends with this object."""

    def __init__(self) -> None:
        self._process = ChildProcess(confined_process.__name__)
        weakref.finalize(self, self._process.end)

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.ended

    def ask(self, request: str, *arguments: Any) -> Any:
        """Returns the answer to a request, plain data.

        Raises:
            PolicyError: The policy raised an error, or its process has ended.
            FleetToolsError: An error of this package, such as an unknown name.
        """
        self._send((request, *arguments))
        try:
            content = self._process.connection.recv_bytes(LONGEST_REPLY)
        except (OSError, EOFError) as lost:
            raise self._lost() from lost
        try:
            return read_reply(content)
        except GarbledReplyError:
            self._process.kill()
            raise

    def _send(self, message: Any) -> None:
        try:
            self._process.connection.send_bytes(pickle.dumps(message))
        except OSError as lost:
            raise self._lost() from lost

    def _lost(self) -> FleetToolsError:
        ending = self._process.end(_GRACE_S)  # it may have closed the connection, and live on
        return PolicyError(f"the policy's process ended with {ending}")
