"""Photographs as jobs: states of stored episodes or of a scene, and the work of each process."""

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet_tools.config.tasks import TaskConfig, task_names
from fleet_tools.config.values import parse
from fleet_tools.dataset.dataset_folder import Dataset
from fleet_tools.envs.episode_state import EnvState
from fleet_tools.envs.outcomes import SIMULATION_ERROR
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.errors import ConfigError, DatasetError, UnknownNameError
from fleet_tools.robot.arm import LIGHT, Arm
from fleet_tools.sim.scene import Scene
from fleet_tools.storage.strict_json import load
from fleet_tools.studio.photographs.photographer import Photographer


@dataclass(frozen=True, eq=False)
class PhotoJob:
    """A photograph that is to be taken.

    Attributes:
        name: Name of the state; with the camera's name, the stem of the files.
        state: The state.
        camera: Name of the camera.
    """

    name: str
    state: EnvState
    camera: str


@dataclass(frozen=True, eq=False)
class PhotoSource:
    """States that are to be photographed.

    Attributes:
        task: The task.
        robot: The arm.
        robot_visuals: Its visual meshes.
        states: The states by name; each is simulated when it is asked for.
    """

    task: TaskConfig
    robot: Arm
    robot_visuals: str
    states: Iterator[tuple[str, EnvState]]


def dataset_states(folder: Path, episodes: int | None, every: int) -> PhotoSource:
    """Returns states of the stored episodes of a dataset.

    The stored actions run again, and every state is compared with the stored one bit for bit.

    Args:
        folder: Folder of the dataset.
        episodes: Number of episodes, from the first; None takes all.
        every: Number of control steps from one state to the next.

    Raises:
        DatasetError: The dataset cannot be read, or holds no episodes; while iterating, a stored
            episode is damaged, or its replay differs.
        FleetToolsError: Its environment cannot be made here.
    """
    dataset = Dataset(folder)
    records = dataset.stored()[:episodes]
    if not records:
        raise DatasetError(f"{dataset.folder} holds no episodes yet.")
    header = dataset.header
    header.require_tool_use()
    env = unwrap(header.make_env(obs_mode="state"))
    visuals = str(header.env_spec.kwargs.get("robot_visuals", LIGHT))

    def states() -> Iterator[tuple[str, EnvState]]:
        for record in records:
            episode = dataset.episode(record.attempt)
            env.reset(options={"scene": episode.scene})
            for step in range(len(episode) + 1):
                if step:
                    env.step(episode.actions[step - 1])
                if env.state_digest() != episode.digests[step]:
                    raise DatasetError(
                        f"{record.file} does not replay here: it differs at step {step}. "
                        "`python -m fleet_tools.replay "
                        f"{shlex.quote(str(dataset.folder))}` tells more."
                    )
                failed = episode.outcome == SIMULATION_ERROR and step == len(episode)
                if step % every == 0 and not failed:
                    yield f"{record.attempt:06d}_{step:03d}", env.get_state()

    return PhotoSource(env.task, env.robot, visuals, states())


def read_scene_file(file: Path) -> Scene:
    """Reads a scene.

    Raises:
        ConfigError: The file is not a scene.
    """
    try:
        return parse(Scene, load(file), str(file))
    except (OSError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{file} is not a scene as JSON: {error}") from error


def scene_state(file: Path, task: str | None) -> PhotoSource:
    """Returns the initial state of a scene.

    Args:
        file: The scene as JSON.
        task: Path of the task file; None for a task of the package, which the scene names.

    Raises:
        ConfigError, UnknownNameError: The file is not a scene, or its task does not exist.
    """
    scene = read_scene_file(file)
    if task is None and scene.task not in task_names():  # a path there could name code
        remedy = "A task file of your own is given beside the scene."
        raise UnknownNameError(f"task of the scene {file}", scene.task, task_names(), remedy)
    env = EnvSpec.of(task=task or scene.task).make_tool_use()
    env.reset(options={"scene": scene})
    return PhotoSource(env.task, env.robot, LIGHT, iter([(file.stem, env.get_state())]))


def make_photographs(
    task: TaskConfig,
    robot: Arm,
    server: str,
    size: tuple[int, int],
    robot_visuals: str,
    folder: Path,
) -> Callable[[PhotoJob], dict[str, Any]]:
    """Returns a function that takes a photograph, and writes its files.

    Args:
        task: See `Photographer`.
        robot: See `Photographer`.
        server: See `Photographer`.
        size: See `Photographer`.
        robot_visuals: See `Photographer`.
        folder: Folder of the files.

    Returns:
        The function; it returns what the index of photographs holds about one, as plain JSON data.
    """
    photographer = Photographer(task, robot, server, size, robot_visuals)

    def photograph(job: PhotoJob) -> dict[str, Any]:
        taken = photographer.photograph(job.state, job.camera)
        return {
            "name": job.name,
            "camera": job.camera,
            **taken.save(folder / f"{job.name}_{job.camera}"),
            "K": taken.K.tolist(),
            "X_WC": taken.X_WC.GetAsMatrix4().tolist(),
            "scene": job.state.scene.model_dump(mode="json"),
            "step": job.state.snapshot.step,
        }

    return photograph
