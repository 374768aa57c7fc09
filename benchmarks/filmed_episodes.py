"""Episodes of many kinds, good and bad, run and shown as strips of frames."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from cheats import CHEATS, PUSHES
from cheats.motion import Actions, DrivenArm, ScriptPolicy
from cheats.trial import Attack, attacked_scene, run_trial
from honest_ways import HONEST

from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.experts.demonstrators import NoisyExpert
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.perception.camera_view import CameraView, Pinhole
from fleet_tools.perception.display import DEPTH_RANGE_M, look_at
from fleet_tools.sim.scene import Scene, sample_scene

FRAMES, SIZE = 8, (200, 150)
"""Number of frames of an episode, and their width and height, pixels."""

_CAMERAS = {"hammer": (0.42, 20.0), "wrench": (0.42, 50.0), "screwdriver": (0.28, 50.0)}
_CAMERA = (0.55, 30.0)
"""Distance of the camera from the object, m, and its elevation, degrees; by task, and otherwise."""

_DRAWN = {"expert": 5, "noisy": 6, "random": 3, "stops_early": 4}
"""Numbers of episodes of policies that are no scripts, for each task."""


@dataclass(frozen=True)
class WatchJob:
    """An episode to film.

    Attributes:
        number: Its number on the sheets.
        task: Name of the task.
        kind: One of `_DRAWN`, "cheat" or "honest".
        way: Name of the script; empty if there is none.
        seed: Seed of the scene.
    """

    number: int
    task: str
    kind: str
    way: str
    seed: int


def episodes(tasks: Sequence[str], first_seed: int) -> list[WatchJob]:
    """Returns the episodes, in an order that tells nothing of their kind."""
    drawn = [
        (task, kind, way)
        for task in tasks
        for kind, ways in (
            *((kind, [""] * count) for kind, count in _DRAWN.items()),
            ("cheat", CHEATS.get(task, {})),
            ("honest", HONEST.get(task, {})),
        )
        for way in ways
    ]
    jobs: list[WatchJob] = []
    for k in np.random.default_rng(0).permutation(len(drawn)).tolist():
        task, kind, way = drawn[k]
        jobs.append(WatchJob(len(jobs), task, kind, way, first_seed + k))
    return jobs


def film(env: ToolUseEnv, job: WatchJob) -> tuple[np.ndarray, dict[str, Any]]:
    """Runs an episode; returns its frames side by side, and its verdict as JSON data.

    Args:
        env: An environment of the task, with render_mode "rgb_array".
        job: The episode.

    Returns:
        (height, `FRAMES` * width, 3) uint8, the start and then from the first touch to the end; and
        the verdict.
    """
    policy, scene = policy_and_scene(env, job)
    states, touched = [], []

    def watch() -> None:
        state = env.world_state()
        touched.append(any(state.in_contact(who, "object") for who in ("tool", "robot")))
        states.append(env.get_state())

    trial = run_trial(env, policy, scene, watch)
    start = max(touched.index(True) - 1, 1) if any(touched) else 1
    shown = [0, *np.linspace(min(start, len(states) - 1), len(states) - 1, FRAMES - 1)]
    frames = []
    for step in np.round(shown).astype(int):
        env.set_state(states[step])
        frames.append(env.image(_view(env)))
    verdict = {
        "models": trial.models,
        "outcome": trial.outcome,
        "success": trial.success,
        "done": trial.done,
        "unmet": list(trial.unmet),
    }
    return np.hstack(frames), verdict


def policy_and_scene(env: ToolUseEnv, job: WatchJob) -> tuple[Attack, Scene]:
    """Returns who acts in an episode, and where."""
    if job.kind == "cheat":
        script = CHEATS[job.task][job.way]
        return ScriptPolicy(env, script), attacked_scene(env, job.seed, PUSHES.get(script))
    scene = sample_scene(env.task, job.seed, split="all", randomization="on")
    match job.kind:
        case "honest":
            return ScriptPolicy(env, HONEST[job.task][job.way]), scene
        case "stops_early":
            return ScriptPolicy(env, _stops_early), scene
        case "expert":
            return _Endless(ExpertPolicy(env)), scene
        case "noisy":
            return _Endless(NoisyExpert(env)), scene
    return _Endless(_Random(job.seed)), scene


def _stops_early(arm: DrivenArm) -> Actions:
    """The expert stops when a part of the deed is done, or all of it, and rests."""
    fraction = np.random.default_rng([arm.env.scene.seed, 3]).uniform(0.4, 1.1)
    yield from arm.follow_expert(until=arm.done(fraction))


class _Acting(Protocol):
    def reset(self) -> None: ...

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray: ...


class _Endless:
    """A policy as an attack that never gives up."""

    ended = False

    def __init__(self, policy: _Acting) -> None:
        self.reset, self.act = policy.reset, policy.act


class _Random:
    """Uniform actions."""

    def __init__(self, seed: int) -> None:
        self._seed, self._generator = seed, np.random.default_rng(seed)

    def reset(self) -> None:
        self._generator = np.random.default_rng(self._seed)

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        return self._generator.uniform(-1.0, 1.0, 6).astype(np.float32)


def _view(env: ToolUseEnv) -> CameraView:
    """Returns the view of the place where the object stood at the start."""
    distance_m, elevation_deg = _CAMERAS.get(env.task.name, _CAMERA)
    elevation, azimuth = math.radians(elevation_deg), math.radians(-35.0)
    way = [math.cos(elevation) * math.cos(azimuth), math.cos(elevation) * math.sin(azimuth)]
    target = env.scene.object_pose.to_transform().translation() + np.array([0.0, 0.0, 0.05])
    eye = target + distance_m * np.array([*way, math.sin(elevation)])
    X_WC = look_at(tuple(eye), tuple(target))
    return CameraView("watched", Pinhole.from_field_of_view(*SIZE, 34.0), X_WC, DEPTH_RANGE_M)
