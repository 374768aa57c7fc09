"""The check of a model and the expert's use of it, in a process of its own.

The page stays alive meanwhile, and a model that ends a process does not end the page.
"""

import contextlib
import multiprocessing
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv, unwrap
from fleet_tools.policies.policy import Policy
from fleet_tools.policies.sources import find_policy
from fleet_tools.rollouts.rollout import rollout
from fleet_tools.sim.catalog import find_task_model
from fleet_tools.sim.simulation import Simulation
from fleet_tools.sim.world import build_world
from fleet_tools.sim.world_state import Snapshot
from fleet_tools.studio.checking.program import read_model
from fleet_tools.studio.viser_links import LinkMesh, LinkPoses, link_meshes, link_poses


@dataclass(frozen=True)
class ModelReport:
    """The report of `assets check`.

    Attributes:
        content: What `fleet_tools.studio.checking.program.make_report` returns.
    """

    content: dict[str, Any]


@dataclass(frozen=True)
class NoReport:
    """Why there is no report.

    Attributes:
        reason: The error.
    """

    reason: str


class TrialProcess:
    """A trial that runs.

    Args:
        folder: Folder of the model.
        scenes: Number of scenes in which the expert tries it.
        seed: Seed of the first scene.
        task: Name or path of the task; None for the package's that use its family.
    """

    def __init__(self, folder: Path, scenes: int, seed: int, task: str | None = None) -> None:
        context = multiprocessing.get_context("spawn")
        self._receiver, sender = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_work, args=(sender, folder, scenes, seed, task), daemon=True
        )
        self._process.start()
        sender.close()

    def messages(self) -> Iterator["ModelReport | ExpertMotion | NoReport"]:
        """Yields what the trial says, until it has ended."""
        said = False
        with contextlib.suppress(EOFError, OSError):
            while True:
                yield self._receiver.recv()
                said = True
        self._process.join()
        if not said and self._process.exitcode not in (0, -signal.SIGTERM):
            yield NoReport(f"The check ended with exit code {self._process.exitcode}.")

    def stop(self) -> None:
        """Ends the trial."""
        self._process.terminate()
        self._process.join()


def _work(sender: Connection, folder: Path, scenes: int, seed: int, task: str | None) -> None:
    """Checks a model, and records the expert in a scene in which it failed, or in the first one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the page, which ends this
    from fleet_tools.errors import FleetToolsError
    from fleet_tools.studio.checking.program import CheckOptions, make_report

    with contextlib.redirect_stdout(sys.stderr), contextlib.suppress(BrokenPipeError):
        try:
            options = CheckOptions(folder=folder, task=task, scenes=scenes, seed=seed, quiet=True)
            report = make_report(options)
            sender.send(ModelReport(report))
            for tried in report["trials"]:
                sender.send(_motion(folder, tried, seed))
        except FleetToolsError as error:
            sender.send(NoReport(str(error)))
        except Exception as error:  # a defect of ours, or of a library
            sender.send(NoReport(f"{type(error).__name__}: {error}"))


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


def record_motion(folder: Path, task: str, seed: int) -> ExpertMotion:
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
    simulation = Simulation(build_world(config, inner.robot, tool, object_), tool, object_, scene)
    poses = []
    for snapshot in snapshots:
        simulation.restore(snapshot)
        poses.append(link_poses(simulation))
    title = f"{tool.name} on {object_.name}, seed {seed}"
    links = link_meshes(simulation.world, scene)
    return ExpertMotion(title, episode.outcome, config.control_rate_hz, links, poses)
