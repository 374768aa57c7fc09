"""Pieces of episodes in a view: links and virtual arrays over the episodes' files."""

import contextlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from fleet_tools.dataset.export.source import LocatedEpisode, truncated_at_end


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
    episode: LocatedEpisode
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
        return self.end < self.episode.steps

    def add(self, names: Mapping[str, str], imitate: str, executed_actions: str) -> None:
        """Adds all arrays but the observations; the "actions" are those to imitate.

        Args:
            names: Names in the group, by the arrays' names.
            imitate: Name of the mask of steps to imitate.
            executed_actions: Name of the executed actions.
        """
        labels, steps = self.episode.labels, slice(self.first, self.end)
        self.group[imitate] = labels.imitate(self.episode.steps)[steps]
        self.show(executed_actions, "actions", self.first, self.steps)
        for array, name in names.items():
            if array == "actions" and labels.learner_steps:
                self.group[name] = labels.actions(self.episode.actions())[steps]
            elif array == "truncated" and self.cut:
                self.group[name] = truncated_at_end(self.steps)
            else:
                self.show(name, array, self.first, self.steps + (array == "digests"))

    def show(self, name: str, array: str, first: int, count: int, *, channel: bool = False) -> None:
        """Shows rows of an array.

        Args:
            name: Name in the group.
            array: Name of the array, see `LocatedEpisode.arrays`.
            first: First row.
            count: Number of rows.
            channel: Whether to give the rows an axis more, at the end.
        """
        path = self.episode.relative_to(self.folder)
        stored, layout = self.episode.name_in_file(array), self.episode.arrays[array]
        if (first, count, channel) == (0, layout.shape[0], False):
            self.group[name] = h5py.ExternalLink(path, stored)
            return
        # Percent signs are doubled, since HDF5 takes them for the format of a series of files.
        file, array = path.replace("%", "%%"), stored.replace("%", "%%")
        rows = h5py.VirtualSource(file, array, layout.shape, layout.dtype)
        view = h5py.VirtualLayout((count, *layout.shape[1:], *(1,) * channel), layout.dtype)
        view[...] = rows[first : first + count]
        fill = np.nan if layout.dtype.kind == "f" else 0
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


def link_whole(file: h5py.File, episode: LocatedEpisode, attempt: int, folder: Path) -> None:
    """Links to an episode as it was stored, with the steps that no piece shows.

    Args:
        file: The view's file.
        episode: The episode.
        attempt: Number of its attempt.
        folder: Folder in which the file will lie.
    """
    link = h5py.ExternalLink(episode.relative_to(folder), episode.group)
    file[f"whole/attempt_{attempt}"] = link
