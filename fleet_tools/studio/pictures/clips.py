"""Videos of stored episodes, which run again from their actions; and a page of the failed ones."""

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

from fleet_tools.envs.tool_use_env import ToolUseEnv, unwrap
from fleet_tools.errors import FleetToolsError
from fleet_tools.evaluation.protocol import Protocol
from fleet_tools.evaluation.result import EpisodeResult, Evaluation, decode_actions
from fleet_tools.evaluation.trial import present_env, trial_scene
from fleet_tools.leaderboard.board import Clip
from fleet_tools.leaderboard.html_parts import figure, page_head
from fleet_tools.leaderboard.standings import Standing
from fleet_tools.perception.opengl import require_driver
from fleet_tools.policies.policy import EXPLANATION, StoredActions
from fleet_tools.studio.pictures.filming import require_video, write_video
from fleet_tools.studio.pictures.filmstrip import HEIGHT, LEFT, TOP, WIDTH
from fleet_tools.studio.pictures.recording import PlannedEpisode, render_frame, run_observed

CLIP_WIDTH, CLIP_HEIGHT = 192, 192
"""Size of a task's view in a clip, pixels."""

PAUSE_S = 1.0
"""How long the last frames are shown."""


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
        """Returns what is shown at the time of frame k of a clip; the last frame stays."""
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
    require_driver()


def make_clips(standings: Sequence[Standing]) -> dict[str, Clip]:
    """Returns a clip of each method that has episodes to show, by its label.

    The choice is fixed: the first scene of each task in the first split, as in the method's first
    training run.

    Raises:
        MissingLibraryError: See `require_clips`.
    """
    shown = {standing.label: _first_episodes(standing) for standing in standings}
    views: dict[tuple[str, str], EpisodeView] = {}
    for task in dict.fromkeys(task for of_method in shown.values() for task in of_method):
        protocol = next(_protocol(each) for each in standings if task in shown[each.label])
        env = protocol.make_env(task, trusted=True, render_mode="rgb_array")  # the host's own
        try:
            for standing in standings:
                if episode := shown[standing.label].get(task):
                    views[standing.label, task] = view_episode(env, _protocol(standing), episode)
        finally:
            env.close()
    return {
        name: make_clip(
            [views[name, task] for task in episodes],
            {task: episode.outcome for task, episode in episodes.items()},
        )
        for name, episodes in shown.items()
        if episodes
    }


def _protocol(standing: Standing) -> Protocol:
    return standing.submissions[0].evaluation.result.protocol


def _first_episodes(standing: Standing) -> dict[str, EpisodeResult]:
    """Returns the episodes of a method that are shown, by task; none without any step."""
    first_split = next(iter(_protocol(standing).splits))
    first: dict[str, EpisodeResult] = {}
    for run in standing.training_runs:
        for episode in run.episodes:
            if (episode.split, episode.index) == (first_split, 0) and episode.steps:
                first.setdefault(episode.task, episode)
    return first


def view_episode(env: ToolUseEnv, protocol: Protocol, episode: EpisodeResult) -> EpisodeView:
    """Runs an episode's actions again, with render_mode "rgb_array", and returns its view."""
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
    """Returns a clip of episodes beside each other, which begin at the same time.

    Args:
        views: The episodes, two to a row.
        outcomes: See `Clip`.
    """
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


SHOWN = 3
"""Number of episodes of each task and outcome that the page shows."""


def failure_page(evaluation: Evaluation) -> str:
    """Returns the first failed episodes of each task and outcome as an HTML page without files.

    Episodes run again from their stored actions. One that ends otherwise here, as may happen on
    another processor, says so.

    Args:
        evaluation: The evaluation; its task files are trusted like code.

    Raises:
        MissingLibraryError: See `require_clips`.
    """
    result, episodes = evaluation.result, evaluation.episodes
    failed = [episode for episode in episodes if not episode.success]
    title = f"Failures of {result.policy.name}"
    lines = [
        *page_head(title),
        f"<header><h1>{escape(title)}</h1>",
        f"<p>{escape(result.protocol.title)}: {len(failed)} of {len(episodes)} episodes failed. ",
        f"Shown are the first {SHOWN} of each task and outcome, from their stored actions.</p>",
        "</header><main>",
        *_sections(evaluation, failed),
        "</main></body></html>",
        "",
    ]
    return "\n".join(lines)


def _sections(evaluation: Evaluation, failed: Sequence[EpisodeResult]) -> Iterator[str]:
    result = evaluation.result
    robot = {k: v for k, v in result.policy.env_kwargs.items() if k == "robot"}
    env_of = present_env(result.protocol, trusted=True, render_mode="rgb_array", **robot)
    groups: dict[tuple[str, str], list[EpisodeResult]] = {}
    for episode in failed:
        groups.setdefault((episode.task, episode.outcome), []).append(episode)
    for (task, outcome), group in sorted(groups.items()):
        yield f"<section><h2>{escape(task)}: {escape(outcome)}, {len(group)} episodes</h2>"
        yield '<div class="clips">'
        for episode in (each for each in group[:SHOWN] if each.steps):
            env = unwrap(env_of(task))
            view = view_episode(env, result.protocol, episode)
            clip = make_clip([view], {task: outcome})
            name = f"{task}, {episode.split}, seed {episode.seed}"
            caption = f"{name}: {episode.tool} and {episode.object}, {episode.steps} steps"
            yield figure(name, clip, "; ".join([caption, *_reasons(env, episode)]))
        yield "</div></section>"


def _reasons(env: ToolUseEnv, episode: EpisodeResult) -> Iterator[str]:
    """Yields why an episode failed, as its policy and the task's predicates say at its end."""
    if why := episode.error or episode.info.get(EXPLANATION):
        yield str(why)
    with contextlib.suppress(FleetToolsError):  # after an error there is no state
        lacking = [name for name, verdict in env.verdicts().items() if not verdict.holds]
        if lacking:
            yield f"without {', '.join(name.split()[-1] for name in lacking)}"
        if (ends := env.get_state().outcome) != episode.outcome:
            yield f"here it ends as {ends}"
