"""Episodes mapped into memory: only the rows that are used are read."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fleet_tools.dataset import episode_file
from fleet_tools.dataset.episode_file import ArrayLocation
from fleet_tools.dataset.file_mapping import map_file
from fleet_tools.dataset.header import ArraySpec
from fleet_tools.dataset.reader import HEADER, MANIFEST, AttemptRecord, Dataset
from fleet_tools.errors import DatasetError
from fleet_tools.rollouts.episode import hexadecimal

OBSERVATIONS = "observations/"
"""Prefix of the names of observations, beside "actions"."""

MAX_MAPPED = 30_000
"""Largest number of mapped episodes; Linux grants a process 65,530 mappings of all kinds."""

_DIGESTS = "digests"


@dataclass(frozen=True, eq=False)
class StoredEpisode:
    """An episode on disk.

    Attributes:
        folder: Folder of its dataset.
        task: Name of the dataset's task.
        record: Its line of the manifest.
    """

    folder: Path
    task: str
    record: AttemptRecord

    @property
    def path(self) -> Path:
        """File of the episode."""
        assert self.record.file is not None  # it is stored
        return self.folder / self.record.file


@dataclass(frozen=True)
class CompressedRows:
    """Rows that are compressed one by one, and read when they are indexed."""

    episode: StoredEpisode
    name: str

    def __getitem__(self, rows: int | slice) -> np.ndarray:
        """Reads some rows."""
        with _remedied(self.episode):
            return episode_file.read_rows(self.episode.path, self.name, rows)


Rows = np.ndarray | CompressedRows


class MappedEpisodes:
    """Arrays of episodes; an episode's file is opened at its first use.

    Copies in other processes start with nothing mapped.

    Args:
        arrays: The arrays, "actions" or "observations/<name>", and their expected layout.
        capacity: Largest number of episodes that are mapped at once.
    """

    def __init__(self, arrays: Mapping[str, ArraySpec], capacity: int = MAX_MAPPED) -> None:
        self._arrays = dict(arrays)
        self._capacity = capacity
        self._locations: dict[StoredEpisode, dict[str, ArrayLocation]] = {}
        self._mapped: dict[StoredEpisode, dict[str, Rows]] = {}

    def rows(self, episode: StoredEpisode) -> dict[str, Rows]:
        """Returns the arrays of an episode: T + 1 rows of observations, T of actions.

        Raises:
            DatasetError: The file is missing, damaged, or another episode's.
        """
        rows = self._mapped.get(episode)
        return self._map(episode) if rows is None else rows

    def __getstate__(self) -> dict:
        """Returns the state without the mappings."""
        return {**self.__dict__, "_locations": {}, "_mapped": {}}

    def _map(self, episode: StoredEpisode) -> dict[str, Rows]:
        with _remedied(episode):
            if episode not in self._locations:
                self._locations[episode] = _locations(episode, self._arrays)
            rows = _rows(episode, self._locations[episode])
        if len(self._mapped) >= self._capacity:
            # The oldest; Python frees the mapping once its arrays are no longer used.
            del self._mapped[next(iter(self._mapped))]
        self._mapped[episode] = rows
        return rows


def _locations(episode: StoredEpisode, arrays: dict[str, ArraySpec]) -> dict[str, ArrayLocation]:
    """Locates the arrays, and checks them against the header and the manifest."""
    locations = episode_file.locate(episode.path, [*arrays, _DIGESTS])
    digest: Any = _rows(episode, {_DIGESTS: locations.pop(_DIGESTS)})[_DIGESTS][-1]
    if hexadecimal(digest) != episode.record.state_digest:
        raise DatasetError(f"{episode.path} is not the episode that {MANIFEST} lists.")
    for name, array in arrays.items():
        steps = episode.record.steps + name.startswith(OBSERVATIONS)
        expected = (steps, *array.shape), np.dtype(array.dtype)
        if locations[name][:2] != expected:
            raise DatasetError(
                f"{episode.path} is damaged: {name!r} is {_described(*locations[name][:2])}, but "
                f"{_described(*expected)} according to {HEADER} and {MANIFEST}."
            )
    return locations


def _rows(episode: StoredEpisode, locations: dict[str, ArrayLocation]) -> dict[str, Rows]:
    try:
        content = map_file(episode.path)
        return {
            name: CompressedRows(episode, name)
            if location.offset is None
            else np.ndarray(location.shape, location.dtype, content, location.offset)
            for name, location in locations.items()
        }
    except (OSError, ValueError, TypeError) as error:  # it existed when it was located
        raise DatasetError(f"{episode.path} cannot be mapped: {error}.") from error


def _described(shape: tuple[int, ...], dtype: np.dtype) -> str:
    return f"{dtype} of shape {shape}"


@contextmanager
def _remedied(episode: StoredEpisode) -> Iterator[None]:
    try:
        yield
    except DatasetError as error:
        remedy = Dataset(episode.folder).remedy(episode.record)
        raise DatasetError(f"{error} {remedy}") from error
