"""Environments for LeRobot's environment hub, whose `env.py` calls this module.

`examples/lerobot_hub/env.py` is such a file. LeRobot itself is not imported: what it takes are
vector environments of Gymnasium whose observations have its names
(https://huggingface.co/docs/lerobot/envhub). LeRobot draws episodes by small numbers and knows
nothing of scenes, so here the number is a scene's.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from fleet_tools.envs.outcomes import SUCCESS
from fleet_tools.errors import ConfigError, require_name
from fleet_tools.evaluation.config import PROTOCOL
from fleet_tools.evaluation.protocol import OWN_TASK
from fleet_tools.evaluation.protocol_file import load_protocol
from fleet_tools.policies.lerobot_features import IMAGES, STATE, FeatureNames
from fleet_tools.sim.scene import check_seed


class ProtocolScenes(gymnasium.Wrapper[dict[str, Any], np.ndarray, dict[str, np.ndarray], Any]):
    """An environment whose episode of seed k is the k-th scene of a protocol.

    Observations are as in an export to LeRobot (`lerobot_features`): the robot's senses and
    keypoints as one vector `agent_pos` (n,) float32, and all other entries by their names. Cameras,
    where there are any, give `pixels`, a mapping from their names to colour images
    (height, width, 3) uint8. Actions are the task's. `info["is_success"]` is true in the last step
    of a success, and nowhere else, which is what a result of `evaluate` counts.

    Args:
        task: Name of a task of the protocol.
        protocol: Name or path of a protocol, as `evaluate` takes it. Functions that its own task
            files name are run, so it has to be trusted like code.
        level: Level of the protocol; the first if None.
        split: The only split; all of them, one after another, if None.
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
        self._features = FeatureNames.of(inner.features)
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
        """Returns what LeRobot's features hold, by the names that LeRobot takes."""
        named: dict[str, Any] = {}
        for feature, value in features.items():
            if feature == STATE:
                named["agent_pos"] = value
            elif feature.startswith(IMAGES):
                named.setdefault("pixels", {})[feature.removeprefix(IMAGES)] = value
            else:
                named[feature.removeprefix("observation.")] = value
        return named


def make_env(
    n_envs: int = 1,
    use_async_envs: bool = False,
    cfg: Any = None,
    *,
    protocol: str = PROTOCOL,
    level: str | None = None,
    split: str | None = None,
    **env_kwargs: Any,
) -> dict[str, dict[int, VectorEnv]]:
    """Makes vector environments for each task of a protocol.

    The episode of seed k is the k-th scene of the task, of all splits one after another unless one
    is given: LeRobot gives its episodes consecutive seeds, so that as many episodes as there are
    scenes run each of them once, wherever the seeds begin. Observations hold `agent_pos`, colour
    images by camera under `pixels`, and all other entries by their names, of which LeRobot makes
    the features of an export: `observation.state`, `observation.images.<camera>`,
    `observation.<name>`.

    Args:
        n_envs: Number of environments of each task that run together.
        use_async_envs: Whether each of them has a process of its own, if there are several.
        cfg: Configuration of LeRobot's; its `task`, if it names one, is the only task.
        protocol: Name or path of a protocol, see `ProtocolScenes`.
        level: Level of the protocol; the first if None.
        split: The only split; all of them, one after another, if None.
        env_kwargs: Keyword arguments of the environments, such as obs_mode="rgbd".

    Returns:
        The vector environment by the task's name, as {task: {0: environment}}.

    Raises:
        UnknownNameError: There is no such protocol, level, task, split or argument.
        ConfigError: See `ProtocolScenes`; or the number is not positive.
    """
    if n_envs < 1:
        raise ConfigError(f"Expected n_envs of at least 1; given: {n_envs}.")
    tasks = load_protocol(protocol, level).tasks
    if (only := getattr(cfg, "task", None)) is not None:
        require_name(f"task of the protocol {protocol!r}", only, tasks, OWN_TASK)
        tasks = (only,)
    chosen = {"protocol": protocol, "level": level, "split": split, **env_kwargs}
    made: dict[str, dict[int, VectorEnv]] = {}
    for task in tasks:
        maker = partial(ProtocolScenes, task, **chosen)
        mode = AutoresetMode.SAME_STEP  # LeRobot reads a success in "final_info"
        if use_async_envs and n_envs > 1:
            made[task] = {0: AsyncVectorEnv([maker] * n_envs, context="spawn", autoreset_mode=mode)}
        else:
            made[task] = {0: SyncVectorEnv([maker] * n_envs, autoreset_mode=mode)}
    return made
