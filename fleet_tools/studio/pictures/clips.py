"""Videos of stored episodes, which run again from their actions."""

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.evaluation.protocol import Protocol
from fleet_tools.evaluation.result import EpisodeResult, decode_actions
from fleet_tools.evaluation.trial import trial_scene
from fleet_tools.leaderboard.board import Board, Clip
from fleet_tools.leaderboard.standings import Standing
from fleet_tools.perception.opengl import require_driver
from fleet_tools.policies.policy import StoredActions
from fleet_tools.studio.pictures.filming import require_video, write_video
from fleet_tools.studio.pictures.recording import PlannedEpisode, render_frame, run_observed
from fleet_tools.utils.libraries import require

TOP, LEFT, HEIGHT, WIDTH = 80, 185, 355, 360
"""Part of the third-person view in which the scene is, pixels."""

CLIP_WIDTH, CLIP_HEIGHT = 192, 192
"""Size of a task's view in a clip, pixels."""

PAUSE_S = 1.0
"""Duration of the last frame."""


@dataclass(frozen=True, eq=False)
class EpisodeView:
    """An episode in a clip.

    Attributes:
        frames: (CLIP_HEIGHT, CLIP_WIDTH, 3) uint8 each.
        rate_hz: Frames per second.
    """

    frames: Sequence[np.ndarray]
    rate_hz: float

    def at(self, k: int, rate_hz: float) -> np.ndarray:
        """Returns the image at the time of frame k of a clip; the last frame stays."""
        return self.frames[min(int(k * self.rate_hz / rate_hz), len(self.frames) - 1)]

    @property
    def duration_s(self) -> float:
        """Duration of the episode, with its last frame."""
        return len(self.frames) / self.rate_hz


def require_clips() -> None:
    """Checks that clips can be rendered and written.

    Raises:
        MissingLibraryError: They cannot; the message says what to install.
    """
    require_video()
    require("PIL", "scale images")
    require_driver()


def with_clips(board: Board, standings: Sequence[Standing], protocol: Protocol) -> Board:
    """Returns a board with a clip of each method that the host has run, in fresh scenes.

    The choice is fixed: the first fresh scene of each task in the first split, as in the method's
    first training run.

    Raises:
        MissingLibraryError: See `require_clips`.
    """
    shown = [_first_episodes(standing, protocol) for standing in standings]
    views: dict[tuple[int, str], EpisodeView] = {}
    for task in dict.fromkeys(task for of_method in shown for task in of_method):
        env = protocol.make_env(task, trusted=True, render_mode="rgb_array")  # the host's own
        with contextlib.closing(env):
            for number, of_method in enumerate(shown):
                if episode := of_method.get(task):
                    views[number, task] = view_episode(env, protocol, episode)
    clips = [
        make_clip([views[k, task] for task in of], {task: e.outcome for task, e in of.items()})
        if of
        else None
        for k, of in enumerate(shown)
    ]
    pairs = zip(board.methods, clips, strict=True)
    return replace(board, methods=tuple(replace(method, clip=clip) for method, clip in pairs))


def _first_episodes(standing: Standing, protocol: Protocol) -> dict[str, EpisodeResult]:
    """Returns the episodes of a method that are shown, by task; none without any step."""
    first: dict[str, EpisodeResult] = {}
    for evaluation in standing.host.values():
        for episode in evaluation.episodes:
            if (episode.split, episode.index) == (next(iter(protocol.splits)), 0) and episode.steps:
                first.setdefault(episode.task, episode)
    return first


def view_episode(env: ToolUseEnv, protocol: Protocol, episode: EpisodeResult) -> EpisodeView:
    """Runs an episode's actions again in an environment of its task, with "rgb_array"."""
    from PIL import Image

    frames: list[np.ndarray] = []

    def add_frame(_: dict[str, np.ndarray]) -> None:
        view = render_frame(env)[TOP : TOP + HEIGHT, LEFT : LEFT + WIDTH]
        small = Image.fromarray(view).resize((CLIP_WIDTH, CLIP_HEIGHT), Image.Resampling.LANCZOS)
        frames.append(np.asarray(small))

    actions = StoredActions(decode_actions(episode.actions))
    scene = trial_scene(env, protocol, episode)
    run_observed(env, PlannedEpisode("", actions, scene=scene), add_frame)
    return EpisodeView(frames, env.task.control_rate_hz)


def make_clip(views: Sequence[EpisodeView], outcomes: Mapping[str, str]) -> Clip:
    """Returns a clip of episodes, two to a row, which begin at the same time."""
    rate_hz = max(view.rate_hz for view in views)
    length = round((max(view.duration_s for view in views) + PAUSE_S) * rate_hz)
    frames = [_tiled([view.at(k, rate_hz) for view in views]) for k in range(length)]
    height, width, _ = frames[0].shape
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clip.mp4"
        write_video(path, frames, rate_hz, reproducible=True)
        return Clip(path.read_bytes(), width, height, outcomes)


def _tiled(images: Sequence[np.ndarray]) -> np.ndarray:
    """Returns images of one size as a single one, two to a row; an empty place is white."""
    columns = min(2, len(images))
    white = [np.full_like(images[0], 255)] * (-len(images) % columns)
    filled = [*images, *white]
    rows = [np.concatenate(filled[k : k + columns], axis=1) for k in range(0, len(filled), columns)]
    return np.concatenate(rows)
