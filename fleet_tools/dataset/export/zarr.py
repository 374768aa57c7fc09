"""A copy in zarr, in the layout of diffusion policy's `ReplayBuffer`: episodes are concatenated.

    data/<name>             row t of each episode: an observation and the action that follows it
    data/action             the action to imitate
    data/executed_action, imitate, reward, terminated, truncated, success
    meta/episode_ends       (n,) int64, row in `data` at which each episode ends
    meta/dataset, attempt, first_step, seed, success
    final/<name>            the observation after each attempt's last action
    not_imitated/<name>     the steps not to imitate, with `dataset`, `attempt` and `step`

Learners imitate all actions of an episode of this layout, so it is an episode, or a run of steps to
imitate in it, see `ExportSource.episodes`. `final` has a row for each of the attribute `episodes`.
Every array is compressed, in format 2, which zarr 2 and 3 read; each image is a chunk.
Attributes: `fleet_tools`, folder and header of each dataset, and `episodes`, the metadata of each
episode.
The layout is described at https://github.com/real-stanford/diffusion_policy, `replay_buffer.py`.
"""

import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fleet_tools.dataset.dataset_folder import Dataset
from fleet_tools.dataset.export.source import ExportSource, truncated_at_end
from fleet_tools.rollouts.episode import Episode
from fleet_tools.utils.libraries import require

_CHUNK_BYTES = 1 << 20
_FORMAT = 2

_STEP_ARRAYS = {
    "executed_action": "actions",
    "reward": "rewards",
    "terminated": "terminated",
    "truncated": "truncated",
    "success": "success",
}


def opens(output: Path, datasets: Sequence[Dataset]) -> str:
    """Returns the line of Python that opens the copy."""
    path = repr(str(output))
    return f'zarr.open({path}, mode="r")["data"], or ReplayBuffer.create_from_path({path})'


def write(source: ExportSource, aside: Path, target: Path) -> list[str]:
    """Writes the copy, see `exporting.ExportFormat`; one episode is in memory at a time."""
    zarr = require("zarr", "write zarr")
    root = zarr.create_group(_store(aside), zarr_format=_FORMAT)
    in_pieces, images = sum(source.lengths), source.header.images
    steps = _GroupWriter(root, "data", in_pieces, images)
    last = _GroupWriter(root, "final", len(source.episodes), images)
    others = _GroupWriter(root, "not_imitated", source.steps - in_pieces, images)
    metadata: list[dict[str, Any]] = []
    for of_source, episode in source.read():
        outside = of_source.steps_outside
        for name, rows in _rows(episode).items():
            for first, end in of_source.pieces:
                steps.append(name, _of_piece(name, rows[: len(episode)], first, end))
            others.append(name, rows[outside])
            if len(rows) > len(episode):
                last.append(name, rows[-1:])
        others.append("dataset", np.full(len(outside), of_source.dataset))
        others.append("attempt", np.full(len(outside), of_source.record.attempt))
        others.append("step", outside)
        metadata.append(of_source.metadata(episode))
    of_pieces = _GroupWriter(root, "meta", len(source.lengths))
    of_pieces.append("episode_ends", np.cumsum(source.lengths))
    pieces = [(each, first) for each in source.episodes for first, _ in each.pieces]
    of_pieces.append("first_step", np.array([first for _, first in pieces]))
    of_pieces.append("dataset", np.array([each.dataset for each, _ in pieces]))
    for name in ("attempt", "seed", "success"):
        of_pieces.append(name, np.array([getattr(each.record, name) for each, _ in pieces]))
    for writer in (steps, last, others, of_pieces):
        writer.flush()
    root.attrs.update(fleet_tools=source.headers, episodes=metadata)
    return []


def _store(folder: Path) -> Any:
    """Returns a store that writes one file after the other, and none after an error.

    zarr's own goes on writing in threads after the first error, while the folder is removed.
    """
    from zarr.storage import LocalStore

    class OrderlyStore(LocalStore):
        _failed = False

        async def set(self, key: str, value: Any) -> None:
            if self._failed:
                raise OSError("Writing stopped because an earlier file could not be written.")
            path = self.root / key
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(value.to_bytes())
            except OSError:
                self._failed = True
                raise

        async def set_if_not_exists(self, key: str, value: Any) -> None:
            if not (self.root / key).exists():
                await self.set(key, value)

    return OrderlyStore(folder)


def _of_piece(name: str, rows: np.ndarray, first: int, end: int) -> np.ndarray:
    """Returns the rows of a piece of an episode, which is truncated if the episode goes on."""
    if name == "truncated" and end < len(rows):
        return truncated_at_end(end - first)
    return rows[first:end]


def _rows(episode: Episode) -> dict[str, np.ndarray]:
    steps = {name: getattr(episode, field) for name, field in _STEP_ARRAYS.items()}
    states = episode.observations | {"state_digest": episode.digests}
    labels = episode.labels
    imitated = {
        "action": labels.actions(episode.actions),
        "imitate": labels.imitate(len(episode)),
    }
    return states | steps | imitated


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
    """Fills the arrays of a group, which is made with its first row.

    Args:
        root: Group of zarr, of which this will be one.
        name: Name of the group.
        count: Final number of rows of each array.
        images: Names of arrays of which each row is a chunk.
    """

    def __init__(self, root: Any, name: str, count: int, images: Collection[str] = ()) -> None:
        self._root, self._name, self._count, self._images = root, name, count, images
        self._arrays: dict[str, _ArrayWriter] = {}

    def append(self, name: str, rows: np.ndarray) -> None:
        """Adds rows to an array, which is created with its first rows."""
        if not len(rows):
            return
        if name not in self._arrays:
            group = self._root.require_group(self._name)
            self._arrays[name] = _ArrayWriter(self._create(group, name, rows))
        self._arrays[name].append(rows)

    def flush(self) -> None:
        """Completes all arrays."""
        for array in self._arrays.values():
            array.flush()

    def _create(self, group: Any, name: str, like: np.ndarray) -> Any:
        import numcodecs  # a dependency of zarr

        row = max(1, like.dtype.itemsize * math.prod(like.shape[1:]))
        rows = 1 if name in self._images else min(self._count, max(1, _CHUNK_BYTES // row))
        return group.create_array(
            name,
            shape=(self._count, *like.shape[1:]),
            chunks=(rows, *like.shape[1:]),
            dtype=like.dtype,
            compressors=numcodecs.Blosc("zstd", clevel=5, shuffle=numcodecs.Blosc.SHUFFLE),
            fill_value=0,
        )
