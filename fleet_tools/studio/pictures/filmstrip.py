"""Filmstrips: frames of stored episodes, from the start to the end."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count

import gymnasium
import numpy as np

from fleet_tools.dataset.dataset_folder import Dataset
from fleet_tools.dataset.header import Header
from fleet_tools.dataset.stored_episode import AttemptRecord
from fleet_tools.envs.outcomes import SIMULATION_ERROR
from fleet_tools.perception.display import project
from fleet_tools.perception.opengl import require_driver
from fleet_tools.perception.point_cloud import OBJECT_MASK, TOOL_MASK
from fleet_tools.policies.policy import StoredActions
from fleet_tools.rollouts.episode import Episode, first_difference
from fleet_tools.studio.pictures.recording import PlannedEpisode, render_frame, run_observed

LENGTH = 5
"""Number of frames of a filmstrip: start, quarters and end of the episode."""

TOP, LEFT, HEIGHT, WIDTH = 80, 185, 355, 360
"""Part of the third-person view in which the scene is, in pixels."""


@dataclass(frozen=True, eq=False)
class Frame:
    """An image of one moment of an episode.

    Attributes:
        step: Control steps since the start.
        image: (height, width, 3) uint8.
        tool: (N, 2), observed points of the tool, in pixels right and down; they may lie outside
            the image.
        object: (N, 2), observed points of the object, likewise.
    """

    step: int
    image: np.ndarray
    tool: np.ndarray
    object: np.ndarray


@dataclass(frozen=True, eq=False)
class Filmstrip:
    """Frames of an episode.

    Attributes:
        record: Record of the attempt.
        frames: `LENGTH` frames, or fewer if the episode has fewer steps.
        first_difference: First step at which the replay of the episode differs from what is stored;
            None if it does not differ, or was not replayed.
    """

    record: AttemptRecord
    frames: list[Frame]
    first_difference: int | None = None


def color_cameras(header: Header) -> list[str]:
    """Returns the names of the cameras whose colour images a dataset stores."""
    return [
        name.removesuffix("_rgb")
        for name, array in header.observation.items()
        if array.kind == "rgb"
    ]


def make_filmstrips(dataset: Dataset, records: Iterable[AttemptRecord]) -> Iterator[Filmstrip]:
    """Yields a filmstrip of each episode.

    If the dataset stores colour images, the frames show these, the cameras one above the other.
    Otherwise the stored actions run again from the stored scene, and the frames show the
    third-person view, in which the stored keypoints or points of tool and object are located.

    Raises:
        DatasetError: An episode is damaged.
        MissingLibraryError: Images have to be rendered, but cannot be.
        FleetToolsError: The environment of the dataset cannot be made here.
    """
    cameras = color_cameras(dataset.header)
    if cameras:
        for record in records:
            yield _stored_images(record, dataset.episode(record.attempt), cameras)
        return
    require_driver()
    env = dataset.header.make_env(obs_mode="state", render_mode="rgb_array")
    try:
        for record in records:
            yield _replayed(record, dataset.episode(record.attempt), env)
    finally:
        env.close()


def _selected_steps(episode: Episode) -> list[int]:
    # The state after a simulation error cannot be shown.
    last = len(episode) - (episode.outcome == SIMULATION_ERROR)
    return np.unique(np.linspace(0, last, LENGTH).round().astype(int)).tolist()


def _stored_images(record: AttemptRecord, episode: Episode, cameras: list[str]) -> Filmstrip:
    no_points = np.zeros((0, 2))
    views = [episode.observations[f"{camera}_rgb"] for camera in cameras]
    return Filmstrip(
        record,
        [
            Frame(step, np.concatenate([view[step] for view in views]), no_points, no_points)
            for step in _selected_steps(episode)
        ],
    )


def _replayed(record: AttemptRecord, episode: Episode, env: gymnasium.Env) -> Filmstrip:
    selected, frames, steps = _selected_steps(episode), [], count()

    def add_frame(_: dict[str, np.ndarray]) -> None:
        step = next(steps)
        if step in selected:
            image = render_frame(env)[TOP : TOP + HEIGHT, LEFT : LEFT + WIDTH]
            frames.append(Frame(step, image, *_located_points(episode, step)))

    planned = PlannedEpisode("", StoredActions(episode.actions), scene=episode.scene)
    replayed = run_observed(env, planned, add_frame)
    # The observation modes may differ; the digests of the states do not depend on them.
    difference = first_difference(*(replace(e, observations={}) for e in (episode, replayed)))
    return Filmstrip(record, frames, None if difference is None else difference.step)


def _located_points(episode: Episode, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the stored points of tool and object, (N, 2) each, in pixels of the frame."""
    stored = {name: rows[step] for name, rows in episode.observations.items()}
    if "point_cloud" in stored:
        cloud = stored["point_cloud"]
        tool_E, object_E = (cloud[cloud[:, 3] == mask, :3] for mask in (TOOL_MASK, OBJECT_MASK))
    else:
        none = np.zeros((0, 3))
        tool_E = stored.get("tool_keypoints", none)
        object_E = stored.get("object_keypoints", none)
    X_WE = stored["end_effector_pose"].astype(np.float64)
    tool, object = (
        project(p_E @ X_WE[:, :3].T + X_WE[:, 3]) - (LEFT, TOP) for p_E in (tool_E, object_E)
    )
    return tool, object
