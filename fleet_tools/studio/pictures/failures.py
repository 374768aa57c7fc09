"""A page of an evaluation's failed episodes, each as a video: `evaluate --failures PAGE.html`."""

import contextlib
from collections.abc import Iterator, Sequence
from html import escape

from fleet_tools.envs.tool_use_env import ToolUseEnv, unwrap
from fleet_tools.errors import FleetToolsError
from fleet_tools.evaluation.result import EpisodeResult, Evaluation
from fleet_tools.evaluation.trial import present_env
from fleet_tools.leaderboard.html_parts import figure, page_head
from fleet_tools.policies.policy import EXPLANATION
from fleet_tools.studio.pictures.clips import make_clip, view_episode

SHOWN = 3
"""Number of episodes of each task and outcome that the page shows."""


def failure_page(evaluation: Evaluation) -> str:
    """Returns the first failed episodes of each task and outcome as an HTML page without files.

    Episodes run again from their stored actions. One that ends otherwise here, as may happen on
    another processor, says so.

    Args:
        evaluation: The evaluation; its task files are trusted like code.

    Raises:
        MissingLibraryError: See `fleet_tools.studio.pictures.clips.require_clips`.
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
