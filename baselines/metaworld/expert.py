"""Meta-World's scripted policies as experts."""

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from operator import itemgetter
from typing import Any

import gymnasium
import numpy as np

from fleet_tools.envs.recorded_env import EnvInterface, interface_of, refusal
from fleet_tools.envs.wrappers import require_own_actions
from fleet_tools.errors import ConfigError

EXPERT = "fleet_tools.baselines.metaworld.expert:scripted_expert"
"""Its name, as a value of `--policy`."""


class ScriptedExpert:
    """Meta-World's policy of a task, which reads the state.

    Its actions may be beyond 1; the environment clips them, and datasets hold the clipped ones.

    Args:
        policy: The policy.
        read_state: Returns the state, (39,), at the time of an observation.
        env: The environment, or its interface.
    """

    def __init__(
        self,
        policy: Any,
        read_state: Callable[[dict[str, np.ndarray]], np.ndarray],
        env: "gymnasium.Env | EnvInterface",
    ) -> None:
        self._policy, self._read_state = policy, read_state
        require_own_actions(env)

    def reset(self) -> None:
        """Does nothing: the policy has no memory."""

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns the policy's action, (4,), for `env.step`."""
        with warnings.catch_warnings():
            # It warns of clipped actions at nearly every step.
            warnings.simplefilter("ignore", UserWarning)
            state = self._read_state(observation).astype(np.float64)
            return np.asarray(self._policy.get_action(state))


def scripted_expert(env: "gymnasium.Env | EnvInterface") -> ScriptedExpert:
    """Returns the expert of an environment's task.

    It reads the state in the environment itself, or from observations if only the interface is
    given.

    Raises:
        ConfigError: The environment is not given, and the state is not observed; or a wrapper
            changes actions.
    """
    from metaworld.policies import ENV_POLICY_MAP

    interface = interface_of(env)
    policy = ENV_POLICY_MAP[interface.task]()
    if not isinstance(env, EnvInterface):
        return ScriptedExpert(policy, partial(_state_within, env.unwrapped), env)
    if "state" not in interface.features:
        raise ConfigError(refusal("the state"))
    return ScriptedExpert(policy, itemgetter("state"), env)


def _state_within(env: Any, observation: Mapping[str, np.ndarray]) -> np.ndarray:
    return env.state
