"""Samples to learn from: single steps, or windows of steps, out of one or several data sets."""

import copy
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from fleet_tools.dataset.header import Array
from fleet_tools.dataset.mapped import OBSERVATIONS, MappedEpisodes, Rows, StoredEpisode
from fleet_tools.dataset.reader import Dataset
from fleet_tools.dataset.windows import Windows
from fleet_tools.errors import ConfigError, DatasetError, UnknownNameError
from fleet_tools.perception.observation_config import observing_keywords

EPISODE = "episode"


class Samples:
    """Steps t of episodes, each an observation[t] and the action[t] that answered it.

    What is observed after the last action belongs to no step. Samples are in the order of the
    folders, of the attempts and of time. No episode's file is opened before one of its steps is
    wanted, and only what is wanted of it is read.

    Args:
        folders: Of one data set, or of several.
        observations: Entries that are wanted; all if None.
        sequence_length: None for single steps; L for windows of L steps; "episode" for whole
            episodes, L being the steps of the longest.
        stride: Steps from the beginning of a window to that of the next, the first step of each
            episode being one; with L, they follow each other without overlap.
        padded: Whether windows may reach beyond the end of their episode, where they hold zeros
            and their mask is False; otherwise those that would are left out.
        failures: Whether stored episodes that did not succeed are wanted, too.

    Attributes:
        observation: What is wanted of an observation, by name.
        action: What an action is.
        environment: The keywords of an environment that observes the same, see
            `vision.observing_keywords`; None where data sets were observed in several ways.
        episodes: In order, also those that have no sample for being too short.
        sequence_length: L, or None.

    Raises:
        DatasetError: A data set cannot be read, they do not fit together, or have no episode.
        UnknownNameError: There is no such entry.
        ConfigError: The length or the stride is no positive number.
    """

    def __init__(
        self,
        folders: str | Path | Sequence[str | Path],
        *,
        observations: Sequence[str] | None = None,
        sequence_length: int | Literal["episode"] | None = None,
        stride: int = 1,
        padded: bool = True,
        failures: bool = False,
    ) -> None:
        _require_count("stride", stride)
        if sequence_length not in (None, EPISODE):
            _require_count("sequence_length", sequence_length, f", {EPISODE!r} or None")
        datasets = _open(folders)
        self.observation, self.action = _common_layout(datasets, observations)
        self.environment = _common_environment(datasets)
        self.episodes = _episodes(datasets, failures)
        if sequence_length == EPISODE:
            longest = max(1, *(episode.record.steps for episode in self.episodes))
            sequence_length, stride, padded = longest, longest, True
        self.sequence_length = sequence_length
        self._stride, self._padded = stride, padded
        self._mapped = MappedEpisodes(self._arrays())
        self._windows = self._cut()

    def __len__(self) -> int:
        """Returns the number of samples."""
        return len(self._windows)

    def gather(self, indices: Sequence[int] | np.ndarray) -> dict[str, Any]:
        """Copies samples into arrays.

        Args:
            indices: (B,) of samples.

        Returns:
            {"observation": {name: (B, ...)}, "action": (B, 6)}; of windows, (B, L, ...), (B, L, 6)
            and "mask": (B, L) bool, True where there is a step.

        Raises:
            IndexError: There is no such sample.
            DatasetError: A file is missing, damaged, or another episode's.
        """
        episodes, starts, sizes = self._windows.locate(indices)
        L = self.sequence_length or 1
        gathered = {
            name: np.empty((len(starts), L, *array.shape), array.dtype)
            for name, array in self._arrays().items()
        }
        places = zip(episodes.tolist(), starts.tolist(), sizes.tolist(), strict=True)
        for row, (episode, start, size) in enumerate(places):
            rows = self.rows(episode)
            for name, array in gathered.items():
                array[row, :size] = rows[name][start : start + size]
                if size < L:
                    array[row, size:] = 0
        if self.sequence_length is None:
            gathered = {name: array[:, 0] for name, array in gathered.items()}
        batch = {
            "observation": {name: gathered[f"{OBSERVATIONS}{name}"] for name in self.observation},
            "action": gathered["actions"],
        }
        if self.sequence_length is not None:
            batch["mask"] = np.arange(L) < sizes[:, None]
        return batch

    def rows(self, episode: int) -> dict[str, Rows]:
        """Returns what is wanted of one of the `episodes`, mapped and read-only.

        Returns:
            "actions", T rows, and "observations/<name>", T + 1 rows; pictures are read when rows
            of them are taken.

        Raises:
            DatasetError: The file is missing, damaged, or another episode's.
        """
        return self._mapped.rows(self.episodes[episode])

    def subset(self, episodes: Iterable[int]) -> Self:
        """Returns the samples of some of the episodes, such as one robot's.

        Args:
            episodes: Their places in `episodes`.
        """
        subset = copy.copy(self)  # shares what is mapped
        subset.episodes = tuple(self.episodes[place] for place in episodes)
        subset._windows = subset._cut()
        return subset

    def _arrays(self) -> dict[str, Array]:
        observed = {f"{OBSERVATIONS}{name}": array for name, array in self.observation.items()}
        return {**observed, "actions": self.action}

    def _cut(self) -> Windows:
        steps = np.array([episode.record.steps for episode in self.episodes], np.int64)
        return Windows(steps, self.sequence_length or 1, self._stride, self._padded)


