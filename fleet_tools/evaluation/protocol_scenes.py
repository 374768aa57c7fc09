"""The scenes of a protocol one after another, for evaluation programs of other projects.

These programs draw an episode by a small number and know nothing of scenes, so here it is a scene's
number. `lerobot_hub` hands it to one of them.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from fleet_tools.envs.outcomes import SUCCESS
from fleet_tools.evaluation.config import PROTOCOL
from fleet_tools.evaluation.protocol_file import load_protocol
from fleet_tools.policies.lerobot_features import IMAGES, STATE, FeatureNames
from fleet_tools.sim.scene import check_seed


class ProtocolScenes(gymnasium.Wrapper[dict[str, Any], np.ndarray, dict[str, np.ndarray], Any]):
    """An environment whose episode of seed k is the k-th scene of a protocol.

    Observations are as in an export to LeRobot (`lerobot_features`): the robot's senses and
    keypoints as one vector (n,) float32, and all other entries by their names. Cameras, where there
    are any, give a mapping from their names to colour images (height, width, 3) uint8. Actions are
    the task's. `info["is_success"]` is true in the last step of a success, and nowhere else, which
    is what a result of `evaluate` counts.

    Args:
        task: Name of a task of the protocol.
        protocol: Name or path of a protocol, as `evaluate` takes it. Functions that its own task
            files name are run, so it has to be trusted like code.
        level: Level of the protocol; the first if None.
        split: The only split; all of them, one after another, if None.
        vector: Name of the vector in observations.
        images: Name of the mapping of colour images.
        env_kwargs: Keyword arguments of the environment, such as obs_mode="rgbd".

    Attributes:
        trials: The scenes in their order.
        task: Name of the task.
        task_description: The task in a sentence.
        max_steps: Largest number of steps of an episode.

    Raises:
        UnknownNameError: There is no such protocol, level, task, split or argument.
        ConfigError: The level has other sensors than those given, or the mode shows none.
    """

    def __init__(
        self,
        task: str,
        *,
        protocol: str = PROTOCOL,
        level: str | None = None,
        split: str | None = None,
        vector: str = "state",
        images: str = "images",
        **env_kwargs: Any,
    ) -> None:
        self._protocol = load_protocol(protocol, level)
        self.trials = self._protocol.trials(task, split)
        if (sensors := self._protocol.sensors) is not None:
            obs_mode = env_kwargs.get("obs_mode", "state")
            self._protocol.require_sensors(env_kwargs.setdefault("sensors", sensors), obs_mode)
        inner = self._protocol.make_env(task, trusted=True, **env_kwargs)
        super().__init__(inner)
        self._config, self._next = inner.task, 0
        self.task, self.task_description = inner.task.name, inner.task.description
        self.max_steps = self._max_episode_steps = self._protocol.max_steps(inner.task)
        self._features, self._vector, self._images = FeatureNames.of(inner.features), vector, images
        length = sum(int(np.prod(inner.features[name].shape)) for name in self._features.state)
        of_entries = {**self._features.color_images, **self._features.others}
        boxes = {feature: inner.features[name].space for name, feature in of_entries.items()}
        boxes[STATE] = spaces.Box(-np.inf, np.inf, (length,), np.float32)
        named = self._named(boxes)
        self.observation_space = spaces.Dict(
            {k: spaces.Dict(v) if isinstance(v, dict) else v for k, v in named.items()}
        )

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begins the episode of a scene.

        Args:
            seed: Number of the scene; beyond the last one they begin again. If None, the scene
                after the present one, at the beginning the first.
            options: Not read: programs pass what is of their own.

        Raises:
            ConfigError: The seed is not a non-negative integer.
            SimulationError: No simulation can begin in the scene.
        """
        number = self._next if seed is None else check_seed(seed)
        trial = self.trials[number % len(self.trials)]
        scene = self._protocol.scene(self._config, trial)
        observation, info = self.env.reset(options={"scene": scene})
        self._next = number + 1
        return self._observed(observation), {**info, "is_success": False}

    def step(self, action: Any) -> tuple[dict[str, Any], Any, bool, bool, dict[str, Any]]:
        """Runs one control step, see `ToolUseEnv.step`."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        told = {**info, "is_success": info["outcome"] == SUCCESS}
        return self._observed(observation), reward, terminated, truncated, told

    def _observed(self, observation: Mapping[str, np.ndarray]) -> dict[str, Any]:
        return self._named(self._features.features_of_step(observation))

    def _named(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Returns what LeRobot's features hold, as this environment names it."""
        named: dict[str, Any] = {}
        for feature, value in features.items():
            if feature == STATE:
                named[self._vector] = value
            elif feature.startswith(IMAGES):
                named.setdefault(self._images, {})[feature.removeprefix(IMAGES)] = value
            else:
                named[feature.removeprefix("observation.")] = value
        return named
