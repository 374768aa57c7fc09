"""Samples to learn from: single steps, or windows of steps, of one or several datasets."""

import copy
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from fleet_tools.dataset.episode_file import OBSERVATIONS
from fleet_tools.dataset.header import ArraySpec
from fleet_tools.dataset.mapped import MappedEpisodes, Rows
from fleet_tools.dataset.reader import Dataset
from fleet_tools.dataset.stored_episode import StoredEpisode
from fleet_tools.dataset.windows import Windows
from fleet_tools.envs.observation_modes import observation_kwargs
from fleet_tools.errors import ConfigError, DatasetError, UnknownNameError

EPISODE = "episode"


class Samples:
    """Steps t of episodes, each an observation[t] and the action[t] that followed it.

    The observation after the last action belongs to no step. Samples are in the order of the
    folders, of the attempts and of time. An episode's file is opened when one of its steps is
    first used, and only the arrays that are used are read.

    Args:
        folders: Folder of one dataset, or folders of several.
        observations: Entries of the observation to use; all if None.
        sequence_length: None for single steps; L for windows of L steps; "episode" for whole
            episodes, where L is the number of steps of the longest.
        stride: Steps from the beginning of one window to that of the next; with L, windows follow
            each other without overlap.
        padded: Whether windows may reach beyond the end of their episode, where they hold zeros
            and their mask is False; otherwise such windows are left out.
        failures: Whether to use stored episodes that did not succeed, too.
        check: Whether an episode's digest and the values of the used arrays are checked when one of
            its steps is first used, which reads the whole file.

    Attributes:
        observation: Layout of the used entries of the observation, by name.
        action: Layout of an action.
        env_kwargs: Keyword arguments of an environment with the same observations, see
            `fleet_tools.envs.observation_modes.observation_kwargs`; None where the datasets
            differ in them.
        episodes: All episodes in order, also those that are too short for a sample.
        sequence_length: L, or None.

    Raises:
        DatasetError: A dataset cannot be read, datasets do not fit together, or have no episode.
        UnknownNameError: There is no such entry.
        ConfigError: The length or the stride is not a positive number.
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
        check: bool = True,
    ) -> None:
        _require_count("stride", stride)
        if sequence_length not in (None, EPISODE):
            _require_count("sequence_length", sequence_length, f", {EPISODE!r} or None")
        datasets = _open(folders, check)
        self.observation, self.action = _common_layout(datasets, observations)
        self.env_kwargs = _common_env_kwargs(datasets)
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
            indices: (B,), indices of samples.

        Returns:
            The entries "observation", {name: (B, ...)}; "action", (B, 6), the action to imitate,
            see `rollouts.imitation`; "imitate", (B,) bool, False where no action is to be imitated,
            and "action" is the executed one; and "executed_action", (B, 6), the action to which the
            next observation is due. For windows, all of these have the axes (B, L), and "mask",
            (B, L) bool, says where there is a step. Elsewhere is padding, where "imitate" is False,
            too.

        Raises:
            IndexError: There is no such sample.
            DatasetError: A file is missing, damaged, or another episode's, or what the manifest
                says of its actions is not valid.
        """
        episodes, starts, sizes = self._windows.locate(indices)
        L = self.sequence_length or 1
        if len(episodes):
            self.rows(int(episodes[0]))  # before memory is taken for as much as the header says
        gathered = {
            name: np.empty((len(starts), L, *array.shape), array.dtype)
            for name, array in self._arrays().items()
        }
        located = list(zip(episodes.tolist(), starts.tolist(), sizes.tolist(), strict=True))
        for row, (number, start, size) in enumerate(located):
            rows = self.rows(number)
            for name, array in gathered.items():
                array[row, :size] = rows[name][start : start + size]
                if size < L:
                    array[row, size:] = 0
        executed, mask = gathered["actions"], np.arange(L) < sizes[:, None]
        action, imitate = executed.copy(), mask.copy()
        for row, (number, start, size) in enumerate(located):
            episode = self.episodes[number]
            if episode.labels.noise_steps:
                imitate[row, :size] = episode.imitate[start : start + size]
            if episode.labels.learner_steps:
                action[row, :size] = episode.labels.actions(executed[row, :size], start)
        gathered |= {"imitate": imitate, "to_imitate": action}
        if self.sequence_length is None:
            gathered = {name: array[:, 0] for name, array in gathered.items()}
        batch = {
            "observation": {name: gathered[f"{OBSERVATIONS}{name}"] for name in self.observation},
            "action": gathered["to_imitate"],
            "imitate": gathered["imitate"],
            "executed_action": gathered["actions"],
        }
        if self.sequence_length is not None:
            batch["mask"] = mask
        return batch

    def rows(self, episode: int) -> dict[str, Rows]:
        """Returns the arrays of one of the `episodes`, mapped and read-only.

        Returns:
            "actions", T rows, and "observations/<name>", T + 1 rows; images are read when their
            rows are indexed.

        Raises:
            DatasetError: The file is missing, damaged, or another episode's.
        """
        return self._mapped.rows(self.episodes[episode])

    def subset(self, episodes: Iterable[int], *, own_mappings: bool = False) -> Self:
        """Returns the samples of some of the episodes, such as those of one robot.

        Args:
            episodes: Their indices in `episodes`.
            own_mappings: Whether files that the subset opens are closed with it; otherwise they
                stay open as long as those of the whole.
        """
        subset = copy.copy(self)
        if own_mappings:
            subset._mapped = MappedEpisodes(subset._arrays())
        subset.episodes = tuple(self.episodes[index] for index in episodes)
        subset._windows = subset._cut()
        return subset

    def _arrays(self) -> dict[str, ArraySpec]:
        observed = {f"{OBSERVATIONS}{name}": array for name, array in self.observation.items()}
        return {**observed, "actions": self.action}

    def _cut(self) -> Windows:
        steps = np.array([episode.record.steps for episode in self.episodes], np.int64)
        return Windows(steps, self.sequence_length or 1, self._stride, self._padded)


