"""Strips: the pictures of a stored episode, from its start to its end."""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import gymnasium
import numpy as np

from fleet_tools.dataset import Dataset, Record
from fleet_tools.dataset.header import Header, remake_environment
from fleet_tools.envs.outcomes import SIMULATION_ERROR
from fleet_tools.perception.opengl import require_driver
from fleet_tools.perception.point_cloud import OBJECT_MASK, TOOL_MASK
from fleet_tools.perception.third_person_view import project
from fleet_tools.rollouts.episode import Episode, StoredActions, first_difference
from fleet_tools.visualization.recording import Show, watch

LENGTH = 5
"""Pictures of an episode: start, quarters and end."""

TOP, LEFT, HEIGHT, WIDTH = 80, 185, 355, 360
"""The part of the third view in which something happens, in pixels."""


@dataclass(frozen=True, eq=False)
class Picture:
    """One moment of an episode.

    Attributes:
        step: Control steps since the start.
        pixels: (height, width, 3) uint8.
        tool, object: (N, 2), what was observed of them, in pixels right and down; it may lie
            beside the picture.
    """

    step: int
    pixels: np.ndarray
    tool: np.ndarray
    object: np.ndarray


@dataclass(frozen=True, eq=False)
class Strip:
    """An episode in pictures.

    Attributes:
        record: Of its attempt.
        pictures: At most `LENGTH`; fewer where it has fewer steps.
        parted: The first step at which running it again gave something else; None if nothing did.
    """

    record: Record
    pictures: list[Picture]
    parted: int | None = None


def colour_cameras(header: Header) -> list[str]:
    """Returns the names of the cameras whose colours a data set stores."""
    return [name.removesuffix("_rgb") for name in header.observation if name.endswith("_rgb")]


def take_strips(dataset: Dataset, records: Iterable[Record]) -> Iterator[Strip]:
    """Yields a strip of each episode.

    Where the cameras' colours are stored, it shows these, one camera above the other. Otherwise
    the stored actions run again from the stored scene, seen from the third view, in which the
    stored keypoints or points of tool and object are located.

    Args:
        dataset: Where the episodes are.
        records: Of attempts that are stored.

    Raises:
        DatasetError: An episode is damaged.
        MissingLibraryError: It has to be rendered, and cannot be.
        FleetToolsError: What the environment was made of does not exist here.
    """
    cameras = colour_cameras(dataset.header)
    if cameras:
        for record in records:
            yield _as_stored(record, dataset.episode(record.attempt), cameras)
        return
    require_driver()
    env = remake_environment(dataset.header, obs_mode="state", render_mode="rgb_array")
    try:
        for record in records:
            yield _run_again(record, dataset.episode(record.attempt), env)
    finally:
        env.close()


def _steps(episode: Episode) -> list[int]:
    # There is nothing to see of a state at which the simulator failed.
    last = len(episode) - (episode.outcome == SIMULATION_ERROR)
    return np.unique(np.linspace(0, last, LENGTH).round().astype(int)).tolist()


def _as_stored(record: Record, episode: Episode, cameras: list[str]) -> Strip:
    nothing = np.zeros((0, 2))
    views = [episode.observations[f"{camera}_rgb"] for camera in cameras]
    return Strip(
        record,
        [
            Picture(step, np.concatenate([view[step] for view in views]), nothing, nothing)
            for step in _steps(episode)
        ],
    )


def _run_again(record: Record, episode: Episode, env: gymnasium.Env) -> Strip:
    wanted, pictures, count = _steps(episode), [], itertools.count()

    def look(observation: dict[str, np.ndarray]) -> None:
        step = next(count)
        if step in wanted:
            pixels = env.render()[TOP : TOP + HEIGHT, LEFT : LEFT + WIDTH]
            pictures.append(Picture(step, pixels, *_locate(episode, step)))

    show = Show("", StoredActions(episode.actions), {"scene": episode.scene})
    again = watch(env, show, look)
    # Observations depend on what the environment is asked for; the states' digests do not.
    difference = first_difference(*(replace(e, observations={}) for e in (episode, again)))
    return Strip(record, pictures, None if difference is None else difference.step)


def _locate(episode: Episode, step: int) -> list[np.ndarray]:
    """Returns where the stored points of tool and object, (N, 2) each, lie in the picture."""
    stored = {name: rows[step] for name, rows in episode.observations.items()}
    if "point_cloud" in stored:
        cloud = stored["point_cloud"]
        points_E = [cloud[cloud[:, 3] == mask, :3] for mask in (TOOL_MASK, OBJECT_MASK)]
    else:
        none = np.zeros((0, 3))
        points_E = [stored.get(f"{part}_keypoints", none) for part in ("tool", "object")]
    X_WE = np.float64(stored["end_effector_pose"])
    return [project(p_E @ X_WE[:, :3].T + X_WE[:, 3]) - (LEFT, TOP) for p_E in points_E]
