"""The episodes of an export, read one at a time."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet_tools.dataset.episode_file import OBSERVATIONS, ArrayLayout
from fleet_tools.dataset.header import Header
from fleet_tools.dataset.manifest import AttemptRecord
from fleet_tools.dataset.reader import Dataset, remedied
from fleet_tools.rollouts.episode import Episode


@dataclass(frozen=True, eq=False)
class LocatedEpisode:
    """Location and layout of an episode's arrays, none of which has been read.

    Attributes:
        path: The episode's file.
        group: Name of the HDF5 group that holds the episode.
        steps: Number of control steps, T.
        attributes: The group's seed, outcome, error and scene; the latter two are JSON.
        observations: Layouts of arrays with T + 1 rows, by name.
    """

    path: Path
    group: str
    steps: int
    attributes: dict[str, Any]
    observations: dict[str, ArrayLayout]

    def relative_to(self, folder: Path) -> str:
        """Returns the file's path relative to a folder, so that both can be moved together."""
        return os.path.relpath(self.path.resolve(), folder.resolve())


@dataclass(frozen=True, eq=False)
class Source:
    """The episodes of an export.

    Attributes:
        dataset: The dataset.
        records: Records of the episodes; an index in this list is the episode's number in the
            export.
    """

    dataset: Dataset
    records: list[AttemptRecord]

    @property
    def header(self) -> Header:
        """Header of the dataset."""
        return self.dataset.header

    @property
    def steps(self) -> int:
        """Number of control steps of all episodes."""
        return sum(record.steps for record in self.records)

    def episodes(self) -> Iterator[tuple[AttemptRecord, Episode]]:
        """Reads the episodes, one after the other.

        Raises:
            DatasetError: A file is missing or damaged; the message says how to recover it.
        """
        return ((record, self.dataset.episode(record.attempt)) for record in self.records)

    def located_episodes(self) -> Iterator[tuple[AttemptRecord, LocatedEpisode]]:
        """Locates the episodes in their files, one after the other.

        Raises:
            DatasetError: A file is missing or damaged; the message says how to recover it.
        """
        return ((record, self._locate(record)) for record in self.records)

    def _locate(self, record: AttemptRecord) -> LocatedEpisode:
        episode = self.dataset.stored_episode(record)
        with remedied(episode):
            contents = episode.contents()
        return LocatedEpisode(
            path=episode.path,
            group=contents.group,
            steps=record.steps,
            attributes=contents.attributes,
            observations={
                name.removeprefix(OBSERVATIONS): array.layout
                for name, array in contents.arrays.items()
                if name.startswith(OBSERVATIONS)
            },
        )


def episode_metadata(record: AttemptRecord, episode: Episode) -> dict[str, Any]:
    """Returns attempt, seed, outcome, error and scene of an episode, as plain JSON data."""
    return {
        "attempt": record.attempt,
        "seed": record.seed,
        "outcome": episode.outcome,
        "error": episode.error,
        "scene": episode.scene.to_json(),
    }
