"""One episode as one HDF5 file, in the layout of Minari's episode groups.

    episode_<k>                 attributes: id, seed, total_steps, outcome, error, scene
        observations/<name>     (T + 1, ...)
        actions                 (T, n) float32
        rewards                 (T,) float64
        terminations            (T,) bool
        truncations             (T,) bool
        infos/success           (T,) bool
        infos/state_digest      (T + 1,) uint64

`scene` and `error` are JSON. Arrays are contiguous and uncompressed, so that they can be mapped
into memory, except for camera images, which are compressed one by one. The same episode gives the
same bytes.
"""

import io
import json
from collections.abc import Iterable
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
from fleet_tools.perception.observation_config import is_image
from fleet_tools.rollouts.episode import Episode, hexadecimal
from fleet_tools.storage.strict_json import loads

OBSERVATIONS = "observations/"
"""Prefix of the names of observations, beside those of fields of `Episode`."""

NAMES_IN_FILE = {
    "actions": "actions",
    "rewards": "rewards",
    "terminated": "terminations",
    "truncated": "truncations",
    "success": "infos/success",
    "digests": "infos/state_digest",
}
"""Names in a file of the arrays that are fields of `Episode`."""

_COMPRESSION = {"compression": "gzip", "compression_opts": 1, "shuffle": True}  # any HDF5 reads it


class ArrayLayout(NamedTuple):
    """Shape and dtype of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype

    def __str__(self) -> str:
        """Returns it as error messages say it."""
        return f"{self.dtype} of shape {self.shape}"


class StoredArray(NamedTuple):
    """An array in a file.

    Attributes:
        layout: Its shape and dtype.
        offset: Bytes before it; None if it is compressed, or empty.
    """

    layout: ArrayLayout
    offset: int | None


@dataclass(frozen=True)
class Contents:
    """What an episode's file holds besides the entries of its arrays.

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


def to_bytes(episode: Episode, number: int) -> bytes:
    """Returns the content of the file, without `Episode.info`, which may differ each time.

    Args:
        episode: The episode.
        number: k in the group's name.
    """
    image = io.BytesIO()
    with h5py.File(
        image,
        "w",
        libver=("v110", "v110"),  # otherwise the bytes would change with the HDF5 library
        alignment_threshold=1,
        alignment_interval=8,  # arrays are mapped into memory
    ) as file:
        group = file.create_group(f"episode_{number}")
        group.attrs["id"] = number
        group.attrs["seed"] = episode.scene.seed
        group.attrs["total_steps"] = len(episode)
        group.attrs["outcome"] = episode.outcome
        group.attrs["error"] = json.dumps(episode.error)
        group.attrs["scene"] = episode.scene.to_json()
        for field, name in NAMES_IN_FILE.items():
            _add(group, name, getattr(episode, field))
        for name, rows in episode.observations.items():
            _add(group, f"observations/{name}", rows)
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


def contents(path: Path, names: Iterable[str] | None = None) -> Contents:
    """Returns what a file holds besides the entries of its arrays.

    Args:
        path: Path of the file.
        names: Arrays to locate, by fields of `Episode` or "observations/<name>"; all if None.

    Raises:
        DatasetError: The file is missing, damaged, or not an episode, or has no such array.
    """
    with opened(path) as group:
        if names is None:
            observed = _names(group_in(group, "observations"))
            names = [*NAMES_IN_FILE, *(f"{OBSERVATIONS}{name}" for name in observed)]
        arrays = {name: array_in(group, NAMES_IN_FILE.get(name, name)) for name in names}
        texts = {name: text_of(group, name) for name in ("outcome", "error", "scene")}
        return Contents(
            group=str(group.name),
            attributes={"seed": integer_of(group, "seed"), **texts},
            final_digest=hexadecimal(array_in(group, NAMES_IN_FILE["digests"])[-1]),
            arrays={
                name: StoredArray(ArrayLayout(array.shape, array.dtype), array.id.get_offset())
                for name, array in arrays.items()
            },
        )


def read_rows(path: Path, name: str, rows: int | slice) -> np.ndarray:
    """Reads some rows of an array, named as for `contents`.

    Raises:
        DatasetError: The file is missing, damaged, or not an episode, or has no such array.
    """
    with opened(path) as group:
        return array_in(group, NAMES_IN_FILE.get(name, name))[rows]


def _names(group: h5py.Group) -> list[str]:
    return [str(name) for name in group]


def _error(group: h5py.Group) -> str | None:
    error = loads(text_of(group, "error"))
    if not isinstance(error, str | None):
        raise TypeError("its error is not text")
    return error


def _add(group: h5py.Group, name: str, rows: np.ndarray) -> None:
    storage = {"chunks": (1, *rows.shape[1:]), **_COMPRESSION} if is_image(name) else {}
    # Times of creation would be different bytes for the same content.
    group.create_dataset(name, data=rows, track_times=False, **storage)
