"""Episodes mapped into memory: rows are read where they lie, and only those that are wanted."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fleet_tools.dataset import episode_file
from fleet_tools.dataset.episode_file import Place
from fleet_tools.dataset.file_mapping import map_file
from fleet_tools.dataset.header import Array
from fleet_tools.dataset.reader import HEADER, MANIFEST, Dataset, Record, hexadecimal
from fleet_tools.errors import DatasetError

OBSERVATIONS = "observations/"
"""What names of observations begin with, beside "actions"."""

MOST_MAPPED = 30_000
"""How many episodes are mapped at once; Linux grants a process 65,530 mappings of all kinds."""

_DIGESTS = "digests"


@dataclass(frozen=True, eq=False)
class StoredEpisode:
    """An episode on disk.

    Attributes:
        folder: Of its data set.
        task: Name of the data set's task.
        record: Its line of the manifest.
    """

    folder: Path
    task: str
    record: Record

    @property
    def path(self) -> Path:
        """Its file."""
        return self.folder / self.record.file


@dataclass(frozen=True)
class Frames:
    """Rows that are compressed one by one: it reads those at which it is indexed."""

    episode: StoredEpisode
    name: str

    def __getitem__(self, rows: slice) -> np.ndarray:
        with _remedied(self.episode):
            return episode_file.read_rows(self.episode.path, self.name, rows)


Rows = np.ndarray | Frames


class MappedEpisodes:
    """Arrays of episodes; the file of an episode is opened when it is first touched.

    Copies in other processes begin with nothing mapped.

    Args:
        arrays: What is wanted, "actions" or "observations/<name>", and how it must be.
        capacity: How many episodes are mapped at once.
    """

    def __init__(self, arrays: Mapping[str, Array], capacity: int = MOST_MAPPED) -> None:
        self._arrays = dict(arrays)
        self._capacity = capacity
        self._places: dict[StoredEpisode, dict[str, Place]] = {}
        self._mapped: dict[StoredEpisode, dict[str, Rows]] = {}

    def rows(self, episode: StoredEpisode) -> dict[str, Rows]:
        """Returns what is wanted of an episode: T + 1 rows of observations, T of actions.

        Raises:
            DatasetError: The file is missing, damaged, or another episode's.
        """
        rows = self._mapped.get(episode)
        return self._map(episode) if rows is None else rows

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_places": {}, "_mapped": {}}

    def _map(self, episode: StoredEpisode) -> dict[str, Rows]:
        with _remedied(episode):
            if episode not in self._places:
                self._places[episode] = _places(episode, self._arrays)
            rows = _rows(episode, self._places[episode])
        if len(self._mapped) >= self._capacity:
            del self._mapped[next(iter(self._mapped))]  # the oldest; who still uses it, keeps it
        self._mapped[episode] = rows
        return rows


def _places(episode: StoredEpisode, arrays: dict[str, Array]) -> dict[str, Place]:
    """Finds the arrays, and checks that they are as the header and the manifest say."""
    places = episode_file.locate(episode.path, [*arrays, _DIGESTS])
    digest = _rows(episode, {_DIGESTS: places.pop(_DIGESTS)})[_DIGESTS][-1]
    if hexadecimal(digest) != episode.record.state_digest:
        raise DatasetError(f"{episode.path} is not the episode that {MANIFEST} lists.")
    for name, array in arrays.items():
        steps = episode.record.steps + name.startswith(OBSERVATIONS)
        expected = (steps, *array.shape), np.dtype(array.dtype)
        if places[name][:2] != expected:
            raise DatasetError(
                f"{episode.path} is damaged: {name!r} is {_described(*places[name][:2])}, and is "
                f"{_described(*expected)} by {HEADER} and {MANIFEST}."
            )
    return places


def _rows(episode: StoredEpisode, places: dict[str, Place]) -> dict[str, Rows]:
    try:
        content = map_file(episode.path)
        return {
            name: Frames(episode, name)
            if place.offset is None
            else np.ndarray(place.shape, place.dtype, content, place.offset)
            for name, place in places.items()
        }
    except (OSError, ValueError, TypeError) as error:  # it was there when it was located
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
