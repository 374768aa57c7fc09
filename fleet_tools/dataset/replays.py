"""Replays: stored actions run again from their stored scenes, and compared."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium

from fleet_tools.dataset.dataset_folder import Dataset
from fleet_tools.dataset.stored_episode import AttemptRecord
from fleet_tools.envs.outcomes import SUCCESS
from fleet_tools.errors import FleetToolsError
from fleet_tools.policies.policy import StoredActions
from fleet_tools.rollouts.agreement import Agreement, counts, distance
from fleet_tools.rollouts.episode import Episode, EpisodeDifference, first_difference
from fleet_tools.rollouts.rollout import rollout


@dataclass(frozen=True)
class Replay(Agreement):
    """Result of the replay of one episode: its agreement with the stored one over all its steps.

    Attributes:
        attempt: Number of the attempt.
        file: File of the episode.
        difference: The first difference, if there is one.
        stored_outcome: Outcome of the stored episode.
        outcome: Outcome of the replay; None if it could not be made.
        error: Error message, if there was an error.
    """

    attempt: int
    file: str
    difference: EpisodeDifference | None
    stored_outcome: str
    outcome: str | None
    error: str | None

    @classmethod
    def of(cls, record: AttemptRecord, stored: Episode, again: Episode) -> "Replay":
        """Returns how an episode that ran again agrees with the stored one."""
        difference = first_difference(stored, again)
        return cls(
            identical=difference is None,
            same_outcome=(again.outcome, len(again)) == (record.outcome, len(stored)),
            distance_m=distance(stored, again),
            attempt=record.attempt,
            file=record.file or "",
            difference=difference,
            stored_outcome=record.outcome,
            outcome=again.outcome,
            error=again.error,
        )

    @classmethod
    def failed(cls, record: AttemptRecord, error: str) -> "Replay":
        """Returns the result of a replay that could not be made."""
        return cls(
            identical=False,
            same_outcome=False,
            distance_m=None,
            attempt=record.attempt,
            file=record.file or "",
            difference=None,
            stored_outcome=record.outcome,
            outcome=None,
            error=error,
        )


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
    return Replay.of(record, stored, again)


def make_replays(folder: Path) -> Callable[[AttemptRecord], Replay]:
    """Returns a function that replays attempts of a dataset, with its own environment.

    Raises:
        FleetToolsError: There is no such dataset, or its environment cannot be made here.
    """
    dataset = Dataset(folder)
    return partial(replay, dataset, env=dataset.header.make_env())


def summarize(replays: Iterable[Replay], within_m: float) -> dict[str, Any]:
    """Returns counts and rates as plain JSON data.

    Args:
        replays: The replays of at least one episode.
        within_m: Largest distance of episodes that count as the same in state, m.
    """
    replays = list(replays)
    found = counts(replays, within_m)
    stored_successes = sum(each.stored_outcome == SUCCESS for each in replays)
    still_successes = sum(each.stored_outcome == each.outcome == SUCCESS for each in replays)
    rates = ("identical", "same_outcome", "within")
    return {
        **found,
        **{f"{name}_share": found[name] / len(replays) for name in rates},
        "stored_successes": stored_successes,
        "still_successes": still_successes,
        "still_success_share": still_successes / stored_successes if stored_successes else None,
    }
