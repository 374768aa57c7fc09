"""Replays: stored actions run again from their stored scenes, and compared bit for bit."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium

from fleet_tools.dataset.reader import AttemptRecord, Dataset
from fleet_tools.envs.outcomes import SUCCESS
from fleet_tools.errors import FleetToolsError
from fleet_tools.policies.policy import StoredActions
from fleet_tools.rollouts.episode import EpisodeDifference, first_difference
from fleet_tools.rollouts.rollout import rollout


@dataclass(frozen=True)
class Replay:
    """Result of the replay of one episode.

    Attributes:
        attempt: Number of the attempt.
        file: File of the episode.
        identical: Whether every bit agrees.
        difference: The first difference, if there is one.
        stored_outcome: Outcome of the stored episode.
        outcome: Outcome of the replay; None if it could not be made.
        error: Error message, if there was an error.
    """

    attempt: int
    file: str
    identical: bool
    difference: EpisodeDifference | None
    stored_outcome: str
    outcome: str | None
    error: str | None

    @classmethod
    def failed(cls, record: AttemptRecord, error: str) -> "Replay":
        """Returns the result of a replay that could not be made."""
        return cls(record.attempt, record.file or "", False, None, record.outcome, None, error)


def replay(dataset: Dataset, record: AttemptRecord, env: gymnasium.Env) -> Replay:
    """Runs the stored actions of an attempt again.

    Args:
        dataset: The dataset.
        record: Record of an attempt whose episode is stored.
        env: The dataset's environment, see `Header.make_env`.
    """
    try:
        stored = dataset.episode(record.attempt)
        again = rollout(env, StoredActions(stored.actions), scene=stored.scene)
    except FleetToolsError as error:
        return Replay.failed(record, str(error))
    difference = first_difference(stored, again)
    return Replay(
        attempt=record.attempt,
        file=record.file or "",
        identical=difference is None,
        difference=difference,
        stored_outcome=record.outcome,
        outcome=again.outcome,
        error=again.error,
    )


def make_replays(folder: Path) -> Callable[[AttemptRecord], Replay]:
    """Returns a function that replays attempts of a dataset, with its own environment.

    Raises:
        FleetToolsError: There is no such dataset, or its environment cannot be made here.
    """
    dataset = Dataset(folder)
    return partial(replay, dataset, env=dataset.header.make_env())


def summarize(replays: Iterable[Replay]) -> dict[str, Any]:
    """Returns counts and rates as plain JSON data."""
    replays = list(replays)
    identical = sum(each.identical for each in replays)
    stored_successes = sum(each.stored_outcome == SUCCESS for each in replays)
    still_successes = sum(each.stored_outcome == each.outcome == SUCCESS for each in replays)
    return {
        "episodes": len(replays),
        "identical": identical,
        "identical_share": identical / len(replays),
        "stored_successes": stored_successes,
        "still_successes": still_successes,
        "still_success_share": still_successes / stored_successes if stored_successes else None,
    }
