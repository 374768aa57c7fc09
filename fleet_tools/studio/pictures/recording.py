"""Episodes run for display, and their recordings in Meshcat."""

import base64
import gzip
import itertools
import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from pydrake.geometry import Meshcat, MeshcatAnimation, Rgba, Sphere
from pydrake.math import RigidTransform
from pydrake.perception import BaseField, Fields, PointCloud

from fleet_tools.envs.recorded_env import StartScene
from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.errors import ConfigError
from fleet_tools.policies.policy import Policy, begin, policy_info
from fleet_tools.rollouts.episode import Episode
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.sim.simulation import Simulation
from fleet_tools.studio.pictures.annotations import (
    OBJECT_COLOR,
    PLANNED_COLOR,
    TOOL_COLOR,
    TRAVELLED_COLOR,
    Annotations,
    Color,
    PairMotion,
    annotate,
    present_state,
)

ObservationCallback = Callable[[dict[str, np.ndarray]], None]
"""Function that receives each observation of an episode."""

RECORDING_RATE_HZ = 64
"""Frame rate of recordings. Drake publishes at the same rate, so that frames do not mix moments."""

ROOT = "annotations"
KEYPOINT_RADIUS_M, KNOT_RADIUS_M, POINT_SIZE_M = 0.008, 0.004, 0.003
LINE_WIDTH = 4.0


@dataclass(frozen=True, eq=False)
class PlannedEpisode:
    """An episode that is to be run for display.

    Attributes:
        title: Caption.
        policy: The policy that acts.
        seed: Seed that draws the scene; None if `scene` is given.
        scene: The scene; None if it is drawn.
    """

    title: str
    policy: Policy
    seed: int | None = None
    scene: StartScene | None = None


class ObservedPolicy:
    """A policy with a callback, which receives each observation after the policy has acted on it.

    Args:
        policy: The policy.
        callback: Receives each observation.
    """

    def __init__(self, policy: Policy, callback: ObservationCallback) -> None:
        self._policy, self._callback = policy, callback

    def reset(self, seed: int = 0) -> None:
        """Resets the policy."""
        begin(self._policy, seed)

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns the policy's action, (6,)."""
        action = self._policy.act(observation)
        self._callback(observation)
        return action

    @property
    def info(self) -> dict[str, Any]:
        """The policy's `info`."""
        return dict(policy_info(self._policy))


def run_observed(
    env: gymnasium.Env, planned: PlannedEpisode, callback: ObservationCallback
) -> Episode:
    """Runs an episode; the callback receives all observations, from the first to the last.

    Args:
        env: The environment.
        planned: The episode.
        callback: Is called when the policy has chosen its action, and once at the end.
    """
    policy = ObservedPolicy(planned.policy, callback)
    episode = rollout(env, policy, seed=planned.seed, scene=planned.scene)
    callback({name: rows[-1] for name, rows in episode.observations.items()})
    return episode


class MeshcatRecorder:
    """Records episodes in an environment's Meshcat server, one at a time.

    Args:
        env: An environment with render_mode "human".
        annotated: Whether keypoints, the plan, the path and the point cloud are drawn.

    Attributes:
        url: Address at which a browser shows the last recording.

    Raises:
        ConfigError: The environment has another render mode.
    """

    def __init__(self, env: gymnasium.Env, *, annotated: bool = True) -> None:
        self._env, self._annotated = unwrap(env), annotated
        if self._env.meshcat is None:
            raise ConfigError(
                'Recordings need an environment with render_mode="human"; '
                f"given: {self._env.render_mode!r}."
            )
        self._meshcat = self._env.meshcat
        self.url = self._meshcat.web_url()

    def record(self, planned: PlannedEpisode) -> Episode:
        """Runs an episode, and publishes a recording of it."""
        env, meshcat = self._env, self._meshcat
        meshcat.DeleteRecording()
        meshcat.StartRecording(RECORDING_RATE_HZ, set_visualizations_while_recording=False)
        drawing = MeshcatDrawing(meshcat)

        frame = 0

        def draw(observation: dict[str, np.ndarray]) -> None:
            if self._annotated:
                drawing.draw(annotate(env, observation, planned.policy), env.world_state().time)

        def move(simulation: Simulation) -> None:
            # Drake publishes at the start of each frame, when this is called, too.
            nonlocal frame
            before, frame = frame, math.floor(simulation.time * RECORDING_RATE_HZ)
            within = simulation.time < simulation.steps / env.task.control_rate_hz
            if frame != before and within and (state := present_state(simulation)):
                drawing.move_cloud(PairMotion.between(env.world_state(), state), state.time)

        with env.watched(move) if self._annotated else nullcontext():
            episode = run_observed(env, planned, draw)
        meshcat.StopRecording()
        meshcat.get_mutable_recording().set_loop_mode(MeshcatAnimation.LoopMode.kLoopRepeat)
        meshcat.PublishRecording()
        return episode

    def html(self) -> str:
        """Returns the last recording as a page that needs no server, and is packed."""
        return packed_page(self._meshcat.StaticHtml())


