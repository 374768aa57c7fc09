"""Samples to learn from: single steps, or windows of steps, of one or several datasets.

Samples are a dataset for PyTorch's `DataLoader`, too, which needs nothing else:

    from torch.utils.data import BatchSampler, DataLoader, RandomSampler
    from fleet_tools import Samples

    samples = Samples("data/hammer", observations=["point_cloud"], sequence_length=16)
    DataLoader(samples, batch_size=64, shuffle=True)
    batches = BatchSampler(RandomSampler(samples), 64, drop_last=False)
    DataLoader(samples, sampler=batches, batch_size=None)  # the same, each batch read at once
"""

import copy
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from fleet_tools.dataset.dataset_folder import Dataset
from fleet_tools.dataset.episode_file import OBSERVATIONS, Run
from fleet_tools.dataset.header import common_layout
from fleet_tools.dataset.stored_episode import StoredEpisode, disallowed
from fleet_tools.envs.observation_modes import observation_kwargs
from fleet_tools.errors import ConfigError, DatasetError

EPISODE = "episode"


class Samples:
    """Steps t of episodes, each an observation[t] and the action[t] that followed it.

    The observation after the last action belongs to no step. Samples are in the order of the
    folders, of the attempts and of time. An episode's file is located when one of its steps is
    first used, and only the rows that are used are read.

    Args:
        folders: Folder of one dataset, or folders of several.
        observations: Entries of the observation to use; all if None.
        sequence_length: None for single steps; L for windows of L steps; "episode" for whole
            episodes, where L is the number of steps of the longest.
        stride: Steps from the beginning of one window to the next one; with L, windows follow
            each other without overlap.
        padded: Whether windows may reach beyond the end of their episode, where they hold zeros
            and their mask is False; otherwise such windows are left out.
        failures: Whether to use stored episodes that did not succeed, too.
        check: Whether an episode's digest is checked when one of its steps is first used, which
            reads the whole file, and the values of all rows that are read.

    Attributes:
        observation: Layout of the used entries of the observation, by name.
        action: Layout of an action.
        env_kwargs: Keyword arguments of an environment with the same observations, see
            `fleet_tools.envs.observation_modes.observation_kwargs`; None where the datasets
            differ in them.
        episodes: All episodes in order, also those that are too short for a sample.
        lengths: (n,) numbers of steps of the episodes.
        starts: (n,) number of the first step of each episode, among the steps of all.
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
        headers = {str(dataset.folder): dataset.header for dataset in datasets}
        self.observation, self.action = common_layout(headers, observations)
        kwargs = [observation_kwargs(header.env_spec.kwargs) for header in headers.values()]
        self.env_kwargs = kwargs[0] if all(other == kwargs[0] for other in kwargs) else None
        episodes = _episodes(datasets, failures)
        if sequence_length == EPISODE:
            longest = max(1, *(episode.record.steps for episode in episodes))
            sequence_length, stride, padded = longest, longest, True
        self.sequence_length = sequence_length
        self._stride, self._padded, self._check = stride, padded, check
        self._set_episodes(episodes)

    def __len__(self) -> int:
        """Returns the number of samples."""
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, index: int | Sequence[int] | np.ndarray) -> dict[str, Any]:
        """Returns one sample, without the batch axis of `gather`, or several in a batch.

        Raises:
            IndexError, DatasetError: See `gather`.
        """
        if isinstance(index, Sequence | np.ndarray):
            return self.gather(index)
        return _row(self.gather([index]), 0)

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Returns samples that are read at once; PyTorch's `DataLoader` calls it."""
        batch = self.gather(indices)
        return [_row(batch, k) for k in range(len(indices))]

    def gather(self, indices: Sequence[int] | np.ndarray) -> dict[str, Any]:
        """Reads samples.

        Args:
            indices: (B,), indices of samples; negative ones count from the end.

        Returns:
            The entries of `read`, (B, ...). For windows, all of these have the axes (B, L), and
            "mask", (B, L) bool, says where there is a step. Elsewhere is padding, where "imitate"
            is False, too.

        Raises:
            IndexError: There is no such sample.
            DatasetError: See `read`.
        """
        starts, sizes = self._locate(indices)
        if self.sequence_length is None:
            return self.read(starts)
        steps, mask = window_steps(starts, sizes, self.sequence_length)
        return self._read(steps, mask) | {"mask": mask}

    def read(self, steps: np.ndarray) -> dict[str, Any]:
        """Reads single steps, independently of `sequence_length`.

        Args:
            steps: (...) integers, numbers of steps among the steps of all episodes, see `starts`.

        Returns:
            The entries "observation", {name: (..., *shape)}; "action", (..., n), the action to
            imitate, see `rollouts.episode`; and "executed_action", (..., n), the action to which
            the next observation is due. "imitate", (...) bool, is False where no action is to be
            imitated, and "action" is the executed one.

        Raises:
            DatasetError: A file is missing, damaged, or another episode's, or what the manifest
                says of its actions is not valid.
        """
        steps = np.asarray(steps, np.int64)
        return self._read(steps, np.ones(steps.shape, bool))

    @cached_property
    def imitate(self) -> np.ndarray:
        """Whether each of the steps of all episodes is to be imitated, (steps,) bool.

        Raises:
            DatasetError: What a manifest says of an episode's actions is not valid.
        """
        return np.concatenate([np.zeros(0, bool), *(each.imitate for each in self.episodes)])

    @cached_property
    def corrections(self) -> tuple[np.ndarray, np.ndarray]:
        """Steps in which a learner acted, ascending, (m,), and the expert's actions there, (m, n).

        Raises:
            DatasetError: See `imitate`; or the expert's actions have another size.
        """
        found = [(start, *each.labels.corrections) for start, each in self._with_learners()]
        steps = np.concatenate([np.zeros(0, np.int64), *(start + rows for start, rows, _ in found)])
        none = np.zeros((0, *self.action.shape), np.float32)
        try:
            actions = np.concatenate([none, *(actions for *_, actions in found)])
        except ValueError as error:
            raise DatasetError(
                f"Actions of the expert have another size than those of the dataset: {error}."
            ) from None
        return steps, actions

    def subset(self, episodes: Iterable[int]) -> Self:
        """Returns the samples of some of the episodes, such as one robot's.

        Args:
            episodes: Their indices in `episodes`.
        """
        subset = copy.copy(self)
        for cached in ("imitate", "corrections"):
            subset.__dict__.pop(cached, None)
        subset._set_episodes(tuple(self.episodes[index] for index in episodes))
        return subset

    def _set_episodes(self, episodes: tuple[StoredEpisode, ...]) -> None:
        self.episodes = episodes
        self.lengths = np.array([episode.record.steps for episode in episodes], np.int64)
        self.starts = np.cumsum(self.lengths) - self.lengths
        room = self.lengths if self._padded else self.lengths - (self.sequence_length or 1) + 1
        # Windows begin at the steps 0, stride, 2 stride, ... of an episode, where there is room.
        self._ends = np.cumsum(-(-np.maximum(room, 0) // self._stride))

    def _locate(self, indices: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the first step and the number of steps of samples, (B,) each."""
        given = np.asarray(indices, np.int64).reshape(-1)
        indices = np.where(given < 0, given + len(self), given)
        outside = (indices < 0) | (indices >= len(self))
        if outside.any():
            raise IndexError(
                f"There is no item {given[outside][0]}; the last one is {len(self) - 1}."
            )
        episodes = np.searchsorted(self._ends, indices, side="right")
        before = np.where(episodes > 0, self._ends[episodes - 1], 0)
        ages = (indices - before) * self._stride
        sizes = np.minimum(self.lengths[episodes] - ages, self.sequence_length or 1)
        return self.starts[episodes] + ages, sizes

    def _read(self, steps: np.ndarray, within: np.ndarray) -> dict[str, Any]:
        """Reads steps; where they are not within, all is zero."""
        slots = np.flatnonzero(within)
        rows = steps.reshape(-1)[slots]
        owners = np.searchsorted(self.starts + self.lengths, rows, side="right")
        if len(rows):
            _ = self.episodes[owners[0]].contents  # before memory is taken that it may not need
        make = np.empty if len(slots) == steps.size else np.zeros
        layout = {f"{OBSERVATIONS}{name}": spec for name, spec in self.observation.items()}
        layout["actions"] = self.action
        arrays = {
            name: make((steps.size, *spec.shape), spec.dtype) for name, spec in layout.items()
        }
        for owner, runs in _runs(owners, rows - self.starts[owners], slots):
            self.episodes[owner].fill(arrays, runs)
        if self._check and any(
            disallowed(layout[name].kind, each) for name, each in arrays.items()
        ):
            for owner in np.unique(owners):
                for name, array in arrays.items():
                    self.episodes[owner].require_allowed(name, array[slots[owners == owner]])
        executed = arrays.pop("actions")
        imitate = np.zeros(steps.size, bool)
        imitate[slots] = self.imitate[rows]
        batch = {
            "action": self._to_imitate(executed, rows, slots),
            "imitate": imitate,
            "executed_action": executed,
        }
        observed = {
            name.removeprefix(OBSERVATIONS): array.reshape(*steps.shape, *array.shape[1:])
            for name, array in arrays.items()
        }
        others = {
            name: array.reshape(*steps.shape, *array.shape[1:]) for name, array in batch.items()
        }
        return {"observation": observed, **others}

    def _to_imitate(self, executed: np.ndarray, rows: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Returns the actions to imitate, a copy: the expert's in a learner's steps."""
        actions = executed.copy()
        steps, corrected = self.corrections
        which = np.isin(rows, steps)
        actions[slots[which]] = corrected[np.searchsorted(steps, rows[which])]
        return actions

    def _with_learners(self) -> list[tuple[int, StoredEpisode]]:
        """Returns the episodes in which a learner acted, each with the number of its first step."""
        pairs = zip(self.starts.tolist(), self.episodes, strict=True)
        return [(start, episode) for start, episode in pairs if episode.labels.learner_steps]


def window_steps(
    starts: np.ndarray, lengths: np.ndarray, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns windows of consecutive steps, which repeat their last one at the end.

    Args:
        starts: (B,) first step of each window.
        lengths: (B,) number of its steps, from 1 to the width.
        width: Number of steps of all windows, L.

    Returns:
        (B, L) steps, and (B, L) bool, whether they are within the lengths.
    """
    ages = np.arange(width)
    steps = starts[:, None] + np.minimum(ages, lengths[:, None] - 1)
    return steps, ages < lengths[:, None]


def _runs(
    owners: np.ndarray, rows: np.ndarray, slots: np.ndarray
) -> Iterable[tuple[int, list[Run]]]:
    """Returns consecutive rows that fill consecutive slots, by the episode that owns them."""
    if not len(rows):
        return []
    order = np.argsort(owners, kind="stable")
    owners, rows, slots = owners[order], rows[order], slots[order]
    breaks = (np.diff(owners) != 0) | (np.diff(rows) != 1) | (np.diff(slots) != 1)
    begins = np.append(0, np.flatnonzero(breaks) + 1)
    counts = np.diff(np.append(begins, len(rows)))
    runs: dict[int, list[Run]] = {}
    columns = (owners[begins], rows[begins], slots[begins], counts)
    for owner, *run in zip(*(column.tolist() for column in columns), strict=True):
        runs.setdefault(owner, []).append((run[0], run[1], run[2]))
    return runs.items()


def _row(batch: dict[str, Any], k: int) -> dict[str, Any]:
    return {
        name: _row(part, k) if isinstance(part, dict) else part[k] for name, part in batch.items()
    }


def _require_count(what: str, given: object, others: str = "") -> None:
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise ConfigError(f"{what} must be a positive number of steps{others}; given: {given!r}.")


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
            f"{', '.join(str(dataset.folder) for dataset in datasets)}: no episode succeeded, "
            f"{stored} failed. Collect more. To learn from failures with a teacher, give `train` a "
            "--teacher, or `Samples` failures=True."
        )
    return episodes
