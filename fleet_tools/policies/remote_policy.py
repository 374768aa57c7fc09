"""A policy behind a socket, for simulations: time stands still until it answers."""

import math
from collections.abc import Mapping

import gymnasium
import numpy as np

from fleet_tools.config.values import differences
from fleet_tools.envs.array_spec import describe_action, describe_observation, layout_differences
from fleet_tools.envs.recorded_env import EnvInterface
from fleet_tools.envs.wrappers import ThroughWrappers, require_entries
from fleet_tools.errors import PolicyError
from fleet_tools.policies.channel import TIMEOUT_S
from fleet_tools.policies.policy import NeverCopied
from fleet_tools.policies.policy_client import PolicyClient
from fleet_tools.policies.wire_messages import Hello


class RemotePolicy(NeverCopied):
    """Acts as the policy of a server, with the same bits; see `realtime_policy` for robots.

    There is no deadline: `timeout_s` is for servers that have died. A connection that was lost is
    made anew by the next `reset`.

    Args:
        url: Address of the server.
        env: The environment in which it is to act, or its interface.
        content_digest: Hash of the checkpoint that the server must have; None takes any.
        timeout_s: Time after which a server that does not answer counts as dead, s.

    Raises:
        PolicyError: See `PolicyClient`; or the server's policy is another one, or cannot act in
            this environment.
        ConfigError: A wrapper hides what it reads, or cannot be inverted.
    """

    def __init__(
        self,
        url: str,
        env: gymnasium.Env | EnvInterface,
        content_digest: str | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._url, self._timeout_s = url, timeout_s
        self._observation, self._action = describe_observation(env), describe_action(env)
        self._period_s = 1.0 / float(env.metadata["render_fps"])
        self._content_digest = content_digest
        self._through_wrappers = ThroughWrappers(env)
        self._client = self._connect()
        require_entries(env, self._client.hello.observation)
        self._step = 0

    def reset(self) -> None:
        """Asks the server's policy to forget the last episode.

        Raises:
            PolicyError: See the class, and `PolicyClient.reset`.
        """
        self._step = 0
        if not self._client.closed:
            try:
                return self._client.reset()
            except PolicyError:  # such as of a server that was started anew since the last episode
                if not self._client.closed:
                    raise
        self._client = self._connect()
        self._client.reset()

    def act(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns the policy's action, for `env.step`; the environment clips it.

        Raises:
            PolicyError: See `PolicyClient.act`.
        """
        action = self._client.act(observation, self._step * self._period_s)
        self._step += 1
        return self._through_wrappers(action)

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
                f"{self._url} serves another policy than at the start: {hello.policy} "
                f"({hello.content_digest}), not {self._content_digest}."
            )
        found = layout_differences(hello.observation, self._observation)
        found += [
            f"the action's {each}" for each in differences(dict(self._action), dict(hello.action))
        ]
        if not math.isclose(hello.control_period_s, self._period_s, rel_tol=1e-6):
            found.append(
                f"the control period is {self._period_s:g} s, not {hello.control_period_s:g} s"
            )
        if found:
            raise PolicyError(
                f"The policy of {self._url} ({hello.policy}) cannot act here: {'; '.join(found)}. "
                "Make the environment as it was in training."
            )


def read_hello(url: str) -> Hello:
    """Returns what a server's policy is.

    Raises:
        ConfigError, PolicyError, MissingLibraryError: See `PolicyClient`.
    """
    client = PolicyClient.at(url)
    client.close()
    return client.hello
