"""Checks a labelled model and runs the expert with it, in another process.

The page stays alive meanwhile, and a model that ends a process does not end the page.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fleet_tools.envs.spec import EnvSpec
from fleet_tools.errors import FleetToolsError
from fleet_tools.parallel.child_process import ChildProcess
from fleet_tools.policies.sources import find_policy
from fleet_tools.sim.catalog import find_task_model
from fleet_tools.sim.simulation import Simulation
from fleet_tools.sim.world import build_world
from fleet_tools.sim.world_state import Snapshot
from fleet_tools.studio.checking.program import read_model
from fleet_tools.studio.pictures.recording import PlannedEpisode, run_observed
from fleet_tools.studio.viser_links import LinkMesh, LinkPoses, link_meshes, link_poses

_GRACE_S = 5.0


class TrialProcess:
    """A trial that runs.

    Args:
        folder: Folder of the model.
        scenes: Number of scenes in which the expert tries it.
        seed: Seed of the first scene.
        task: Name or path of the task; None for the package's that use its family.
    """

    def __init__(self, folder: Path, scenes: int, seed: int, task: str | None = None) -> None:
        self._process, self._stopped = ChildProcess(__name__), False
        self._process.connection.send((folder, scenes, seed, task))

    def messages(self) -> "Iterator[dict[str, Any] | ExpertMotion | str]":
        """Yields the report of `make_report`, motions, or why there are none, until its end."""
        said = False
        with contextlib.suppress(EOFError, OSError):
            while True:
                yield self._process.connection.recv()
                said = True
        ending = self._process.end(_GRACE_S)
        if not said and not self._stopped:
            yield f"The check ended with {ending}."

    def stop(self) -> None:
        """Ends the trial."""
        self._stopped = True
        self._process.kill()


def main(connection: Connection) -> None:
    """Checks a model, and records the expert in a scene in which it failed, or in the first one."""
    from fleet_tools.studio.checking.program import CheckOptions, make_report

    folder, scenes, seed, task = connection.recv()
    with contextlib.suppress(BrokenPipeError):
        try:
            options = CheckOptions(folder=folder, task=task, scenes=scenes, seed=seed, quiet=True)
            report = make_report(options)
            connection.send(report)
            for tried in report["trials"]:
                connection.send(_motion(folder, tried, seed))
        except FleetToolsError as error:
            connection.send(str(error))
        except Exception as error:  # a defect of ours, or of a library
            connection.send(f"{type(error).__name__}: {error}")


def _motion(folder: Path, tried: dict[str, Any], seed: int) -> "ExpertMotion":
    failed = [each["example"]["seed"] for each in tried["failures"].values()]
    return record_motion(folder, tried["task"], failed[0] if failed else seed)


# --- An episode of the expert as moving meshes, for display -----------------------------------


@dataclass(frozen=True, eq=False)
class ExpertMotion:
    """An episode for display.

    Attributes:
        title: What is shown.
        outcome: Outcome of the episode.
        rate_hz: Poses per second.
        links: The shapes of each visible link.
        poses: Their poses, at the beginning and after each step.
    """

    title: str
    outcome: str
    rate_hz: float
    links: list[list[LinkMesh]]
    poses: list[LinkPoses]


def record_motion(folder: Path, task: str, seed: int) -> ExpertMotion:
    """Lets the expert use a model in a scene, and returns the motion.

    Raises:
        FleetToolsError: The scene cannot begin.
    """
    model = read_model(folder)
    env = EnvSpec.of(
        task=task, split="all", **{model.labels.kind: str(model.file.parent)}
    ).make_tool_use()
    try:
        planned = PlannedEpisode("", find_policy("expert").make(env), seed=seed)
        snapshots: list[Snapshot] = []
        episode = run_observed(env, planned, lambda _: snapshots.append(env.get_state().snapshot))
        config, scene, robot = env.task, env.scene, env.robot
    finally:
        env.close()
    tool = find_task_model(config, "tool", scene.tool)
    object_ = find_task_model(config, "object", scene.object)
    simulation = Simulation(build_world(config, robot, tool, object_), tool, object_, scene)
    poses = []
    for snapshot in snapshots:
        simulation.restore(snapshot)
        poses.append(link_poses(simulation))
    title = f"{tool.name} on {object_.name}, seed {seed}"
    links = link_meshes(simulation.world, scene)
    return ExpertMotion(title, episode.outcome, config.control_rate_hz, links, poses)
