"""An episode on disk: the one way to its file, which is checked before it is used."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from fleet_tools.dataset import episode_file
from fleet_tools.dataset.allowed_values import disallowed
from fleet_tools.dataset.episode_file import OBSERVATIONS, ArrayLayout, Contents
from fleet_tools.dataset.header import HEADER, ArraySpec, Header
from fleet_tools.dataset.manifest import MANIFEST, AttemptRecord, file_digest
from fleet_tools.errors import DatasetError
from fleet_tools.rollouts.episode import Episode
from fleet_tools.rollouts.imitation import Labels

_STEP_DTYPES = {"rewards": "float64", "terminated": "bool", "truncated": "bool", "success": "bool"}
"""Types of the arrays with one number for each step, beside the actions."""


@dataclass(frozen=True, eq=False)
class StoredEpisode:
    """An episode on disk.

    Its file lies in the folder of the dataset, and holds all its arrays itself, in the shapes and
    types that the header and the manifest say; otherwise it is not read.

    Attributes:
        folder: Folder of its dataset.
        header: Header of its dataset.
        record: Its line of the manifest.
        check: Whether the digest of the file and the values of the arrays are checked, too.
    """

    folder: Path
    header: Header
    record: AttemptRecord
    check: bool = True

    def __getstate__(self) -> dict:
        """Returns the fields, without what follows from them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def task(self) -> str:
        """Name of the dataset's task."""
        return self.header.task.name

    @property
    def path(self) -> Path:
        """File of the episode."""
        assert self.record.file is not None  # it is stored
        return self.folder / self.record.file

    @cached_property
    def labels(self) -> Labels:
        """Which of its steps and actions are to be imitated.

        Raises:
            DatasetError: What the manifest says about it is not valid.
        """
        return Labels.of(self.record.info, self.record.steps)

    @cached_property
    def imitate(self) -> np.ndarray:
        """Whether each of its steps is to be imitated, (T,) bool; see `labels`."""
        return self.labels.imitate(self.record.steps)

    def contents(self, names: Iterable[str] | None = None) -> Contents:
        """Returns what the file holds besides the entries of its arrays.

        Args:
            names: Arrays to locate, see `episode_file.contents`; exactly those that the header
                describes if None.

        Raises:
            DatasetError: The file is missing, damaged, or not the one that the manifest lists.
        """
        self._require_file()
        names = None if names is None else list(names)
        contents = episode_file.contents(self.path, names)
        listed = (self.record.state_digest, self.record.outcome)
        if (contents.final_digest, contents.attributes["outcome"]) != listed:
            raise DatasetError(f"{self.path} is not the episode that {MANIFEST} lists.")
        expected = self._layouts()
        for name in expected.keys() | contents.arrays.keys() if names is None else names:
            array = contents.arrays.get(name)
            found = None if array is None else array.layout
            if found != expected.get(name):
                raise DatasetError(
                    f"{self.path} is damaged: {name!r} is {found}, but {expected.get(name)} "
                    f"according to {HEADER} and {MANIFEST}."
                )
        return contents

    def read(self) -> Episode:
        """Reads the episode.

        Raises:
            DatasetError: See `contents`.
        """
        self.contents()  # first, since it tells how much memory is needed
        episode = episode_file.read(self.path)
        for name, rows in {**episode.step_arrays(), **episode.state_arrays()}.items():
            self.require_allowed(name, rows)
        return replace(episode, info=self.record.info)

    def require_allowed(self, name: str, rows: np.ndarray) -> None:
        """Checks values of an array, if they are to be checked.

        Raises:
            DatasetError: They are not finite, or beyond the limits of what they measure.
        """
        if self.check and (wrong := disallowed(name, rows)):
            raise DatasetError(f"{self.path} is damaged: {name!r} holds {wrong}.")

    def _require_file(self) -> None:
        path = self.path
        real, folder = Path(os.path.realpath(path)), os.path.realpath(self.folder)
        if not real.is_relative_to(folder):
            raise DatasetError(
                f"{path} leads out of the dataset, to {real}, which is not read. If it belongs to "
                "the dataset, put a copy in its place."
            )
        if not path.is_file():
            raise DatasetError(f"{path} is missing.")
        if not self.check or self.record.file_digest is None:
            return
        try:
            found = file_digest(path)
        except OSError as error:
            raise DatasetError(f"{path} cannot be read: {error.strerror}.") from error
        if found != self.record.file_digest:
            raise DatasetError(
                f"{path} is damaged, or not the episode that {MANIFEST} lists: its digest is "
                f"{found}, not {self.record.file_digest}."
            )

    def _layouts(self) -> dict[str, ArrayLayout]:
        """Returns the layout of every array, by name."""
        steps, header = self.record.steps, self.header
        observed = {f"{OBSERVATIONS}{name}": spec for name, spec in header.observation.items()}
        return {
            "actions": _layout(steps, header.action),
            **{name: ArrayLayout((steps,), np.dtype(kind)) for name, kind in _STEP_DTYPES.items()},
            "digests": ArrayLayout((steps + 1,), np.dtype("uint64")),
            **{name: _layout(steps + 1, spec) for name, spec in observed.items()},
        }


def _layout(rows: int, spec: ArraySpec) -> ArrayLayout:
    return ArrayLayout((rows, *spec.shape), np.dtype(spec.dtype))
