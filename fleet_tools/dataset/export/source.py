"""What is exported: some of a data set's episodes, read one at a time."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from fleet_tools.dataset.header import Header
from fleet_tools.dataset.reader import Dataset, Record, hexadecimal
from fleet_tools.errors import DatasetError
from fleet_tools.rollouts.episode import Episode


@dataclass(frozen=True)
class StoredArray:
    """The shape, with its T or T + 1 rows, and dtype of an array in an episode's file."""

    shape: tuple[int, ...]
    dtype: np.dtype


@dataclass(frozen=True, eq=False)
class EpisodeFile:
    """Where an episode's arrays lie; nothing of them has been read.

    Attributes:
        path: Of the file.
        group: In it, that holds the episode.
        steps: T.
        attributes: Those of `PROVENANCE`.
        observations: By name, T + 1 rows each.
    """

    path: Path
    group: str
    steps: int
    attributes: dict[str, Any]
    observations: dict[str, StoredArray]

    def relative_to(self, folder: Path) -> str:
        """Returns the path as seen from a folder, so that both can be moved together."""
        return os.path.relpath(self.path.resolve(), folder.resolve())


PROVENANCE = ("seed", "outcome", "error", "scene")
"""What is kept of where an episode came from, beside its attempt; the latter two are JSON."""


@dataclass(frozen=True, eq=False)
class Source:
    """The episodes to be exported.

    Attributes:
        dataset: That holds them.
        records: Theirs; their place in this list is their number in the export.
    """

    dataset: Dataset
    records: list[Record]

    @property
    def header(self) -> Header:
        """Of the data set."""
        return self.dataset.header

    @property
    def steps(self) -> int:
        """Of all episodes."""
        return sum(record.steps for record in self.records)

    def episodes(self) -> Iterator[tuple[Record, Episode]]:
        """Reads the episodes, one after the other.

        Raises:
            DatasetError: A file is missing or damaged; the message says how to mend it.
        """
        return ((record, self.dataset.episode(record.attempt)) for record in self.records)

    def files(self) -> Iterator[tuple[Record, EpisodeFile]]:
        """Looks into the episodes' files without reading their arrays.

        Raises:
            DatasetError: A file is missing or damaged; the message says how to mend it.
        """
        return ((record, self._look_into(record)) for record in self.records)

    def _look_into(self, record: Record) -> EpisodeFile:
        path = self.dataset.folder / record.file
        try:
            with h5py.File(path) as file:
                (group,) = file.values()
                if hexadecimal(group["infos/state_digest"][-1]) == record.state_digest:
                    return EpisodeFile(
                        path=path,
                        group=group.name,
                        steps=len(group["actions"]),
                        attributes={name: group.attrs[name] for name in PROVENANCE},
                        observations={
                            name: StoredArray(rows.shape, rows.dtype)
                            for name, rows in group["observations"].items()
                        },
                    )
        except (OSError, LookupError, ValueError):
            pass
        self.dataset.episode(record.attempt)  # says what is wrong, and how to mend it
        raise DatasetError(f"{path} cannot be linked to. Restore it from a copy.")


def provenance(record: Record, episode: Episode) -> dict[str, Any]:
    """Returns where an episode came from, as plain JSON data."""
    return {
        "attempt": record.attempt,
        "seed": record.seed,
        "outcome": episode.outcome,
        "error": episode.error,
        "scene": episode.scene.to_json(),
    }