_PACKED = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Fleet-Tools: a recording</title></head>
<body>
<p>This page needs JavaScript, in a browser of 2023 or later.</p>
<script>
(async () => {
  const packed = atob("%s");
  const bytes = Uint8Array.from(packed, character => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const page = await new Response(stream).text();
  document.open();
  document.write(page);
  document.close();
})();
</script>
</body>
</html>
"""


def packed_page(html: str) -> str:
    """Returns a page that unpacks another one, and shows it in its own place.

    Most of a page of Meshcat is its script and meshes as text, so that less than half is left.
    """
    packed = gzip.compress(html.encode(), 9, mtime=0)
    return _PACKED % base64.b64encode(packed).decode()


def render_frame(env: gymnasium.Env) -> np.ndarray:
    """Returns the third-person view of the present state, (480, 640, 3) uint8.

    Raises:
        ConfigError: The environment has another render_mode than "rgb_array".
    """
    frame = env.render()
    if not isinstance(frame, np.ndarray):
        raise ConfigError(
            f'Frames need an environment with render_mode="rgb_array"; given: {env.render_mode!r}.'
        )
    return frame


# --- Annotations in Meshcat -----------------------------------------------------------------


class MeshcatDrawing:
    """Draws the annotations of one episode into Meshcat.

    A recording can move and show objects, but not create them. Therefore lines and clouds, which
    change their shape, are drawn as one object per moment, and each is shown from its time on.

    Args:
        meshcat: The server; drawings of earlier episodes are removed from it.
    """

    def __init__(self, meshcat: Meshcat) -> None:
        self._meshcat = meshcat
        self._planned: np.ndarray | None = None
        self._acting: np.ndarray | None = None
        self._plan_path = ""  # of the plan that is visible now
        self._cloud_paths: list[str] = []  # of the tool's and the object's visible points
        self._count = itertools.count()
        meshcat.Delete(ROOT)

    def draw(self, annotations: Annotations, time: float) -> None:
        """Draws annotations.

        Args:
            annotations: The annotations.
            time: Time from which they hold, later than in the last call, s.
        """
        self._draw_keypoints("tool", annotations.tool, TOOL_COLOR, time)
        self._draw_keypoints("object", annotations.object, OBJECT_COLOR, time)
        self._draw_plan(annotations.planned, time)
        self._draw_travelled(annotations.acting, time)
        if annotations.cloud is not None:
            for path in self._cloud_paths:
                self._hide(path, time)
            tool, object = annotations.cloud.tool, annotations.cloud.object
            self._cloud_paths = [
                self._add_points("tool", tool, TOOL_COLOR, time),
                self._add_points("object", object, OBJECT_COLOR, time),
            ]

    def move_cloud(self, motion: PairMotion, time: float) -> None:
        """Moves the points that were drawn last.

        Args:
            motion: PairMotion of tool and object since then.
            time: Time since the start of the episode, s.
        """
        for path, X in zip(self._cloud_paths, (motion.tool, motion.object), strict=False):
            self._meshcat.SetTransform(path, X, time)

    def _add_points(self, owner: str, p_W: np.ndarray, color: Color, time: float) -> str:
        """Adds points (N, 3) that are visible from a time on, and returns their path."""
        drawn = PointCloud(len(p_W), Fields(BaseField.kXYZs | BaseField.kRGBs))
        drawn.mutable_xyzs()[:] = np.transpose(p_W)
        drawn.mutable_rgbs()[:] = np.round(255.0 * np.array(color))[:, None]
        path = self._new_path(f"cloud/{owner}")
        self._meshcat.SetObject(path, drawn, point_size=POINT_SIZE_M)
        self._meshcat.SetTransform(path, RigidTransform(), time)
        self._show(path, time)
        return path

    def _draw_keypoints(
        self, owner: str, points: Mapping[str, np.ndarray], color: Color, time: float
    ) -> None:
        for name, p_W in points.items():
            path = f"{ROOT}/keypoints/{owner}/{name}"
            if not self._meshcat.HasPath(path):
                self._meshcat.SetObject(path, Sphere(KEYPOINT_RADIUS_M), Rgba(*color))
            self._meshcat.SetTransform(path, RigidTransform(p_W), time)

    def _draw_plan(self, planned: np.ndarray | None, time: float) -> None:
        if planned is None or _agree(planned, self._planned):
            return
        self._hide(self._plan_path, time)
        self._planned, self._plan_path = planned, self._new_path("planned")
        line, color = f"{self._plan_path}/way", Rgba(*PLANNED_COLOR)
        self._meshcat.SetLine(line, planned.T, LINE_WIDTH, color)
        for k, p_W in enumerate(planned):
            knot = f"{self._plan_path}/knots/{k}"
            self._meshcat.SetObject(knot, Sphere(KNOT_RADIUS_M), color)
            self._meshcat.SetTransform(knot, RigidTransform(p_W))
        self._show(self._plan_path, time)

    def _draw_travelled(self, acting: np.ndarray, time: float) -> None:
        if self._acting is not None:
            path = self._new_path("travelled")
            ends = np.column_stack([self._acting, acting])
            self._meshcat.SetLine(path, ends, LINE_WIDTH, Rgba(*TRAVELLED_COLOR))
            self._show(path, time)
        self._acting = acting

    def _new_path(self, kind: str) -> str:
        return f"{ROOT}/{kind}/{next(self._count)}"

    def _show(self, path: str, time: float) -> None:
        if time > 0.0:
            self._meshcat.SetProperty(path, "visible", False, 0.0)
        self._meshcat.SetProperty(path, "visible", True, time)

    def _hide(self, path: str, time: float) -> None:
        if path:
            self._meshcat.SetProperty(path, "visible", False, time)


def _agree(planned: np.ndarray, before: np.ndarray | None) -> bool:
    """Whether two plans have the same positions, apart from rounding."""
    return before is not None and planned.shape == before.shape and np.allclose(planned, before)
