"""Films of stored episodes: each method in the same scenes, one of each task, in one picture."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import gymnasium
import numpy as np

from fleet_tools.envs.tool_use_env import CONTROL_RATE
from fleet_tools.evaluation.result import EpisodeResult, decode_actions
from fleet_tools.evaluation.trial import scene_of
from fleet_tools.leaderboard.standings import Standing
from fleet_tools.perception.opengl import require_driver
from fleet_tools.registration import make_environment
from fleet_tools.rollouts.episode import StoredActions
from fleet_tools.visualization.filmstrip import HEIGHT, LEFT, TOP, WIDTH
from fleet_tools.visualization.recording import Show, watch
from fleet_tools.visualization.video import require_video, write_video

CLIP_WIDTH, CLIP_HEIGHT = 192, 192
"""Of a task's part of a clip, in pixels."""

REST = CONTROL_RATE  # a second, in which the last picture stays


@dataclass(frozen=True)
class Clip:
    """A film.

    Attributes:
        video: MP4.
        width, height: In pixels.
        outcomes: What is to be seen, by task, row by row.
    """

    video: bytes
    width: int
    height: int
    outcomes: dict[str, str]


def require_clips() -> None:
    """Says what clips need where it is missing.

    Raises:
        MissingLibraryError: There is nothing to render with, or to write videos with.
    """
    require_video()
    require_driver()


def take_clips(rows: Sequence[Standing]) -> dict[str, Clip]:
    """Returns a clip of each method that has an episode to show.

    Nobody chooses what is shown: it is the first scene of each task and the first split, as the
    first training met it.

    Args:
        rows: The methods.

    Raises:
        MissingLibraryError: See `require_clips`.
    """
    shown = {row.name: _first_episodes(row) for row in rows}
    films: dict[tuple[str, str], list[np.ndarray]] = {}
    for task in dict.fromkeys(task for of_row in shown.values() for task in of_row):
        env = make_environment(task=task, render_mode="rgb_array")
        try:
            for row in rows:
                if task in shown[row.name]:
                    films[row.name, task] = _film(env, row, shown[row.name][task])
        finally:
            env.close()
    return {
        row.name: _clip(
            [films[row.name, task] for task in shown[row.name]],
            {task: episode.outcome for task, episode in shown[row.name].items()},
        )
        for row in rows
        if shown[row.name]
    }


def _first_episodes(row: Standing) -> dict[str, EpisodeResult]:
    """Returns what is shown of a method, by task; nothing of an episode that took no step."""
    split = next(iter(row.submissions[0].evaluation.result.protocol.splits))
    first: dict[str, EpisodeResult] = {}
    for training in row.trainings:
        for episode in training.episodes:
            if (episode.split, episode.index) == (split, 0) and episode.steps:
                first.setdefault(episode.task, episode)
    return first


def _film(env: gymnasium.Env, row: Standing, episode: EpisodeResult) -> list[np.ndarray]:
    from PIL import Image

    pictures: list[np.ndarray] = []

    def look(_: dict[str, np.ndarray]) -> None:
        view = env.render()[TOP : TOP + HEIGHT, LEFT : LEFT + WIDTH]
        small = Image.fromarray(view).resize((CLIP_WIDTH, CLIP_HEIGHT), Image.Resampling.LANCZOS)
        pictures.append(np.asarray(small))

    protocol = row.submissions[0].evaluation.result.protocol
    actions = StoredActions(decode_actions(episode.actions))
    watch(env, Show("", actions, {"scene": scene_of(env, protocol, episode)}), look)
    return pictures


def _clip(films: list[list[np.ndarray]], outcomes: dict[str, str]) -> Clip:
    length = max(map(len, films)) + REST
    frames = [_tiled([film[min(k, len(film) - 1)] for film in films]) for k in range(length)]
    height, width, _ = frames[0].shape
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clip.mp4"
        write_video(path, frames, CONTROL_RATE, reproducible=True)
        return Clip(path.read_bytes(), width, height, outcomes)


def _tiled(pictures: list[np.ndarray]) -> np.ndarray:
    """Returns pictures of one size as one, two to a row; what is left over is white."""
    columns = min(2, len(pictures))
    white = [np.full_like(pictures[0], 255)] * (-len(pictures) % columns)
    filled = [*pictures, *white]
    rows = [np.concatenate(filled[k : k + columns], axis=1) for k in range(0, len(filled), columns)]
    return np.concatenate(rows)
