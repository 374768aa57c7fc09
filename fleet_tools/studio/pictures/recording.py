"""Episodes run for display, and their recordings in Meshcat."""

import base64
import gzip
import html
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from pydrake.geometry import Meshcat, MeshcatAnimation, Rgba, Sphere
from pydrake.math import RigidTransform
from pydrake.perception import BaseField, Fields, PointCloud

from fleet_tools.dataset.dataset_folder import Dataset
from fleet_tools.envs.recorded_env import StartScene
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv, unwrap
from fleet_tools.errors import ConfigError, DatasetError, MissingLibraryError
from fleet_tools.policies.policy import (
    EXPLANATION,
    Policy,
    StoredActions,
    begin,
    make_guarded,
    policy_info,
)
from fleet_tools.policies.sources import find_policy
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
    annotate,
    motions,
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
        title: Caption: the task, the scene and the policy.
        policy: The policy that acts.
        seed: Seed that draws the scene; None if `scene` is given.
        scene: The scene; None if it is drawn.
    """

    title: str
    policy: Policy
    seed: int | None = None
    scene: StartScene | None = None


class ObservedPolicy:
    """A policy with a callback, which receives each observation once the policy has acted on it."""

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

    It is called when the policy has chosen its action, and once at the end.
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
        self._meshcat, self._card = self._env.meshcat, ""
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
                drawing.move_cloud(motions(env.world_state(), state), state.time)

        with env.watched(move) if self._annotated else nullcontext():
            episode = run_observed(env, planned, draw)
        meshcat.StopRecording()
        meshcat.get_mutable_recording().set_loop_mode(MeshcatAnimation.LoopMode.kLoopRepeat)
        meshcat.PublishRecording()
        self._card = _card(planned, episode, drawing.marks if self._annotated else {})
        return episode

    def html(self) -> str:
        """Returns the last recording as a page that needs no server, and is packed.

        Its card says the task, the policy and the outcome, and has a legend of the annotations.
        """
        page, end, rest = self._meshcat.StaticHtml().rpartition("</body>")
        return packed_page(f"{page}{self._card}{end}{rest}")


_CARD = """<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
  #card { position: fixed; inset: auto auto .5rem .5rem; max-width: min(26rem, 100vw - 2.5rem);
    max-height: 40vh; overflow: auto; padding: .5rem .75rem; border-radius: .4rem; z-index: 1;
    color: #22262e; background: #fffd; font: 14px/1.4 system-ui, sans-serif; }
  @media (prefers-color-scheme: dark) { #card { color: #e6e9ef; background: #22262eee; } }
  #card summary { font-weight: 600; overflow-wrap: anywhere; cursor: pointer; }
  #card p { margin: .3rem 0 0; overflow-wrap: anywhere; }
  #card ul { margin: .3rem 0 0; padding: 0; list-style: none; }
  #card i { display: inline-block; width: .7em; height: .7em; margin-right: .5em;
    border-radius: 50%%; }
