"""The episodes of an export, read one at a time, or shown in a view by links to their files."""

import contextlib
import io
import os
from collections.abc import Iterator, Mapping, Sequence
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
from fleet_tools.rollouts.episode import Episode
from fleet_tools.utils.progress import progress_bar


@dataclass(frozen=True, eq=False)
class ExportEpisode:
    """An episode of an export.

    Attributes:
        dataset: Number of its dataset in the export.
        stored: The episode on disk.
        pieces: First step and end of each of the parts that learners shall read.
        prefix: What tells its attempt from other datasets' in an output: `dataset_<n>/`, or nothing
            if there is only one dataset.
    """

    dataset: int
    stored: StoredEpisode
    pieces: list[tuple[int, int]]
    prefix: str

    @property
    def record(self) -> AttemptRecord:
        """Its line of the manifest."""
        return self.stored.record

    @property
    def steps_outside(self) -> np.ndarray:
        """The steps that are in none of its pieces, (k,)."""
        outside = np.ones(self.record.steps, bool)
        for first, end in self.pieces:
            outside[first:end] = False
        return np.flatnonzero(outside)

    def metadata(self, episode: Episode) -> dict[str, Any]:
        """Returns dataset, attempt, seed, outcome, error and scene, as plain JSON data."""
        return {
            "dataset": self.dataset,
            "attempt": self.record.attempt,
            "seed": self.record.seed,
            "outcome": episode.outcome,
            "error": episode.error,
            "scene": episode.scene.to_json(),
        }


@dataclass(frozen=True, eq=False)
class ExportSource:
    """The episodes of an export.

    Attributes:
        datasets: The datasets, which fit together.
        failures: Whether stored failures are episodes, too.
        of_chunks: Whether the format's learners predict several actions at once, see
            `rollouts.episode.Labels.pieces`.
        whole: Whether episodes are left whole, although there are steps not to imitate.
        quiet: Whether to show no progress.
    """

    datasets: Sequence[Dataset]
    failures: bool = False
    of_chunks: bool = False
    whole: bool = False
    quiet: bool = True

    @property
    def header(self) -> Header:
        """Header of the first dataset; all datasets have its observations and actions."""
        return self.datasets[0].header

    @property
    def folders(self) -> list[str]:
        """Names of the datasets' folders."""
        return [dataset.folder.resolve().name for dataset in self.datasets]

    @property
    def headers(self) -> list[dict[str, Any]]:
        """Name of the folder and header of each dataset, as plain JSON data."""
        headers = [dataset.header.model_dump(mode="json") for dataset in self.datasets]
        return [
            {"folder": folder, "header": header}
            for folder, header in zip(self.folders, headers, strict=True)
        ]

    @cached_property
    def episodes(self) -> list[ExportEpisode]:
        """The episodes.

        Learners of other projects imitate all actions of what they take for an episode. So the
        pieces of an episode hold consecutive steps to imitate. Steps that are not belong to none.

        Raises:
            DatasetError: A manifest says something of an episode's actions that is not valid.
        """
        return [
            ExportEpisode(
                number,
                stored := dataset.stored_episode(record),
                [(0, record.steps)]
                if self.whole
                else stored.labels.pieces(record.steps, of_chunks=self.of_chunks),
                f"dataset_{number}/" if len(self.datasets) > 1 else "",
            )
            for number, dataset in enumerate(self.datasets)
            for record in dataset.stored()
            if record.steps and (record.success or self.failures)
        ]

    @property
    def steps(self) -> int:
        """Number of control steps of all episodes."""
        return sum(each.record.steps for each in self.episodes)

    @property
    def lengths(self) -> list[int]:
        """Numbers of control steps of all pieces."""
        return [end - first for each in self.episodes for first, end in each.pieces]

    @property
    def cut(self) -> bool:
        """Whether any episode is cut into pieces, or lacks steps."""
        return any(each.pieces != [(0, each.record.steps)] for each in self.episodes)

    def read(self) -> Iterator[tuple[ExportEpisode, Episode]]:
        """Reads the episodes, one after the other.

        Raises:
            DatasetError: A file is missing or damaged; the message says how to recover it.
        """
        with progress_bar(len(self.episodes), "episode", quiet=self.quiet) as bar:
            for each in self.episodes:
                yield each, each.stored.read()
                bar.update()


def truncated_at_end(steps: int) -> np.ndarray:
    """Returns the flags of a piece after which its episode goes on, (steps,) bool."""
    return np.arange(1, steps + 1) == steps


@dataclass(frozen=True, eq=False)
class PieceView:
    """A group of a view that shows consecutive steps of an episode.

    Attributes:
        group: The group.
        source: The episode.
        first, end: The first of the steps, and the one after the last.
        folder: Folder in which the view will lie.
    """

    group: h5py.Group
    source: ExportEpisode
    first: int
    end: int
    folder: Path

    @property
    def episode(self) -> StoredEpisode:
        """The episode on disk."""
        return self.source.stored

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.end - self.first

    @property
    def cut(self) -> bool:
        """Whether the episode goes on afterwards."""
        return self.end < self.episode.record.steps

    def add(self, names: Mapping[str, str], imitate: str, executed_actions: str) -> None:
        """Adds attributes, and all arrays but the observations; the actions are those to imitate.

        Args:
            names: Names in the group, by the arrays' names.
            imitate: Name of the mask of steps to imitate.
            executed_actions: Name of the executed actions.
        """
        labels, steps = self.episode.labels, slice(self.first, self.end)
        self.group.attrs.update(
            dataset=self.source.dataset,
            first_step=self.first,
            **self.episode.contents.attributes,
        )
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


def link_whole(file: h5py.File, source: ExportSource, folder: Path) -> None:
    """Links to all episodes as they were stored, with the steps that no piece shows.

    Args:
        file: The view's file.
        source: The episodes.
        folder: Folder in which the file will lie.
    """
    for each in source.episodes:
        group = each.stored.contents.group
        link = h5py.ExternalLink(_relative(each.stored, folder), group)
        file[f"whole/{each.prefix}attempt_{each.record.attempt}"] = link


def _relative(episode: StoredEpisode, folder: Path) -> str:
    """Returns the path of an episode's file from a folder, so that both can be moved together."""
    return os.path.relpath(episode.path.resolve(), folder.resolve())
