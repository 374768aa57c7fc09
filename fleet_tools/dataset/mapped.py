"""Episodes mapped into memory: only the rows that are used are read."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fleet_tools.dataset import episode_file
from fleet_tools.dataset.episode_file import StoredArray
from fleet_tools.dataset.file_mapping import map_file
from fleet_tools.dataset.reader import remedied
from fleet_tools.dataset.stored_episode import StoredEpisode
from fleet_tools.errors import DatasetError

MAX_MAPPED = 30_000
"""Largest number of mapped episodes; Linux grants a process 65,530 mappings of all kinds."""


@dataclass(frozen=True)
class CompressedRows:
    """Rows that are compressed one by one, and read when they are indexed."""

    episode: StoredEpisode
    name: str

    def __getitem__(self, rows: int | slice) -> np.ndarray:
        """Reads some rows."""
        with remedied(self.episode):
            found = episode_file.read_rows(self.episode.path, self.name, rows)
            self.episode.require_allowed(self.name, found)
            return found


Rows = np.ndarray | CompressedRows


class MappedEpisodes:
    """Arrays of episodes; an episode's file is opened at its first use.

    Copies in other processes start with nothing mapped.

    Args:
        arrays: Names of the arrays, "actions" or "observations/<name>".
        capacity: Largest number of episodes that are mapped at once.
    """

    def __init__(self, arrays: Iterable[str], capacity: int = MAX_MAPPED) -> None:
        self._arrays = tuple(arrays)
        self._capacity = capacity
        self._located: dict[StoredEpisode, dict[str, StoredArray]] = {}
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
        return {**self.__dict__, "_located": {}, "_mapped": {}}

    def _map(self, episode: StoredEpisode) -> dict[str, Rows]:
        with remedied(episode):
            known = self._located.get(episode)
            arrays = episode.contents(self._arrays).arrays if known is None else known
            rows = _rows(episode, arrays)
            if known is None:
                for name, values in rows.items():
                    if isinstance(values, np.ndarray):
                        episode.require_allowed(name, values)
                self._located[episode] = arrays
        if len(self._mapped) >= self._capacity:
            # The oldest; Python frees the mapping once its arrays are no longer used.
            del self._mapped[next(iter(self._mapped))]
        self._mapped[episode] = rows
        return rows


def _rows(episode: StoredEpisode, arrays: dict[str, StoredArray]) -> dict[str, Rows]:
    try:
        content = map_file(episode.path)
        return {
            name: CompressedRows(episode, name)
            if array.offset is None
            else np.ndarray(array.layout.shape, array.layout.dtype, content, array.offset)
            for name, array in arrays.items()
        }
    except (OSError, ValueError, TypeError) as error:  # it existed when it was located
        raise DatasetError(f"{episode.path} cannot be mapped: {error}.") from error
