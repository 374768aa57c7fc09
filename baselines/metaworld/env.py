"""Meta-World's environments with the interface of `RecordedEnv`."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from fleet_tools.baselines.metaworld.observations import MuJoCoRenderer, make_observer
from fleet_tools.baselines.metaworld.tasks import (
    MAX_STEPS,
    PURPOSE,
    REWARD,
    MetaWorldScene,
    task_set,
)
from fleet_tools.envs.array_spec import ArraySpec, check_action
from fleet_tools.envs.outcomes import RUNNING, SUCCESS, TIME_LIMIT
from fleet_tools.envs.recorded_env import RecordedEnv
from fleet_tools.envs.spec import checked_arguments
from fleet_tools.errors import ConfigError, EpisodeOverError, SimulationError, require_name
from fleet_tools.perception.opengl import require_gl
from fleet_tools.utils.libraries import require

IMAGE_SIZE = (640, 480)
"""Width and height of images, in pixels."""


@dataclass(frozen=True)
class _RunningEpisode:
    """An episode in progress, besides the simulator's state."""

    scene: MetaWorldScene
    state: np.ndarray
    outcome: str = RUNNING
    steps: int = 0
    success_once: bool = False


class MetaWorldEnv(RecordedEnv):
    """A Sawyer arm with a gripper, and one of 50 tasks.

    Actions: `Box(-1, 1, (4,), float32)`: the motion of the hand in units of 1 cm in the world, and
    the force of the gripper. Entries beyond 1 are clipped; NaN is refused.

    Observations: "task", one-hot among `tasks`, and by `obs_mode`

    - "state": "state", (39,) float32, as Meta-World has it, with the goal;
    - "features": "features", (512,) float32, of an image, and "hand", (4,) float32, the position
      and opening of the gripper; neither objects nor the goal, see
      `observations.FeatureObserver`.

    An episode ends with Meta-World's first success, or after 500 steps.

    Args:
        task: Name of the task, such as "reach-v3".
        tasks: The tasks of the policy, see `tasks.task_set`.
        obs_mode: "state" or "features".
        render_mode: None, or "rgb_array" for images of the whole scene by `render`, which policies
            do not see.
        encoder: Name of the encoder of images, such as "resnet18_random"; None for the one of
            `resnet_weights`. Stored data name it, so that another encoder is refused.
        resnet_weights: File of the encoder's weights, see `encoder.open_encoder`; None for random
            ones.

    Raises:
        UnknownNameError: There is no such set, or mode.
        ConfigError: The task is not in the set, or the weights are another encoder's.
        CheckpointError: The file does not hold the weights of a ResNet-18.
        MissingLibraryError: Meta-World, or a library of the observation mode, is not installed.
    """

    def __init__(
        self,
        task: str,
        tasks: str = "mt50",
        obs_mode: str = "state",
        render_mode: str | None = None,
        encoder: str | None = None,
        resnet_weights: str | Path | None = None,
    ) -> None:
        if render_mode is not None:
            require_name("render mode of Meta-World", render_mode, ["rgb_array"])
            require_gl()
        members = task_set(tasks)
        if task not in members:
            raise ConfigError(
                f"The task {task!r} is not among {tasks!r}, which are {', '.join(members)}."
            )
        self._task = task
        self._one_hot = np.eye(len(members), dtype=np.float32)[members.index(task)]
        self._inner = _make(task)
        self.render_mode = render_mode
        self._renderer: MuJoCoRenderer | None = None
        rate = round(1 / self._inner.dt)
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": rate}
        self._observer = make_observer(self._inner, obs_mode, encoder, resnet_weights)
        self.features = {
            **self._observer.entries,
            "task": ArraySpec(
                kind="one_hot",
                shape=(len(members),),
                dtype="float32",
                unit="one-hot",
                frame=None,
                entries=members,
            ),
        }
        self.observation_space = spaces.Dict(
            {name: entry.space for name, entry in self.features.items()}
        )
        scale = float(self._inner.action_scale)
        self.action_scale = np.array([scale, scale, scale, 1.0])
        self.action_spec = ArraySpec(
            kind="action",
            shape=(4,),
            dtype="float32",
            unit="m, force of the gripper",
            frame="world",
            entries=("translation_x", "translation_y", "translation_z", "gripper"),
            scale=tuple(self.action_scale.tolist()),
            rate_hz=rate,
        )
        self.action_space = self.action_spec.space
        self._episode: _RunningEpisode | None = None
        self._actions: list[np.ndarray] = []

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Begins an episode in a scene, drawn by `seed` or given as `options["scene"]`.

        Raises:
            ConfigError: It is a scene of another task.
            SimulationError: The scene's seed draws another one here.
        """
        given = (options or {}).get("scene")
        if given is not None and (
            not isinstance(given, MetaWorldScene) or given.task != self._task
        ):
            raise ConfigError(f"Expected a scene of {self._task!r}; given: {given!r}.")
        gymnasium.Env.reset(self, seed=seed)
        if given is not None:
            seed = given.seed
        elif seed is None:
            seed = int(self.np_random.integers(2**52))
        self._inner.seed(seed)
        state, _ = self._inner.reset()
        drawn = tuple(float(number) for number in self._inner._last_rand_vec)
        if given is not None and given.random_vector != drawn:
            raise SimulationError(
                f"The seed {seed} draws {drawn} here, not {given.random_vector}. Replay it with "
                "the versions of its dataset."
            )
        scene = MetaWorldScene(task=self._task, seed=seed, random_vector=drawn)
        self._episode, self._actions = _RunningEpisode(scene, _single(state)), []
        return self._observe(self._episode), _info(self._episode, success=False)

    def step(
        self, action: np.ndarray
    ) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Runs one control step.

        Args:
            action: (4,), see the class.

        Raises:
            InvalidActionError: The action has a wrong shape or dtype, or is not finite.
            EpisodeOverError: No episode is in progress.
        """
        executed, clipped = check_action(action, 4)
        episode = self._running()
        if episode.outcome != RUNNING:
            raise EpisodeOverError(f"The episode ended as {episode.outcome!r}; call reset().")
        state, reward, _, _, facts = self._inner.step(executed)
        self._actions.append(executed.copy())
        success, steps = bool(facts["success"]), episode.steps + 1
        is_last = steps >= self.steps_at_most(MAX_STEPS)
        outcome = SUCCESS if success else TIME_LIMIT if is_last else RUNNING
        self._episode = episode = _RunningEpisode(
            episode.scene, _single(state), outcome, steps, episode.success_once or success
        )
        info = _info(episode, success) | {"action": executed, "action_clipped": clipped}
        return (
            self._observe(episode),
            float(reward),
            outcome == SUCCESS,
            outcome == TIME_LIMIT,
            info,
        )

    def render(self) -> np.ndarray | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Returns an image of the present state, (480, 640, 3) uint8; None without `render_mode`.

        Raises:
            EpisodeOverError: No episode has begun.
            MissingLibraryError: There is no OpenGL driver.
        """
        self._running()
        if self.render_mode is None:
            return None
        if self._renderer is None:
            self._renderer = MuJoCoRenderer(self._inner.model, IMAGE_SIZE)
        return self._renderer.render(self._inner.data)

    def close(self) -> None:
        """Frees the simulator and the renderers."""
        self._observer.close()
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
        self._inner.close()

    @property
    def task_name(self) -> str:
        """Name of the task."""
        return self._task

    @property
    def scene(self) -> MetaWorldScene:
        """Scene of the present episode.

        Raises:
            EpisodeOverError: No episode has begun.
        """
        return self._running().scene

    @property
    def state(self) -> np.ndarray:
        """Meta-World's observation with the goal, (39,) float32, in every observation mode.

        Raises:
            EpisodeOverError: No episode has begun.
        """
        return self._running().state.copy()

    def state_digest(self) -> int:
        """Returns a 64-bit hash of the exact state of the simulation.

        Raises:
            EpisodeOverError: No episode has begun.
        """
        episode, data = self._running(), self._inner.data
        digest = hashlib.blake2b(digest_size=8)
        for array in (
            data.qpos,
            data.qvel,
            data.act,
            data.mocap_pos,
            data.mocap_quat,
            data.qacc_warmstart,
            self._inner._prev_obs,
        ):
            digest.update(np.ascontiguousarray(array, np.float64).tobytes())
        digest.update(episode.steps.to_bytes(4, "big"))
        return int.from_bytes(digest.digest(), "big")

    def end_by_time_limit(self) -> str:
        """Ends a running episode, for wrappers that limit time; returns its outcome.

        Raises:
            EpisodeOverError: No episode has begun.
        """
        self._episode = replace(self._running(), outcome=TIME_LIMIT)
        return TIME_LIMIT

    def _episode_state(self) -> tuple[_RunningEpisode, list[np.ndarray], int] | None:
        if self._episode is None:
            return None
        return self._episode, self._actions, self.state_digest()

    def _continue_from(self, state: tuple[_RunningEpisode, list[np.ndarray], int]) -> None:
        # MuJoCo's state is not enough: each of Meta-World's tasks has its own attributes.
        episode, actions, digest = state
        self.reset(options={"scene": episode.scene})
        for action in actions:
            self.step(action)
        if self.state_digest() != digest:
            raise SimulationError(
                f"The {len(actions)} actions of this episode lead to another state here. Install "
                "the versions of the packages with which it was copied."
            )
        self._episode = episode

    def _running(self) -> _RunningEpisode:
        if self._episode is None:
            raise EpisodeOverError("No episode has begun; call reset().")
        return self._episode

    def _observe(self, episode: _RunningEpisode) -> dict[str, np.ndarray]:
        return {**self._observer.observe(episode.state), "task": self._one_hot.copy()}


def make_env(**kwargs: Any) -> MetaWorldEnv:
    """Makes an environment, without Gymnasium's wrappers.

    Args:
        kwargs: Arguments of `MetaWorldEnv`.

    Raises:
        UnknownNameError, ConfigError, MissingLibraryError: See `MetaWorldEnv`.
    """
    return MetaWorldEnv(**checked_arguments(MetaWorldEnv, kwargs))


def _make(task: str) -> Any:
    """Returns Meta-World's environment, which shows the goal and draws from its seed."""
    require("metaworld", PURPOSE)
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    # The raw class: Meta-World's vector environments take half a minute to create.
    inner: Any = ALL_V3_ENVIRONMENTS[task](reward_function_version=REWARD)
    inner._partially_observable = False
    # The cached space of a hidden goal would clip the goal to zero.
    vars(inner).pop("sawyer_observation_space", None)
    inner._freeze_rand_vec, inner.seeded_rand_vec = False, True
    inner._set_task_called = True
    return inner


def _single(state: np.ndarray) -> np.ndarray:
    return np.asarray(state, np.float32)


def _info(episode: _RunningEpisode, success: bool) -> dict[str, Any]:
    return {
        "outcome": episode.outcome,
        "success": success,
        "is_success": success,  # as Stable-Baselines3 calls it
        "success_once": episode.success_once,
    }
