"""One episode as one HDF5 file, in the layout of Minari's episode groups.

    episode_<k>                 attributes: id, seed, total_steps, outcome, error, scene
        observations/<name>     (T + 1, ...)
        actions                 (T, 6) float32
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
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np

from fleet_tools.config.values import parse
from fleet_tools.errors import DatasetError
from fleet_tools.perception.observation_config import is_image
from fleet_tools.rollouts.episode import Episode
from fleet_tools.sim.scene import Scene
from fleet_tools.storage.strict_json import loads

_LAYOUT = {
    "actions": "actions",
    "rewards": "rewards",
    "terminated": "terminations",
    "truncated": "truncations",
    "success": "infos/success",
    "digests": "infos/state_digest",
}

_COMPRESSION = {"compression": "gzip", "compression_opts": 1, "shuffle": True}  # any HDF5 reads it


class ArrayLocation(NamedTuple):
    """The location of an array in a file.

    Attributes:
        shape: Shape of the array.
        dtype: Type of its entries.
        offset: Bytes before it; None if it is compressed, or empty.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    offset: int | None


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
        for field, name in _LAYOUT.items():
            _add(group, name, getattr(episode, field))
        for name, rows in episode.observations.items():
            _add(group, f"observations/{name}", rows)
    return image.getvalue()


def read(path: Path) -> Episode:
    """Reads an episode, without its `info`.

    Raises:
        DatasetError: The file is missing, truncated or not an episode.
    """
    with _opened(path) as group:
        attributes: dict[str, Any] = dict(group.attrs)
        arrays = {field: _array(group, name)[()] for field, name in _LAYOUT.items()}
        observations = group.require_group("observations")
        return Episode(
            scene=parse(Scene, loads(attributes["scene"]), "its scene"),
            observations={name: _array(observations, name)[()] for name in _names(observations)},
            actions=arrays["actions"],
            rewards=arrays["rewards"],
            terminated=arrays["terminated"],
            truncated=arrays["truncated"],
            success=arrays["success"],
            digests=arrays["digests"],
            outcome=attributes["outcome"],
            error=loads(attributes["error"]),
        )


def locate(path: Path, names: Iterable[str]) -> dict[str, ArrayLocation]:
    """Locates arrays in a file.

    Args:
        path: Path of the file.
        names: Names of fields of `Episode`, or "observations/<name>".

    Raises:
        DatasetError: The file is missing, truncated or not an episode, or has no such array.
    """
    with _opened(path) as group:
        arrays = {name: _array(group, _LAYOUT.get(name, name)) for name in names}
        return {
            name: ArrayLocation(array.shape, array.dtype, array.id.get_offset())
            for name, array in arrays.items()
        }


def read_rows(path: Path, name: str, rows: int | slice) -> np.ndarray:
    """Reads some rows of an array, named as for `locate`.

    Raises:
        DatasetError: The file is missing, truncated or not an episode, or has no such array.
    """
    with _opened(path) as group:
        return _array(group, _LAYOUT.get(name, name))[rows]


def _names(group: h5py.Group) -> list[str]:
    return [str(name) for name in group]


def _array(group: h5py.Group, name: str) -> h5py.Dataset:
    found = group[name]
    if not isinstance(found, h5py.Dataset):
        raise TypeError(f"{name} is not an array")
    return found


@contextmanager
def _opened(path: Path) -> Iterator[h5py.Group]:
    if not path.is_file():
        raise DatasetError(f"{path} is missing.")
    try:
        with h5py.File(path, "r") as file:
            (group,) = file.values()
            yield group
    except (OSError, LookupError, TypeError, ValueError, RuntimeError) as error:
        raise DatasetError(f"{path} is damaged or not an episode: {error}") from error


def _add(group: h5py.Group, name: str, rows: np.ndarray) -> None:
    storage = {"chunks": (1, *rows.shape[1:]), **_COMPRESSION} if is_image(name) else {}
    # Times of creation would be different bytes for the same content.
    group.create_dataset(name, data=rows, track_times=False, **storage)
