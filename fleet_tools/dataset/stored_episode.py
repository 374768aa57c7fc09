"""An attempt on disk: its line in the manifest, and the reader of its episode file.

The file is checked before it is used.
"""

import hashlib
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Self

import numpy as np
import pydantic

from fleet_tools.config.values import CountOrZero, Seed, Value
from fleet_tools.dataset import episode_file
from fleet_tools.dataset.episode_file import OBSERVATIONS, Contents, Run
from fleet_tools.dataset.header import HEADER, ArraySpec, Header
from fleet_tools.envs.array_spec import LIMITS, Kind
from fleet_tools.errors import DatasetError
from fleet_tools.rollouts.episode import Episode, Labels

MANIFEST = "manifest.jsonl"
EPISODES = "episodes"
"""Folder of the episodes' files."""

MAX_STEPS = 1_000_000
"""Largest number of steps of an episode; two days at the rate of control."""

_FILE, _DIGEST = rf"^{EPISODES}/[A-Za-z0-9_-]+\.hdf5$", "^[0-9a-f]{32}$"

begin_digest = partial(hashlib.blake2b, digest_size=16)
"""Begins the hash of an episode's file; its argument is the content, or the first part of it."""


def file_digest(path: Path) -> str:
    """Returns the hash of an episode's file, hexadecimal.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, begin_digest).hexdigest()


class AttemptRecord(Value):
    """A line of the manifest: the result of one attempt.

    Attributes:
        attempt: Number of the attempt, from 0.
        seed: Seed of the attempt's scene, as for `env.reset(seed=seed)`.
        outcome: See `fleet_tools.envs.outcomes`.
        success: Whether the outcome is a success.
        steps: Number of control steps.
        file: Path of the episode, relative to the dataset; None if it was not stored.
        file_digest: Hash of the episode's file, hexadecimal; None if it was not stored.
        tool: Tool of the scene; None if the scene could not even begin.
        object: Object of the scene; likewise.
        state_digest: Hash of the final state, hexadecimal.
        seconds: Wall time.
        error: Error message, if there was an error.
        verified: Whether it was run again before it counted, and agreed bit for bit.
        info: See `fleet_tools.rollouts.episode.Episode`.
    """

    attempt: CountOrZero
    seed: Seed
    outcome: str
    success: bool
    steps: Annotated[CountOrZero, pydantic.Field(le=MAX_STEPS)]
    file: Annotated[str, pydantic.Field(pattern=_FILE)] | None = None
    file_digest: Annotated[str, pydantic.Field(pattern=_DIGEST)] | None = None
    tool: str | None = None
    object: str | None = None
    state_digest: str | None = None
    seconds: float
    error: str | None = None
    verified: bool = False
    info: dict[str, pydantic.JsonValue] = {}

    @pydantic.model_validator(mode="after")
    def _digest_of_file(self) -> Self:
        if (self.file is None) != (self.file_digest is None):
            raise ValueError("give both `file` and its digest, or neither")
        return self


Shape = tuple[tuple[int, ...], np.dtype]
"""Shape and dtype of an array."""

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
        successes: Number of successful attempts up to this one, itself included.
        check: Whether the digest of the file and the values of the arrays are checked, too.
    """

    folder: Path
    header: Header
    record: AttemptRecord
    successes: int
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

    @cached_property
    def contents(self) -> Contents:
        """Contents of the file besides the entries of its arrays, which the header describes.

        Raises:
            DatasetError: The file is missing, damaged, or not the one that the manifest lists.
        """
        with self._remedied():
            self._require_file()
            contents = episode_file.contents(self.path)
            listed = (self.record.state_digest, self.record.outcome)
            if (contents.final_digest, contents.attributes["outcome"]) != listed:
                raise DatasetError(f"{self.path} is not the episode that {MANIFEST} lists.")
            expected = self._shapes()
            found = {name: (each.shape, each.dtype) for name, each in contents.arrays.items()}
            for name in {**expected, **found}:
                if found.get(name) != expected.get(name):
                    raise DatasetError(
                        f"{self.path} is damaged: {name!r} is {_described(found.get(name))}, but "
                        f"{_described(expected.get(name))} according to {HEADER} and {MANIFEST}."
                    )
            return contents

    def read(self) -> Episode:
        """Reads the episode.

        Raises:
            DatasetError: See `contents`; or a value is not allowed.
        """
        _ = self.contents  # first, since it tells how much memory is needed
        with self._remedied():
            episode = episode_file.read(self.path)
        for name, rows in {**episode.step_arrays(), **episode.state_arrays()}.items():
            self.require_allowed(name, rows)
        return replace(episode, info=self.record.info)

    def fill(self, arrays: Mapping[str, np.ndarray], runs: Sequence[Run]) -> None:
        """Reads rows into arrays, without a check of their values; see `episode_file.fill`.

        Raises:
            DatasetError: See `contents`.
        """
        stored = self.contents.arrays
        with self._remedied():
            episode_file.fill(self.path, stored, arrays, runs)

    def rows(self, name: str) -> np.ndarray:
        """Reads an array: "actions" with T rows, or "observations/<name>" with T + 1.

        Raises:
            DatasetError: See `contents`; or a value is not allowed.
        """
        stored = self.contents.arrays[name]
        rows = np.empty(stored.shape, stored.dtype)
        self.fill({name: rows}, [(0, 0, len(rows))])
        self.require_allowed(name, rows)
        return rows

    def require_allowed(self, name: str, rows: np.ndarray) -> None:
        """Checks values of an array, if they are to be checked.

        Raises:
            DatasetError: They are not finite, or beyond the limits of what they measure.
        """
        if self.check and (wrong := disallowed(self._kind(name), rows)):
            with self._remedied():
                raise DatasetError(f"{self.path} is damaged: {name!r} holds {wrong}.")

    @contextmanager
    def _remedied(self) -> Iterator[None]:
        """Adds to errors about the file how to recover it."""
        try:
            yield
        except DatasetError as error:
            raise DatasetError(f"{error} {self._remedy()}") from error

    def _remedy(self) -> str:
        header, record = self.header, self.record
        option = "--tool" if header.task.folder is None else "--task"
        keep = " --keep-failures" if header.keep_failures else ""
        episodes = self.successes + (not record.success)
        return (
            f"Copy it here from `python -m fleet_tools.collect {option} "
            f"{shlex.quote(header.env_spec.task)} --seed {header.seed} --episodes "
            f"{episodes}{keep} --output ANOTHER`, which makes it again."
        )

    def _require_file(self) -> None:
        path = self.path
        real, folder = Path(os.path.realpath(path)), os.path.realpath(self.folder)
        if not real.is_relative_to(folder):
            raise DatasetError(
                f"{path} leads out of the dataset, to {real}, and is not read. If it belongs to "
                "the dataset, replace it by a copy."
            )
        if not path.is_file():
            raise DatasetError(f"{path} is missing.")
        if not self.check:
            return
        try:
            found = file_digest(path)
        except OSError as error:
            raise DatasetError(f"{path} cannot be read: {error.strerror}.") from error
        if found != self.record.file_digest:
            raise DatasetError(
                f"{path} is damaged, or not the episode that {MANIFEST} lists: its digest is "
                f"{found}, expected {self.record.file_digest}."
            )

    def _kind(self, name: str) -> Kind | None:
        """Returns the kind of an array; None of one with a number for each step or state."""
        if name == "actions":
            return self.header.action.kind
        spec = self.header.observation.get(name.removeprefix(OBSERVATIONS))
        return spec.kind if spec and name.startswith(OBSERVATIONS) else None

    def _shapes(self) -> dict[str, Shape]:
        """Returns shape and dtype of every array, by name."""
        steps, header = self.record.steps, self.header
        observed = {f"{OBSERVATIONS}{name}": spec for name, spec in header.observation.items()}
        return {
            "actions": _shape(steps, header.action),
            **{name: ((steps,), np.dtype(kind)) for name, kind in _STEP_DTYPES.items()},
            "digests": ((steps + 1,), np.dtype("uint64")),
            **{name: _shape(steps + 1, spec) for name, spec in observed.items()},
        }


def disallowed(kind: Kind | None, rows: np.ndarray) -> str | None:
    """Returns the fault of an array's values; None if there is none.

    Numbers of an episode are within the limits of what they measure, and finite where there are
    none.

    Args:
        kind: Kind of the array; None for one with a number for each step beside the actions.
        rows: The array, or some of its rows.
    """
    largest = np.finfo(rows.dtype).max if rows.dtype.kind == "f" else np.inf
    low, high = LIMITS.get(kind, (-largest, largest)) if kind else (-largest, largest)
    if rows.dtype == bool:
        rows, low, high = rows.view(np.uint8), 0, 1
    if rows.size == 0 or (low <= rows.min() and rows.max() <= high):
        return None  # a comparison with NaN is False
    if np.isnan(rows).any():
        return "NaN"
    return f"numbers from {rows.min():g} to {rows.max():g}, not all in [{low:g}, {high:g}]"


def _shape(rows: int, spec: ArraySpec) -> Shape:
    return (rows, *spec.shape), np.dtype(spec.dtype)


def _described(shape: Shape | None) -> str:
    return "missing" if shape is None else f"{shape[1]} of shape {shape[0]}"