def _require_count(what: str, given: object, others: str = "") -> None:
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise ConfigError(f"{what} is a positive number of steps{others}; given: {given!r}.")


def _open(folders: str | Path | Sequence[str | Path], check: bool) -> list[Dataset]:
    listed = [folders] if isinstance(folders, str | Path) else list(folders)
    if not listed:
        raise DatasetError("No dataset is given. `python -m fleet_tools.collect` makes one.")
    return [Dataset(folder, check=check) for folder in listed]


def _episodes(datasets: list[Dataset], failures: bool) -> tuple[StoredEpisode, ...]:
    episodes = tuple(
        dataset.stored_episode(record)
        for dataset in datasets
        for record in dataset.stored()
        if record.success or failures
    )
    if not episodes:
        stored = sum(map(len, datasets))
        raise DatasetError(
            f"{', '.join(str(dataset.folder) for dataset in datasets)}: no successful episode, "
            f"{stored} failed ones. `failures=True` takes these, too."
        )
    return episodes


def _common_layout(
    datasets: list[Dataset], requested: Sequence[str] | None
) -> tuple[dict[str, ArraySpec], ArraySpec]:
    """Returns the layouts of the requested observations and of actions, common to all datasets."""
    first = datasets[0]
    for dataset in datasets:
        for name in requested or ():
            if name not in dataset.header.observation:
                known = dataset.header.observation
                raise UnknownNameError(f"observation in {dataset.folder}", name, known)
    for other in datasets[1:]:
        expected, given = first.header.observation, other.header.observation
        names = list({**expected, **given}) if requested is None else requested
        found = {name: _differences(expected.get(name), given.get(name)) for name in names}
        found["action"] = _differences(first.header.action, other.header.action)
        if any(found.values()):
            fitting = [name for name, differences in found.items() if not differences]
            raise DatasetError(
                f"{other.folder} does not fit {first.folder}: "
                f"{'; '.join(f'{name}: {what}' for name, what in found.items() if what)}. "
                f"What fits: {', '.join(fitting) or 'nothing'}. Give what you need of it as "
                "`observations=[...]`; the action must fit."
            )
    observation = first.header.observation
    chosen = observation if requested is None else {name: observation[name] for name in requested}
    return dict(chosen), first.header.action


def _common_env_kwargs(datasets: list[Dataset]) -> dict[str, Any] | None:
    first, *others = (observation_kwargs(each.header.env_spec.kwargs) for each in datasets)
    return first if all(other == first for other in others) else None


def _differences(first: ArraySpec | None, second: ArraySpec | None) -> str:
    if first is None or second is None:
        return "" if first is second else f"only in the {'former' if second is None else 'latter'}"
    pairs = {name: (getattr(first, name), getattr(second, name)) for name in ArraySpec.model_fields}
    return ", ".join(f"{name} {a}, not {b}" for name, (a, b) in pairs.items() if a != b)
