"""The tasks as a benchmark of vla-eval, an evaluation harness for policy servers.

A run's file names the class, `fleet_tools.evaluation.vla_eval_benchmark:ToolUseBenchmark`. It has
the methods of `vla_eval.benchmarks.base.Benchmark` and is no subclass of it, so that this module
can be imported without vla-eval (https://github.com/allenai/vla-evaluation-harness, version 0.8).
"""

import importlib
import time
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from fleet_tools.errors import ConfigError, EpisodeOverError, MissingLibraryError, PolicyError
from fleet_tools.evaluation.config import PROTOCOL
from fleet_tools.evaluation.protocol import Trial
from fleet_tools.evaluation.protocol_file import load_protocol
from fleet_tools.evaluation.protocol_scenes import ProtocolScenes


class ToolUseBenchmark:
    """One benchmark; its tasks are the splits of the protocol's tasks, such as "hammer/train".

    An observation holds `state` (n,), `images` by camera where there are any, all other entries by
    their names, and `task_description`. The server's `actions` are one action of the task, (6,).
    Episode k of a task is scene k of its split, of which an error says how many there are.

    Args:
        protocol, level, split, env_kwargs: See `ProtocolScenes`.

    Attributes:
        render_backends: Where images are rendered, in the harness's words: wherever Drake does.

    Raises:
        UnknownNameError: There is no such protocol, level or split.
        MissingLibraryError: vla-eval is absent.
    """

    render_backends: ClassVar[frozenset[str]] = frozenset({"cpu", "gpu"})

    def __init__(
        self,
        protocol: str = PROTOCOL,
        level: str | None = None,
        split: str | None = None,
        **env_kwargs: Any,
    ) -> None:
        _specs()
        loaded = load_protocol(protocol, level)
        self._trials: dict[str, list[Trial]] = {}
        for trial in loaded.trials(split=split):
            self._trials.setdefault(f"{trial.task}/{trial.split}", []).append(trial)
        self._max_steps = max(loaded.max_steps(loaded.load_task(task)) for task in loaded.tasks)
        self._chosen = {"protocol": protocol, "level": level, **env_kwargs}
        self._present: tuple[str, ProtocolScenes] | None = None
        self._episode: tuple[dict[str, Any], dict[str, Any], bool] | None = None
        self._recorder: Any = None
        self._began_s = 0.0

    @classmethod
    def configure_render(cls, mode: str) -> dict[str, str]:
        """Returns the variables of the environment that rendering needs: none."""
        return {}

    def get_tasks(self) -> list[dict[str, Any]]:
        """Returns the tasks; a run's file chooses among them by `name` or `suite`."""
        return [
            {"name": name, "suite": trials[0].task, "split": trials[0].split}
            for name, trials in self._trials.items()
        ]

    def get_metadata(self) -> dict[str, Any]:
        """Returns the largest number of steps, and the number of scenes of each task."""
        scenes = min(len(trials) for trials in self._trials.values())
        return {"max_steps": self._max_steps, "max_episodes_per_task": scenes}

    def get_metric_keys(self) -> dict[str, str]:
        """Returns the metrics of `get_result` that are averaged."""
        return {"success": "mean", "success_once": "mean", "progress": "mean"}

    def get_action_spec(self) -> dict[str, Any]:
        """Returns the action's parts, in the harness's words."""
        spec, frame = _specs().DimSpec, "in the end effector's frame, in units of the task's bounds"
        return {
            "position": spec("position", 3, "delta_xyz", (-1.0, 1.0), description=frame),
            "rotation": spec("rotation", 3, "axis_angle", (-1.0, 1.0), description=frame),
        }

    def get_observation_spec(self) -> dict[str, Any]:
        """Returns the observation's parts, likewise."""
        specs, space = _specs(), self._env(next(iter(self._trials))).observation_space
        assert isinstance(space, spaces.Dict)
        cameras = space.get("images", spaces.Dict())
        assert isinstance(cameras, spaces.Dict)
        images = dict.fromkeys(cameras, specs.IMAGE_RGB)
        return {"state": specs.RAW, "language": specs.LANGUAGE, **images}

    def get_hold_action(self, last_action: Mapping[str, Any] | None) -> dict[str, Any]:
        """Returns the action that holds the arm still, (6,)."""
        return {"actions": np.zeros(6, np.float32)}

    async def start_episode(self, task: Mapping[str, Any], recorder: Any = None) -> None:
        """Begins the episode `task["episode_idx"]` of a task.

        Raises:
            ConfigError: There are not as many scenes.
        """
        name, number = task["name"], int(task.get("episode_idx", 0))
        if number >= len(scenes := self._trials[name]):
            raise ConfigError(
                f"{name} has {len(scenes)} scenes, but episode {number} was requested. Set "
                f"episodes_per_task to at most {len(scenes)}."
            )
        self._recorder, self._began_s = recorder, time.monotonic()
        self._episode = (*self._env(name).reset(seed=number), False)

    async def apply_action(self, action: Mapping[str, Any]) -> None:
        """Runs one control step.

        Raises:
            PolicyError: The server sends no `actions`.
            InvalidActionError: It is not one action of the task.
        """
        if "actions" not in action:
            raise PolicyError(
                f"The server sent {sorted(action)}; expected `actions` of shape (6,)."
            )
        assert self._present is not None
        observation, reward, terminated, truncated, info = self._present[1].step(
            np.asarray(action["actions"])
        )
        self._episode = observation, info, terminated or truncated
        if self._recorder is not None:
            self._recorder.record_video(next(iter(observation.get("images", {}).values()), None))
            self._recorder.record_step(
                reward=float(reward), done=self._episode[2], outcome=info["outcome"]
            )

    async def get_observation(self) -> dict[str, Any]:
        """Returns the present observation, see the class."""
        assert self._present is not None
        return {**self._now()[0], "task_description": self._present[1].task_description}

    async def is_done(self) -> bool:
        """Returns whether the episode has ended."""
        return self._now()[2]

    async def get_time(self) -> float:
        """Returns the time since the episode began, s."""
        return time.monotonic() - self._began_s

    async def get_result(self) -> dict[str, Any]:
        """Returns `success` as `evaluate` counts it, `success_once`, `progress` and `outcome`."""
        info = self._now()[1]
        told = {name: info[name] for name in ("success_once", "progress", "outcome")}
        return {"success": bool(info["is_success"]), **told}

    def render(self) -> np.ndarray | None:
        """Returns the picture of the environment's own render mode, if it has one."""
        picture = None if self._present is None else self._present[1].render()
        return picture if isinstance(picture, np.ndarray) else None

    def cleanup(self) -> None:
        """Releases the environment."""
        if self._present is not None:
            self._present[1].close()
            self._present = self._episode = None

    def _now(self) -> tuple[dict[str, Any], dict[str, Any], bool]:
        if self._episode is None:
            raise EpisodeOverError("No episode has started; call start_episode().")
        return self._episode

    def _env(self, name: str) -> ProtocolScenes:
        """Returns the environment of a task, and closes the one before."""
        if self._present is None or self._present[0] != name:
            self.cleanup()
            first = self._trials[name][0]
            self._present = name, ProtocolScenes(first.task, split=first.split, **self._chosen)
        return self._present[1]


def _specs() -> Any:
    """Imports the harness's words for actions and observations.

    Raises:
        MissingLibraryError: vla-eval is absent.
    """
    try:
        return importlib.import_module("vla_eval.specs")
    except ImportError as error:
        raise MissingLibraryError(
            f"vla-eval cannot be imported ({error}). Install it in an environment of its own: "
            "python3 -m pip install vla-eval."
        ) from error
