"""The episodes of an export, read one at a time, or shown in a view by links to their files."""

import contextlib
import io
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from fleet_tools.dataset.dataset_folder import Dataset
from fleet_tools.dataset.episode_file import NAMES_IN_FILE
from fleet_tools.dataset.header import Header
from fleet_tools.dataset.stored_episode import AttemptRecord, StoredEpisode
from fleet_tools.rollouts.episode import Episode, Labels
from fleet_tools.utils.progress import progress_bar


@dataclass(frozen=True, eq=False)
class ExportSource:
    """The episodes of an export.

    Attributes:
        dataset: The dataset.
        records: Records of the episodes.
        of_chunks: Whether the format's learners predict several actions at once, see
            `rollouts.episode.Labels.pieces`.
        whole: Whether episodes are left whole, although there are steps not to imitate.
        quiet: Whether to show no progress.
    """

    dataset: Dataset
    records: list[AttemptRecord]
    of_chunks: bool = False
    whole: bool = False
    quiet: bool = True

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
        with progress_bar(len(self.records), "episode", quiet=self.quiet) as bar:
            for record in self.records:
                yield record, self.dataset.episode(record.attempt)
                bar.update()

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


@dataclass(frozen=True, eq=False)
class PieceView:
    """A group of a view that shows consecutive steps of an episode.

    Attributes:
        group: The group.
        episode: The episode.
        first, end: The first of the steps, and the one after the last.
        folder: Folder in which the view will lie.
    """

    group: h5py.Group
    episode: StoredEpisode
    first: int
    end: int
    folder: Path

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.end - self.first

    @property
    def cut(self) -> bool:
        """Whether the episode goes on afterwards."""
        return self.end < self.episode.record.steps

    def add(self, names: Mapping[str, str], imitate: str, executed_actions: str) -> None:
        """Adds all arrays but the observations; the "actions" are those to imitate.

        Args:
            names: Names in the group, by the arrays' names.
            imitate: Name of the mask of steps to imitate.
            executed_actions: Name of the executed actions.
        """
        labels, steps = self.episode.labels, slice(self.first, self.end)
        self.group[imitate] = self.episode.imitate[steps]
        self.show(executed_actions, "actions", self.first, self.steps)
        for array, name in names.items():
            if array == "actions" and labels.learner_steps:
                self.group[name] = labels.actions(self.episode.rows("actions"))[steps]
            elif array == "truncated" and self.cut:
                self.group[name] = truncated_at_end(self.steps)
            else:
                self.show(name, array, self.first, self.steps + (array == "digests"))

    def show(self, name: str, array: str, first: int, count: int, *, channel: bool = False) -> None:
        """Shows rows of an array.

        Args:
            name: Name in the group.
            array: Name of the array, see `episode_file.Contents.arrays`.
            first: First row.
            count: Number of rows.
            channel: Whether to give the rows an axis more, at the end.
        """
        path, contents = _relative(self.episode, self.folder), self.episode.contents
        stored = f"{contents.group}/{NAMES_IN_FILE.get(array, array)}"
        shape, dtype, _ = contents.arrays[array]
        if (first, count, channel) == (0, shape[0], False):
            self.group[name] = h5py.ExternalLink(path, stored)
            return
        # Percent signs are doubled, since HDF5 takes them for the format of a series of files.
        file, array = path.replace("%", "%%"), stored.replace("%", "%%")
        rows = h5py.VirtualSource(file, array, shape, dtype)
        view = h5py.VirtualLayout((count, *shape[1:], *(1,) * channel), dtype)
        view[...] = rows[first : first + count]
        fill = np.nan if dtype.kind == "f" else 0
        self.group.create_virtual_dataset(name, view, fillvalue=fill)


@contextlib.contextmanager
def stored_view(path: Path) -> Iterator[h5py.File]:
    """Yields a new file, which is stored at a path once it is complete.

    It grows in memory: on a full disk, HDF5 closes a file without an error, and then crashes.
    """
    image = io.BytesIO()
    with h5py.File(image, "w", libver=("v110", "v110")) as file:
        yield file
    # Released also where the disk is full; `write_bytes` of Python 3.13 would keep it.
    with image.getbuffer() as content, path.open("wb") as stored:
        stored.write(content)


def link_whole(file: h5py.File, episode: StoredEpisode, folder: Path) -> None:
    """Links to an episode as it was stored, with the steps that no piece shows.

    Args:
        file: The view's file.
        episode: The episode.
        folder: Folder in which the file will lie.
    """
    link = h5py.ExternalLink(_relative(episode, folder), episode.contents.group)
    file[f"whole/attempt_{episode.record.attempt}"] = link


def _relative(episode: StoredEpisode, folder: Path) -> str:
    """Returns the path of an episode's file from a folder, so that both can be moved together."""
    return os.path.relpath(episode.path.resolve(), folder.resolve())