def _require_count(what: str, given: object, others: str = "") -> None:
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise ConfigError(f"{what} is a positive number of steps{others}; given: {given!r}.")


def _open(folders: str | Path | Sequence[str | Path]) -> list[Dataset]:
    listed = [folders] if isinstance(folders, str | Path) else list(folders)
    if not listed:
        raise DatasetError("No data set is given. `python -m fleet_tools.collect` makes one.")
    return [Dataset(folder) for folder in listed]


def _episodes(datasets: list[Dataset], failures: bool) -> tuple[StoredEpisode, ...]:
    episodes = tuple(
        StoredEpisode(dataset.folder, dataset.header.task.name, record)
        for dataset in datasets
        for record in dataset.stored()
        if record.success or failures
    )
    if not episodes:
        stored = sum(map(len, datasets))
        raise DatasetError(
            f"{', '.join(str(dataset.folder) for dataset in datasets)}: no episode that succeeded, "
            f"{stored} that failed. `failures=True` takes these, too."
        )
    return episodes


def _common_layout(
    datasets: list[Dataset], wanted: Sequence[str] | None
) -> tuple[dict[str, Array], Array]:
    """Returns what all data sets observe, of what is wanted, and what an action is in all."""
    first = datasets[0]
    for dataset in datasets:
        for name in wanted or ():
            if name not in dataset.header.observation:
                known = dataset.header.observation
                raise UnknownNameError(f"observation in {dataset.folder}", name, known)
    for other in datasets[1:]:
        mine, its = first.header.observation, other.header.observation
        names = list({**mine, **its}) if wanted is None else wanted
        found = {name: _differences(mine.get(name), its.get(name)) for name in names}
        found["action"] = _differences(first.header.action, other.header.action)
        if any(found.values()):
            fitting = [name for name, differences in found.items() if not differences]
            raise DatasetError(
                f"{other.folder} does not fit to {first.folder}: "
                f"{'; '.join(f'{name}: {what}' for name, what in found.items() if what)}. "
                f"What fits: {', '.join(fitting) or 'nothing'}. Give what is wanted of it as "
                "`observations=[...]`; the action must fit."
            )
    observation = first.header.observation
    chosen = observation if wanted is None else {name: observation[name] for name in wanted}
    return dict(chosen), first.header.action


def _common_environment(datasets: list[Dataset]) -> dict[str, Any] | None:
    first, *others = (observing_keywords(each.header.environment.kwargs) for each in datasets)
    return first if all(other == first for other in others) else None


def _differences(one: Array | None, other: Array | None) -> str:
    if one is None or other is None:
        return "" if one is other else f"only in the {'former' if other is None else 'latter'}"
    pairs = {name: (getattr(one, name), getattr(other, name)) for name in Array.model_fields}
    return ", ".join(f"{name} {a}, not {b}" for name, (a, b) in pairs.items() if a != b)