</style>
<details id="card" open>
<summary>%s</summary>
<p>%s</p>
<ul>%s</ul>
</details>
<script>document.title = document.querySelector("#card summary").textContent;</script>
"""


def _card(planned: PlannedEpisode, episode: Episode, marks: Mapping[str, Color]) -> str:
    """Returns what a recording shows, as a part of its page; names come from files of others."""
    scene = episode.scene
    objects = [each.object for each in getattr(scene, "objects", (scene,))]
    lines = [
        f"Tool: {scene.tool}. Object{'s' * (len(objects) > 1)}: {', '.join(map(str, objects))}.",
        f"Outcome: {episode.outcome}, after {len(episode)} steps.",
        *([f"Error: {episode.error}"] if episode.error else []),
        *([str(told)] if (told := episode.info.get(EXPLANATION)) else []),
    ]
    legend = (
        f'<li><i style="background: rgb({", ".join(f"{255 * part:.0f}" for part in color)})"></i>'
        f"{html.escape(mark)}</li>"
        for mark, color in marks.items()
    )
    return _CARD % (
        html.escape(planned.title),
        "<br>".join(map(html.escape, lines)),
        "".join(legend),
    )


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


def packed_page(page: str) -> str:
    """Returns a page that unpacks another one, and shows it in its own place.

    Most of a page of Meshcat is its script and meshes as text, so that less than half is left.
    """
    packed = gzip.compress(page.encode(), 9, mtime=0)
    return _PACKED % base64.b64encode(packed).decode()


def render_frame(env: gymnasium.Env) -> np.ndarray:
    """Returns the third-person view of the present state, (480, 640, 3) uint8.

    Raises:
        ConfigError: The environment has another render_mode than "rgb_array".
    """
    frame = env.render() if env.render_mode == "rgb_array" else None
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

    Attributes:
        marks: Colours of what has been drawn, by its meaning.
    """

    def __init__(self, meshcat: Meshcat) -> None:
        self._meshcat = meshcat
        self._planned: np.ndarray | None = None
        self._acting: np.ndarray | None = None
        self._plan_path = ""  # of the plan that is visible now
        self._cloud_paths: list[str] = []  # of the tool's and the object's visible points
        self._count = itertools.count()
        self.marks: dict[str, Color] = {}
        meshcat.Delete(ROOT)

    def draw(self, annotations: Annotations, time: float) -> None:
        """Draws annotations.

        Args:
            annotations: The annotations.
            time: Time from which they hold, later than in the last call, s.
        """
        seen = "" if annotations.cloud is None else " and points that cameras see"
        for owner, color in (("tool", TOOL_COLOR), ("object", OBJECT_COLOR)):
            self._draw_keypoints(owner, getattr(annotations, owner), color, time)
            self.marks[f"{owner}: keypoints{seen}"] = color
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

    def move_cloud(self, motions: tuple[RigidTransform, RigidTransform], time: float) -> None:
        """Moves the points of tool and object that were drawn last, at a time in s."""
        for path, X in zip(self._cloud_paths, motions, strict=False):
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
        known = self._planned
        if planned is None or (
            known is not None and planned.shape == known.shape and np.allclose(planned, known)
        ):
            return
        self.marks["tool: planned path"] = PLANNED_COLOR
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
            self.marks["tool: path so far"] = TRAVELLED_COLOR
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


@dataclass(frozen=True, eq=False)
class EpisodeSource:
    """Episodes that are to be run for display, and their environment.

    Attributes:
        env: The environment.
        episodes: The episodes; each is prepared when it is asked for.
    """

    env: ToolUseEnv
    episodes: Iterator[PlannedEpisode]


def policy_source(
    task: str, policy: str, first_seed: int, count: int, *, split: str, render_mode: str
) -> EpisodeSource:
    """Returns the episodes of a policy in the scenes of consecutive seeds.

    With a policy of the package, which reads no images, the environment observes point clouds where
    it can, so that they can be shown.

    Raises:
        FleetToolsError: There is no such task or policy, or the environment cannot be made.
    """
    source = find_policy(policy)
    make = EnvSpec.of(task, split=split, render_mode=render_mode).make_tool_use
    built_in = source.kind == "built_in"
    env = _with_point_cloud(make) if built_in else make(**source.env_kwargs)

    def episodes() -> Iterator[PlannedEpisode]:
        for seed in range(first_seed, first_seed + count):
            title = f"{env.task.name}, seed {seed}: {source.name}"
            yield PlannedEpisode(title, make_guarded(source, env, seed), seed=seed)

    return EpisodeSource(env, episodes())


def dataset_source(folder: Path, first_attempt: int, count: int, render_mode: str) -> EpisodeSource:
    """Returns the stored episodes of a dataset; their actions run again.

    Raises:
        DatasetError: The dataset cannot be read, or holds no such episode.
        FleetToolsError: Its environment cannot be made here.
    """
    dataset = Dataset(folder)
    records = [record for record in dataset.stored() if record.attempt >= first_attempt]
    if not records:
        raise DatasetError(
            f"{dataset.folder} holds no episode from attempt {first_attempt} or later; it has "
            f"{len(dataset)} episodes of {len(dataset.manifest())} attempts."
        )
    dataset.header.require_tool_use()
    env = _with_point_cloud(partial(dataset.header.make_env, render_mode=render_mode))

    def episodes() -> Iterator[PlannedEpisode]:
        for record in records[:count]:
            episode = dataset.episode(record.attempt)
            title = (
                f"{dataset.header.task.name}, attempt {record.attempt}: {dataset.header.policy}, "
                f"stored as {record.outcome}"
            )
            yield PlannedEpisode(title, StoredActions(episode.actions), scene=episode.scene)

    return EpisodeSource(env, episodes())


def _with_point_cloud(make: Callable[..., gymnasium.Env]) -> ToolUseEnv:
    """Makes an environment that observes point clouds if it has cameras."""
    try:
        return unwrap(make(obs_mode="point_cloud"))
    except (ConfigError, MissingLibraryError) as error:
        env = unwrap(make(obs_mode="state"))
        print(f"No point cloud is shown: {error}", file=sys.stderr)
        return env
