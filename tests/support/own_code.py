"""An observation mode, a renderer and an arena of a user's own, as module:name."""

import hashlib
from collections.abc import Collection, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from pydrake.geometry import QueryObject

from fleet_tools.config.values import Seed, Value
from fleet_tools.envs.array_spec import ArraySpec, check_action
from fleet_tools.envs.observation_modes import ObservationMode
from fleet_tools.envs.observations import Observable
from fleet_tools.envs.outcomes import RUNNING, SUCCESS
from fleet_tools.envs.recorded_env import RecordedEnv
from fleet_tools.perception.camera_view import OBJECT, TOOL, CameraView, Hits
from fleet_tools.registration import Arena
from fleet_tools.sim.scene import Scene
from fleet_tools.sim.world import World
from fleet_tools.storage.provenance import TaskFile

SPEC = ArraySpec(kind="state", shape=(1,), dtype="float32", unit="rad/s", frame=None)


def top_speed(*_: object) -> dict[str, Observable]:
    return {"top_speed": Observable(SPEC, lambda measured: np.abs(measured.state.v).max()[None])}


SPEED = ObservationMode("the speed of the fastest joint", top_speed)
FLAT = ObservationMode(
    "an entry of another shape", lambda *_: {"x": Observable(SPEC, lambda _: np.zeros(2))}
)
EMPTY = ObservationMode("no dict of entries", lambda *_: [SPEC])  # pyright: ignore[reportArgumentType]


class DistanceRenderer:
    """Fills images with the distance of the tool; a point of each part is at the first pixel."""

    shows = frozenset({"points", "rgb", "depth"})
    made: list["DistanceRenderer"] = []

    def __init__(self) -> None:
        self.worlds, self.scenes = 0, 0
        self.made.append(self)

    def enter(self, world: World) -> None:
        self.worlds += 1
        self._frame = world.plant.GetBodyFrameIdOrThrow(world.plant.GetBodyIndices(world.tool)[0])

    def begin(self, scene: Scene) -> None:
        self.scenes += 1

    def images(
        self, physics: QueryObject, views: Sequence[CameraView], channels: Collection[str]
    ) -> list[dict[str, np.ndarray]]:
        return [self._images(physics, view, channels) for view in views]

    def points(self, physics: QueryObject, views: Sequence[CameraView]) -> list[dict[int, Hits]]:
        hits = [Hits(np.zeros(1, int), np.full(1, self._depth(physics, v))) for v in views]
        return [{TOOL: each, OBJECT: each} for each in hits]

    def close(self) -> None:
        pass

    def _depth(self, physics: QueryObject, view: CameraView) -> np.float32:
        p_W = physics.GetPoseInWorld(self._frame).translation()
        return np.float32(np.linalg.norm(view.X_WC.inverse() @ p_W))

    def _images(
        self, physics: QueryObject, view: CameraView, channels: Collection[str]
    ) -> dict[str, np.ndarray]:
        size = (view.pinhole.height, view.pinhole.width)
        made = {
            "rgb": np.full((*size, 3), 7, np.uint8),
            "depth": np.full(size, self._depth(physics, view)),
        }
        return {channel: made[channel] for channel in channels}


# --- An arena -------------------------------------------------------------------------------

NAME = "support.own_code:COUNTING"
STEPS = 3


class CountScene(Value):
    arena: str = NAME
    task: str = "count"
    seed: Seed
    tool: None = None
    object: None = None


class CountEnv(RecordedEnv):
    """Counts steps from the seed on, and succeeds after three."""

    def __init__(self, task: str) -> None:
        self.features = {"count": SPEC.model_copy(update={"unit": "steps"})}
        self.observation_space = spaces.Dict({"count": self.features["count"].space})
        self.action_scale = np.ones(1)
        self.action_spec = SPEC.model_copy(
            update={"kind": "action", "scale": (1.0,), "rate_hz": 2.0}
        )
        self.action_space = self.action_spec.space
        self.metadata = {"render_modes": [], "render_fps": 2}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict, dict]:
        gymnasium.Env.reset(self, seed=seed)
        self._scene = (options or {}).get("scene") or CountScene(seed=seed or 0)
        self._count = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[dict, float, bool, bool, dict]:
        self._count += 1
        done = self._count == STEPS
        info = {
            "action": check_action(action, 1)[0],
            "success": done,
            "outcome": SUCCESS if done else RUNNING,
        }
        return self._observe(), float(done), done, False, info

    @property
    def task_name(self) -> str:
        return "count"

    @property
    def scene(self) -> CountScene:
        return self._scene

    def state_digest(self) -> int:
        content = f"{self._scene.seed} {self._count}".encode()
        return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")

    def end_by_time_limit(self) -> str:
        raise NotImplementedError

    def _episode_state(self) -> Any:
        return self._scene, self._count

    def _continue_from(self, state: Any) -> None:
        self._scene, self._count = state

    def _observe(self) -> dict[str, np.ndarray]:
        return {"count": np.full(1, self._scene.seed % 100 + self._count, np.float32)}


def read_task(name: str) -> TaskFile:
    return TaskFile(name=name, content_digest="0" * 16, text="task: count\n", folder=None)


COUNTING = Arena(
    name=NAME,
    maker="support.own_code:CountEnv",
    scene="support.own_code:CountScene",
    task_file="support.own_code:read_task",
    packages=("numpy",),
)
