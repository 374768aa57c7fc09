"""One episode as one HDF5 file, in the layout of Minari's episode groups.

    episode_<k>                 attributes: id, seed, total_steps, outcome, error, scene
        observations/<name>     (T + 1, ...)
        actions                 (T, n) float32
        rewards                 (T,) float64
        terminations            (T,) bool
        truncations             (T,) bool
        infos/success           (T,) bool
        infos/state_digest      (T + 1,) uint64

`scene` and `error` are JSON; texts have a fixed length. Arrays are contiguous and uncompressed, so
that their rows can be read from where they lie, except for camera images, which are compressed one
by one. The same episode gives the same bytes.
"""

import io
import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from fleet_tools.dataset.self_contained import (
    array_in,
    group_in,
    integer_of,
    opened,
    text_of,
)
from fleet_tools.envs.spec import read_scene
from fleet_tools.errors import DatasetError
from fleet_tools.rollouts.episode import Episode, hexadecimal
from fleet_tools.storage.strict_json import loads

OBSERVATIONS = "observations/"
"""Prefix of the names of observations, beside the names of fields of `Episode`."""

NAMES_IN_FILE = {
    "actions": "actions",
    "rewards": "rewards",
    "terminated": "terminations",
    "truncated": "truncations",
    "success": "infos/success",
    "digests": "infos/state_digest",
}
"""Names in a file of the arrays that are fields of `Episode`."""

_TEXTS = ("outcome", "error", "scene")
"""Attributes that are texts."""

_COMPRESSION = {"compression": "gzip", "compression_opts": 1, "shuffle": True}  # any HDF5 reads it


class StoredArray(NamedTuple):
    """An array in a file.

    Attributes:
        shape, dtype: As of a NumPy array.
        offset: Bytes before it; None if it is compressed, or empty.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    offset: int | None


Run = tuple[int, int, int]
"""Consecutive rows that are read at once, see `fill`."""


@dataclass(frozen=True)
class Contents:
    """Contents of an episode's file besides the entries of its arrays.

    Attributes:
        group: Name of the group that holds the episode.
        attributes: The group's seed, outcome, error and scene, by name; the latter two are JSON.
        final_digest: Hash of the final state, hexadecimal.
        arrays: Arrays, named as fields of `Episode` or "observations/<name>".
    """

    group: str
    attributes: dict[str, Any]
    final_digest: str
    arrays: dict[str, StoredArray]


def to_bytes(episode: Episode, number: int, images: Collection[str] = ()) -> bytes:
    """Returns the content of the file, without `Episode.info`, which may differ each time.

    Args:
        episode: The episode.
        number: k in the group's name.
        images: Names of the observations that are images, which are compressed one by one.
    """
    image = io.BytesIO()
    with h5py.File(
        image,
        "w",
        libver=("v110", "v110"),  # otherwise the bytes would change with the HDF5 library
        alignment_threshold=1,
        alignment_interval=8,  # numbers of 8 bytes lie at multiples of 8
    ) as file:
        group = file.create_group(f"episode_{number}")
        group.attrs["id"] = number
        group.attrs["seed"] = episode.scene.seed
        group.attrs["total_steps"] = len(episode)
        texts = (episode.outcome, json.dumps(episode.error), episode.scene.to_json())
        for name, text in zip(_TEXTS, texts, strict=True):
            content = text.encode()
            group.attrs.create(name, content, dtype=h5py.string_dtype("utf-8", len(content)))
        for field, name in NAMES_IN_FILE.items():
            _add(group, name, getattr(episode, field), compressed=False)
        for name, rows in episode.observations.items():
            _add(group, f"{OBSERVATIONS}{name}", rows, compressed=name in images)
    return image.getvalue()


def read(path: Path) -> Episode:
    """Reads an episode, without its `info`.

    Raises:
        DatasetError: The file is missing, damaged, or not an episode.
    """
    with opened(path) as group:
        observations = group_in(group, "observations")
        arrays = {field: array_in(group, name)[()] for field, name in NAMES_IN_FILE.items()}
        return Episode(
            scene=read_scene(loads(text_of(group, "scene"))),
            observations={name: array_in(observations, name)[()] for name in _names(observations)},
            actions=arrays["actions"],
            rewards=arrays["rewards"],
            terminated=arrays["terminated"],
            truncated=arrays["truncated"],
            success=arrays["success"],
            digests=arrays["digests"],
            outcome=text_of(group, "outcome"),
            error=_error(group),
        )


def contents(path: Path) -> Contents:
    """Returns the contents of a file besides the entries of its arrays.

    Raises:
        DatasetError: The file is missing, damaged, or not an episode.
    """
    with opened(path) as group:
        observed = _names(group_in(group, "observations"))
        names = [*NAMES_IN_FILE, *(f"{OBSERVATIONS}{name}" for name in observed)]
        arrays = {name: array_in(group, NAMES_IN_FILE.get(name, name)) for name in names}
        texts = {name: text_of(group, name) for name in _TEXTS}
        return Contents(
            group=str(group.name),
            attributes={"seed": integer_of(group, "seed"), **texts},
            final_digest=hexadecimal(array_in(group, NAMES_IN_FILE["digests"])[-1]),
            arrays={
                name: StoredArray(array.shape, array.dtype, array.id.get_offset())
                for name, array in arrays.items()
            },
        )


def fill(
    path: Path,
    stored: Mapping[str, StoredArray],
    arrays: Mapping[str, np.ndarray],
    runs: Sequence[Run],
) -> None:
    """Reads rows of a file into arrays.

    Args:
        path: Path of the file.
        stored: Where its arrays are, see `contents`.
        arrays: Arrays of as many axes, dtypes and sizes of rows, in C order, by the same names.
        runs: Rows to read; each is the first of some rows of the file, the first of the rows that
            they fill, and their number.

    Raises:
        DatasetError: The file is missing, damaged, or another one than was located.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            for name, array in arrays.items():
                if (offset := stored[name].offset) is not None and array.size:
                    rows = array.reshape(len(array), -1).view(np.uint8)
                    for first, to, count in runs:
                        begin = offset + first * rows.shape[1]
                        _read(descriptor, rows[to : to + count].reshape(-1), begin)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}.") from error
    compressed = [name for name in arrays if stored[name].offset is None and arrays[name].size]
    if compressed:
        with opened(path) as group:
            for name in compressed:
                source = array_in(group, NAMES_IN_FILE.get(name, name))
                for first, to, count in runs:
                    source.read_direct(
                        arrays[name], np.s_[first : first + count], np.s_[to : to + count]
                    )


def _read(descriptor: int, target: np.ndarray, offset: int) -> None:
    rest = target.data
    while rest:
        if not (size := os.preadv(descriptor, [rest], offset)):
            raise OSError("it is shorter than it was")
        rest, offset = rest[size:], offset + size


def _names(group: h5py.Group) -> list[str]:
    return [str(name) for name in group]


def _error(group: h5py.Group) -> str | None:
    error = loads(text_of(group, "error"))
    if not isinstance(error, str | None):
        raise TypeError("its error is not text")
    return error


def _add(group: h5py.Group, name: str, rows: np.ndarray, *, compressed: bool) -> None:
    storage = {"chunks": (1, *rows.shape[1:]), **_COMPRESSION} if compressed else {}
    # Times of creation would be different bytes for the same content.
    group.create_dataset(name, data=rows, track_times=False, **storage)
