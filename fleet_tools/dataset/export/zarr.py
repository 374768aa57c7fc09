"""A copy in zarr, in the layout of diffusion policy's `ReplayBuffer`: episodes are concatenated.

    data/<name>             row t of each episode: an observation and the action that follows it
    data/action, reward, terminated, truncated, success
    meta/episode_ends       (n,) int64, row in `data` at which each episode ends
    meta/attempt, seed, success
    final/<name>            (n, ...) the observation after each episode's last action

Every array is compressed, in format 2, which zarr 2 and 3 read; each image is a chunk.
Attributes: `fleet_tools`, the header, and `episodes`, the metadata of each episode.
The layout is that of https://github.com/real-stanford/diffusion_policy, `replay_buffer.py`.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np

from fleet_tools.dataset.export.source import Source, episode_metadata
from fleet_tools.dataset.header import Header
from fleet_tools.perception.observation_config import is_image
from fleet_tools.rollouts.episode import Episode
from fleet_tools.utils.libraries import require

_CHUNK_BYTES = 1 << 20
_FORMAT = 2

_STEP_ARRAYS = {
    "action": "actions",
    "reward": "rewards",
    "terminated": "terminated",
    "truncated": "truncated",
    "success": "success",
}


def opens(output: Path, header: Header) -> str:
    """Returns the line of Python that opens the copy."""
    return f'zarr.open("{output}", mode="r")["data"], or ReplayBuffer.create_from_path("{output}")'


def write(source: Source, aside: Path, target: Path) -> list[str]:
    """Writes the copy, see `exporting.ExportFormat`; one episode is in memory at a time."""
    zarr = require("zarr", "write zarr")
    root = zarr.create_group(aside, zarr_format=_FORMAT)
    data, meta, final = (root.create_group(name) for name in ("data", "meta", "final"))
    steps, last = _GroupWriter(data, source.steps), _GroupWriter(final, len(source.records))
    metadata: list[dict[str, Any]] = []
    for record, episode in source.episodes():
        for name, rows in _rows(episode).items():
            steps.append(name, rows[: len(episode)])
            if len(rows) > len(episode):
                last.append(name, rows[-1:])
        metadata.append(episode_metadata(record, episode))
    steps.flush()
    last.flush()
    of_episodes = _GroupWriter(meta, len(source.records))
    of_episodes.append("episode_ends", np.cumsum([record.steps for record in source.records]))
    for name in ("attempt", "seed", "success"):
        of_episodes.append(name, np.array([getattr(record, name) for record in source.records]))
    of_episodes.flush()
    root.attrs.update(fleet_tools=source.header.model_dump(mode="json"), episodes=metadata)
    return []


def _rows(episode: Episode) -> dict[str, np.ndarray]:
    steps = {name: getattr(episode, field) for name, field in _STEP_ARRAYS.items()}
    return episode.observations | {"state_digest": episode.digests} | steps


class _ArrayWriter:
    """Fills an array from its beginning, in complete chunks.

    Args:
        array: Array of zarr.
    """

    def __init__(self, array: Any) -> None:
        self._array = array
        self._written = 0
        self._buffer: list[np.ndarray] = []

    def append(self, rows: np.ndarray) -> None:
        """Adds rows."""
        self._buffer.append(rows)
        chunk_rows = self._array.chunks[0]
        if sum(map(len, self._buffer)) >= chunk_rows:
            self._write(chunk_rows)

    def flush(self) -> None:
        """Writes the remaining rows, which do not fill a chunk."""
        self._write(1)

    def _write(self, multiple: int) -> None:
        rows = np.concatenate(self._buffer)
        count = len(rows) // multiple * multiple
        self._array[self._written : self._written + count] = rows[:count]
        self._written += count
        self._buffer = [rows[count:]]


class _GroupWriter:
    """Fills the arrays of a group.

    Args:
        group: Group of zarr.
        count: Final number of rows of each array.
    """

    def __init__(self, group: Any, count: int) -> None:
        self._group, self._count = group, count
        self._arrays: dict[str, _ArrayWriter] = {}

    def append(self, name: str, rows: np.ndarray) -> None:
        """Adds rows to an array, which is created with its first rows."""
        if name not in self._arrays:
            self._arrays[name] = _ArrayWriter(_create(self._group, name, self._count, rows))
        self._arrays[name].append(rows)

    def flush(self) -> None:
        """Completes all arrays."""
        for array in self._arrays.values():
            array.flush()


def _create(group: Any, name: str, count: int, like: np.ndarray) -> Any:
    import numcodecs  # a dependency of zarr

    row = max(1, like.dtype.itemsize * math.prod(like.shape[1:]))
    rows = 1 if is_image(name) else min(count, max(1, _CHUNK_BYTES // row))
    return group.create_array(
        name,
        shape=(count, *like.shape[1:]),
        chunks=(rows, *like.shape[1:]),
        dtype=like.dtype,
        compressors=numcodecs.Blosc("zstd", clevel=5, shuffle=numcodecs.Blosc.SHUFFLE),
        fill_value=0,
    )
