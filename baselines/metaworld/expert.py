"""Meta-World's scripted policies as experts."""

import warnings
from typing import Any

import gymnasium
import numpy as np

from fleet_tools.envs.interface import EnvInterface, interface_of

EXPERT = "fleet_tools.baselines.metaworld.expert:scripted_expert"
"""Its name, as `--policy` takes it."""


class ScriptedExpert:
    """Meta-World's policy of a task, which reads the state that a policy observes.

    Its actions may be beyond 1; the environment clips them, and datasets hold the clipped ones.

    Args:
        policy: The policy.
    """

    def __init__(self, policy: Any) -> None:
        self._policy = policy

    def reset(self) -> None:
        """Does nothing: the policy has no memory."""

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns the policy's action, (4,)."""
        with warnings.catch_warnings():
            # That actions will be clipped, at nearly every step.
            warnings.simplefilter("ignore", UserWarning)
            return np.asarray(self._policy.get_action(observation["state"].astype(np.float64)))


def scripted_expert(env: "gymnasium.Env | EnvInterface") -> ScriptedExpert:
    """Returns the expert of an environment's task."""
    from metaworld.policies import ENV_POLICY_MAP

    return ScriptedExpert(ENV_POLICY_MAP[interface_of(env).task]())
