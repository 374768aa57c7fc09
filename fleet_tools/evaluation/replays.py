"""Replays of results: runs stored actions of an evaluation again, and compares."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from fleet_tools.dataset.replays import Replay
from fleet_tools.errors import ResultError
from fleet_tools.evaluation.result import EpisodeResult, Evaluation
from fleet_tools.evaluation.result_folder import load_evaluation
from fleet_tools.evaluation.trial import judge, present_env, run_again
from fleet_tools.rollouts.agreement import Agreement

Numbered = tuple[int, EpisodeResult]
"""An episode and its place in the protocol's order."""


def draw_episodes(evaluation: Evaluation, count: int | None, seed: int) -> list[Numbered]:
    """Draws episodes with actions, in order.

    Args:
        evaluation: The evaluation.
        count: Number of episodes; None takes all, as does a number beyond theirs.
        seed: Seed of the draw.

    Raises:
        ResultError: No episode has actions.
    """
    episodes = [(k, each) for k, each in enumerate(evaluation.episodes) if each.steps]
    if not episodes:
        raise ResultError(
            "The result holds no episodes with actions yet. Run the command in its result.json "
            "again to resume the evaluation."
        )
    if count is None or count >= len(episodes):
        return episodes
    chosen = np.random.default_rng(seed).choice(len(episodes), count, replace=False)
    return [episodes[k] for k in sorted(chosen)]


def make_replays(folder: Path) -> Callable[[Numbered], Replay]:
    """Returns a function that replays episodes of a result, each in its task's environment.

    Raises:
        ResultError: There is no such result, or a model that it carries is damaged.
    """
    protocol = load_evaluation(folder).result.local_protocol()
    env_of = present_env(protocol)

    def replay(numbered: Numbered) -> Replay:
        _, stored = numbered
        again = run_again(env_of(stored.task), protocol, stored)
        found = judge(stored, again)
        return _replay(numbered, found.agreement, again.outcome, "; ".join(found.differences))

    return replay


def failed_replay(numbered: Numbered, error: str) -> Replay:
    """Returns the result of a replay that could not be made."""
    return _replay(numbered, Agreement(False, False, None), None, error)


def _replay(numbered: Numbered, found: Agreement, outcome: str | None, error: str) -> Replay:
    number, stored = numbered
    return Replay(
        identical=found.identical,
        same_outcome=found.same_outcome,
        distance_m=found.distance_m,
        attempt=number,
        file=f"episode {stored.index} of {stored.task}, {stored.split}",
        difference=None,
        stored_outcome=stored.outcome,
        outcome=outcome,
        error=error or None,
    )
