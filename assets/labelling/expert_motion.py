"""An episode of the expert as moving meshes, for display."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv, unwrap
from fleet_tools.perception.segmentation import BACKGROUND, OBJECT, ROBOT, TOOL
from fleet_tools.perception.visible_links import link_triangles, visible_frames
from fleet_tools.policies.policy import Policy
from fleet_tools.policies.sources import find_policy
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.sim.simulation import Simulation
from fleet_tools.sim.snapshot import Snapshot
from fleet_tools.sim.task_models import find_task_model
from fleet_tools.sim.world import build_world
from fleet_tools.studio.checking.program import read_model

COLOURS = {
    BACKGROUND: (196, 188, 176),
    ROBOT: (225, 227, 230),
    TOOL: (90, 130, 190),
    OBJECT: (222, 150, 70),
}
"""Red, green and blue of each segment, to 255."""


@dataclass(frozen=True, eq=False)
class MovingLink:
    """A visible link in an episode.

    Attributes:
        triangles: (n, 3, 3), its surface in its own frame, m.
        colour: Red, green and blue, to 255.
        X_WL: (steps + 1, 4, 4), its poses in the world.
    """

    triangles: np.ndarray
    colour: tuple[int, int, int]
    X_WL: np.ndarray


@dataclass(frozen=True, eq=False)
class Motion:
    """An episode for display.

    Attributes:
        title: What is shown.
        outcome: Outcome of the episode.
        rate_hz: Poses per second.
        links: The visible links.
    """

    title: str
    outcome: str
    rate_hz: float
    links: tuple[MovingLink, ...]


class _Watched:
    """A policy that notes the state of the simulation before each of its actions."""

    def __init__(self, policy: Policy, env: ToolUseEnv) -> None:
        self._policy, self._env = policy, env
        self.snapshots: list[Snapshot] = []

    def reset(self) -> None:
        self._policy.reset()

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        self.snapshots.append(self._env.get_state().snapshot)
        return self._policy.act(observation)


def record_motion(folder: Path, task: str, seed: int) -> Motion:
    """Lets the expert use a model in a scene, and returns what moves.

    Args:
        folder: Folder of the model.
        task: Name or path of the task.
        seed: Seed of the scene.

    Raises:
        FleetToolsError: The scene cannot begin.
    """
    model = read_model(folder)
    env = EnvSpec.of(
        task=task, split="all", **{model.labels.kind: str(model.file.parent)}
    ).make_tool_use()
    try:
        watched = _Watched(find_policy("expert").make(env), inner := unwrap(env))
        episode = rollout(env, watched, seed=seed)
        config, scene = inner.task, inner.scene
        snapshots = [*watched.snapshots, inner.get_state().snapshot]
    finally:
        env.close()
    tool = find_task_model(config, "tool", scene.tool)
    object_ = find_task_model(config, "object", scene.object)
    simulation = Simulation(build_world(config, tool, object_), tool, object_, scene)
    frames = list(visible_frames(simulation.world))
    poses: list[list[np.ndarray]] = [[] for _ in frames]
    for snapshot in snapshots:
        simulation.restore(snapshot)
        query = simulation.query()
        for (frame, _), found in zip(frames, poses, strict=True):
            found.append(query.GetPoseInWorld(frame).GetAsMatrix4())
    links = [
        MovingLink(
            link_triangles(simulation.world.scene_graph, frame), COLOURS[segment], np.array(found)
        )
        for (frame, segment), found in zip(frames, poses, strict=True)
    ]
    title = f"{tool.name} on {object_.name}, seed {seed}"
    return Motion(title, episode.outcome, config.control_rate_hz, tuple(links))
