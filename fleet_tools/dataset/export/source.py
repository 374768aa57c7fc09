"""The episodes of an export, read one at a time."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from fleet_tools.dataset.header import Header
from fleet_tools.dataset.reader import AttemptRecord, Dataset
from fleet_tools.errors import DatasetError
from fleet_tools.rollouts.episode import Episode, hexadecimal

METADATA = ("seed", "outcome", "error", "scene")
"""Attributes of an episode's group that exports keep; `error` and `scene` are JSON."""


@dataclass(frozen=True)
class StoredArray:
    """Shape and dtype of an array in an episode's file, with T or T + 1 rows."""

    shape: tuple[int, ...]
    dtype: np.dtype


@dataclass(frozen=True, eq=False)
class LocatedEpisode:
    """Location and layout of an episode's arrays, none of which has been read.

    Attributes:
        path: The episode's file.
        group: Name of the HDF5 group that holds the episode.
        steps: Number of control steps, T.
        attributes: The attributes of `METADATA`.
        observations: Arrays with T + 1 rows, by name.
    """

    path: Path
    group: str
    steps: int
    attributes: dict[str, Any]
    observations: dict[str, StoredArray]

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
        path = self.dataset.path(record)
        try:
            with h5py.File(path) as file:
                (name,) = map(str, file)
                group = file.require_group(name)
                if hexadecimal(_array(group, "infos/state_digest")[-1]) == record.state_digest:
                    return _located(path, name, group)
        except (OSError, LookupError, TypeError, ValueError):
            pass
        self.dataset.episode(record.attempt)  # raises an error with the reason and a remedy
        raise DatasetError(f"{path} cannot be linked to. {self.dataset.remedy(record)}")


def episode_metadata(record: AttemptRecord, episode: Episode) -> dict[str, Any]:
    """Returns attempt, seed, outcome, error and scene of an episode, as plain JSON data."""
    return {
        "attempt": record.attempt,
        "seed": record.seed,
        "outcome": episode.outcome,
        "error": episode.error,
        "scene": episode.scene.to_json(),
    }


def _located(path: Path, name: str, group: h5py.Group) -> LocatedEpisode:
    observations = group.require_group("observations")
    arrays = {name: _array(observations, name) for name in map(str, observations)}
    return LocatedEpisode(
        path=path,
        group=f"/{name}",
        steps=len(_array(group, "actions")),
        attributes={name: group.attrs[name] for name in METADATA},
        observations={name: StoredArray(rows.shape, rows.dtype) for name, rows in arrays.items()},
    )


def _array(group: h5py.Group, name: str) -> h5py.Dataset:
    found = group[name]
    if not isinstance(found, h5py.Dataset):
        raise TypeError(f"{name} is not an array")
    return found
