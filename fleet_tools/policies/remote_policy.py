"""Policies behind a socket: blocking clients for simulation, deadline clients for robots.

For a robot, in each control step `act` returns before its deadline, whatever server and network do.
A step without an answer is a miss, and its command is zero: of displacements, as in this package,
that means to stay at the present pose. After several misses in a row, or an error, the client
stops: all later commands are zero with the status "stopped", until somebody calls `reset`.
"""

import math
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Literal

import gymnasium
import numpy as np

from fleet_tools.config.values import differences
from fleet_tools.envs.array_spec import describe_action, describe_observation, layout_differences
from fleet_tools.envs.recorded_env import EnvInterface, interface_of
from fleet_tools.envs.wrappers import require_entries, require_own_actions
from fleet_tools.errors import ConfigError, PolicyError
from fleet_tools.policies.policy import NeverCopied
from fleet_tools.policies.policy_client import TIMEOUT_S, PolicyClient
from fleet_tools.policies.wire_messages import Hello


class RemotePolicy(NeverCopied):
    """Acts as the policy of a server, with the same bits; see `RealTimePolicy` for robots.

    There is no deadline: `timeout_s` is for servers that have died. A connection that was lost is
    made anew when the next episode begins.

    Args:
        url: Address of the server.
        env: The environment in which it is to act, or its interface.
        content_digest: Hash of the checkpoint that the server must have; None takes any.
        timeout_s: Time after which a server that does not answer counts as dead, s.

    Raises:
        PolicyError: See `PolicyClient`; or the server's policy is another one, or cannot act in
            this environment.
        ConfigError: A wrapper hides what it reads, or changes actions.
    """

    def __init__(
        self,
        url: str,
        env: gymnasium.Env | EnvInterface,
        content_digest: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._url, self._timeout_s = url, timeout_s
        self._interface = interface_of(env)
        self._content_digest = content_digest
        require_own_actions(env)
        self._client, self._begins = self._connect(), False
        require_entries(env, self._client.hello.observation)

    def reset(self) -> None:
        """Lets the next observation begin an episode."""
        self._begins = True

    def act(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns the policy's action, for `env.step`; the environment clips it.

        Raises:
            PolicyError: See the class, and `PolicyClient.act`.
        """
        begins, self._begins = self._begins, False
        try:
            action = self._client.act(observation, begins=begins)
        except PolicyError as error:
            if not begins or not self._client.closed or isinstance(error.__cause__, TimeoutError):
                raise
            self._client = self._connect()  # to a server that was started anew since then
            action = self._client.act(observation, begins=True)
        return action

    def close(self) -> None:
        """Closes the connection."""
        self._client.close()

    def _connect(self) -> PolicyClient:
        client = PolicyClient.at(self._url, self._timeout_s)
        try:
            self._require_acting(client.hello)
        except PolicyError:
            client.close()
            raise
        return client

    def _require_acting(self, hello: Hello) -> None:
        if self._content_digest not in (None, hello.content_digest):
            raise PolicyError(
                f"{self._url} now serves another policy: {hello.policy} ({hello.content_digest}), "
                f"expected {self._content_digest}. Start the run again."
            )
        env = self._interface
        found = layout_differences(hello.observation, describe_observation(env))
        action, period_s = describe_action(env), 1.0 / float(env.metadata["render_fps"])
        found += [f"the action's {each}" for each in differences(dict(action), dict(hello.action))]
        if not math.isclose(hello.control_period_s, period_s, rel_tol=1e-6):
            found.append(f"the control period is {period_s:g} s, not {hello.control_period_s:g} s")
        if found:
            raise PolicyError(
                f"The policy of {self._url} ({hello.policy}) cannot act here: {'; '.join(found)}. "
                "Use the environment kwargs of the policy's training."
            )


def read_hello(url: str) -> Hello:
    """Returns the description of a server's policy.

    Raises:
        ConfigError, PolicyError, MissingLibraryError: See `PolicyClient`.
    """
    client = PolicyClient.at(url)
    client.close()
    return client.hello


Status = Literal["answered", "missed", "stopped"]


@dataclass(frozen=True, eq=False)
class RobotCommand:
    """Command of the robot in a control step.

    Attributes:
        action: As the policy's hello describes it, finite and in its bounds; zero unless answered.
        status: Whether it is the policy's answer; "stopped" asks for the robot's own stop.
        reason: Why it is not.
        seconds: Time from the call to this command, s.
    """

    action: np.ndarray
    status: Status
    reason: str
    seconds: float


class RealTimePolicy:
    """A client that never lets a control loop wait longer than its deadline.

    One request is in flight at a time. While an earlier one is unanswered, the observation of the
    present step is not sent, so that a policy with hidden state does not see it. An answer that
    comes after its deadline is dropped.

    Args:
        url: Address of the server, see `PolicyClient`.
        deadline_s: Longest time of `act`, s; shorter than the policy's control period.
        max_misses: Number of misses in a row after which it stops.
        timeout_s: Longest time of connecting and of `reset`, while the robot stands still, s.

    Raises:
        ConfigError: The deadline is not shorter than the control period, or there are no misses
            after which to stop.
        PolicyError: See `PolicyClient`.
    """

    def __init__(
        self, url: str, deadline_s: float, max_misses: int = 3, timeout_s: float = 10.0
    ) -> None:
        if max_misses < 1:
            raise ConfigError(
                f"Expected at least 1 missed deadline before the client stops; given: {max_misses}."
            )
        self._client = PolicyClient.at(url, timeout_s)
        self.hello = self._client.hello
        if not 0.0 < deadline_s < self.hello.control_period_s:
            self._client.close()
            raise ConfigError(
                "Expected a deadline between 0 and the control period, "
                f"{self.hello.control_period_s:g} s; given: {deadline_s:g} s."
            )
        self._deadline_s, self._max_misses = deadline_s, max_misses
        self._network = ThreadPoolExecutor(1, "policy")
        self._pending: Future[np.ndarray] | None = None
        self._misses = 0
        self._stopped = "reset comes before act"

    def reset(self) -> None:
        """Begins an episode, also after a stop; the robot stands still.

        Raises:
            PolicyError: The connection is lost, or the policy raised an error.
        """
        self._stopped = "reset failed"
        if self._pending is not None:
            wait([self._pending])  # at most the timeout of the connection
            self._pending = None
        self._client.reset()
        self._misses, self._stopped = 0, ""

    def act(self, observation: Mapping[str, np.ndarray]) -> RobotCommand:
        """Returns the command of a control step, at the deadline at the latest.

        Args:
            observation: Arrays by name, as the policy's hello describes them; not changed until the
                answer is there.
        """
        started = time.monotonic()
        if self._stopped:
            return self._command("stopped", self._stopped, started)
        end = started + self._deadline_s
        if self._pending is not None and not _done(self._pending, end):
            return self._missed("an earlier request is not answered", started)
        self._pending = self._network.submit(self._client.act, observation)
        if not _done(self._pending, end):
            return self._missed("no answer before the deadline", started)
        answered, self._pending = self._pending, None
        try:
            action = answered.result()
        except PolicyError as error:
            return self._stop(str(error), started)
        except Exception as error:  # such as an observation that is no mapping
            return self._stop(f"{type(error).__name__}: {error}", started)
        self._misses = 0
        clipped = action.clip(*self.hello.action_bounds)
        return RobotCommand(clipped, "answered", "", time.monotonic() - started)

    def close(self) -> None:
        """Closes the connection."""
        self._stopped = "closed"
        self._client.close()
        self._network.shutdown()

    def _missed(self, reason: str, started: float) -> RobotCommand:
        self._misses += 1
        if self._misses >= self._max_misses:
            return self._stop(f"{self._misses} misses in a row; {reason}", started)
        return self._command("missed", reason, started)

    def _stop(self, reason: str, started: float) -> RobotCommand:
        self._stopped = reason
        return self._command("stopped", reason, started)

    def _command(self, status: Status, reason: str, started: float) -> RobotCommand:
        spec = self.hello.action
        zero = np.zeros(spec.shape, spec.dtype)
        return RobotCommand(zero, status, reason, time.monotonic() - started)


def _done(pending: Future, end: float) -> bool:
    """Waits for a request until some time; whether it is answered."""
    return bool(wait([pending], max(0.0, end - time.monotonic())).done)
