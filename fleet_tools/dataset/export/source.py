"""The episodes of an export, read one at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fleet_tools.dataset.dataset_folder import Dataset
from fleet_tools.dataset.header import Header
from fleet_tools.dataset.manifest import AttemptRecord
from fleet_tools.dataset.stored_episode import StoredEpisode
from fleet_tools.rollouts.episode import Episode
from fleet_tools.rollouts.imitation import Labels


@dataclass(frozen=True, eq=False)
class Source:
    """The episodes of an export.

    Attributes:
        dataset: The dataset.
        records: Records of the episodes.
        of_chunks: Whether the format's learners predict several actions at once, see
            `rollouts.imitation.Labels.pieces`.
        whole: Whether episodes are left whole, although there are steps not to imitate.
    """

    dataset: Dataset
    records: list[AttemptRecord]
    of_chunks: bool = False
    whole: bool = False

    @property
    def header(self) -> Header:
        """Header of the dataset."""
        return self.dataset.header

    @property
    def steps(self) -> int:
        """Number of control steps of all episodes."""
        return sum(record.steps for record in self.records)

    def labels(self, record: AttemptRecord) -> Labels:
        """Returns which steps and actions of an episode are to be imitated."""
        return self.dataset.stored_episode(record).labels

    def pieces(self, record: AttemptRecord) -> list[tuple[int, int]]:
        """Returns the first step and the end of the parts of an episode that learners shall read.

        Learners of other projects imitate all actions of what they take for an episode. So each of
        these holds consecutive steps to imitate. Steps that are not belong to none.
        """
        return self._pieces[record.attempt]

    def steps_outside(self, record: AttemptRecord) -> np.ndarray:
        """Returns the steps of an episode that are in none of its pieces, (k,)."""
        outside = np.ones(record.steps, bool)
        for first, end in self.pieces(record):
            outside[first:end] = False
        return np.flatnonzero(outside)

    @property
    def piece_count(self) -> int:
        """Number of pieces of all episodes."""
        return sum(map(len, self._pieces.values()))

    @property
    def steps_in_pieces(self) -> int:
        """Number of control steps in all pieces."""
        return sum(end - first for each in self._pieces.values() for first, end in each)

    @cached_property
    def cut(self) -> bool:
        """Whether any episode is cut into pieces, or lacks steps."""
        return any(self.pieces(record) != [(0, record.steps)] for record in self.records)

    @cached_property
    def _pieces(self) -> dict[int, list[tuple[int, int]]]:
        """Pieces of each episode, by attempt."""
        return {
            record.attempt: [(0, record.steps)]
            if self.whole
            else self.labels(record).pieces(record.steps, of_chunks=self.of_chunks)
            for record in self.records
        }

    def episodes(self) -> Iterator[tuple[AttemptRecord, Episode]]:
        """Reads the episodes, one after the other.

        Raises:
            DatasetError: A file is missing or damaged; the message says how to recover it.
        """
        return ((record, self.dataset.episode(record.attempt)) for record in self.records)

    def stored_episodes(self) -> Iterator[tuple[AttemptRecord, StoredEpisode]]:
        """Returns the episodes, whose files have not been opened."""
        return ((record, self.dataset.stored_episode(record)) for record in self.records)


def episode_metadata(record: AttemptRecord, episode: Episode) -> dict[str, Any]:
    """Returns attempt, seed, outcome, error and scene of an episode, as plain JSON data."""
    return {
        "attempt": record.attempt,
        "seed": record.seed,
        "outcome": episode.outcome,
        "error": episode.error,
        "scene": episode.scene.to_json(),
    }


def truncated_at_end(steps: int) -> np.ndarray:
    """Returns the flags of a piece after which its episode goes on, (steps,) bool."""
    return np.arange(1, steps + 1) == steps
