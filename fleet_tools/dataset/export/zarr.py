"""A copy in zarr, in the layout of diffusion policy's `ReplayBuffer`: all episodes end to end.

    data/<name>             row t of each episode: an observation and the action that follows it
    data/action, reward, terminated, truncated, success
    meta/episode_ends       (n,) int64, where each episode ends in `data`
    meta/attempt, seed, success
    final/<name>            (n, ...) the observation after each episode's last action

Every array is compressed, in format 2, which zarr 2 and 3 read; pictures are chunks of their own.
Attributes: `fleet_tools`, the header, and `episodes`, what each is.
The layout is that of https://github.com/real-stanford/diffusion_policy, `replay_buffer.py`.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np

from fleet_tools.dataset.export.source import Source, provenance
from fleet_tools.dataset.header import Header
from fleet_tools.perception.observation_config import is_picture
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
    """Returns how to open it."""
    return f'zarr.open("{output}", mode="r")["data"], or ReplayBuffer.create_from_path("{output}")'


def write(source: Source, aside: Path, target: Path) -> list[str]:
    """Writes the copy; see `exporting.Format`. One episode is in memory at a time."""
    zarr = require("zarr", "write zarr")
    root = zarr.create_group(aside, zarr_format=_FORMAT)
    data, meta, final = (root.create_group(name) for name in ("data", "meta", "final"))
    steps, last = _Arrays(data, source.steps), _Arrays(final, len(source.records))
    told: list[dict[str, Any]] = []
    for record, episode in source.episodes():
        for name, rows in _rows(episode).items():
            steps.append(name, rows[: len(episode)])
            if len(rows) > len(episode):
                last.append(name, rows[-1:])
        told.append(provenance(record, episode))
    steps.flush()
    last.flush()
    about = _Arrays(meta, len(source.records))
    about.append("episode_ends", np.cumsum([record.steps for record in source.records]))
    for name in ("attempt", "seed", "success"):
        about.append(name, np.array([getattr(record, name) for record in source.records]))
    about.flush()
    root.attrs.update(fleet_tools=source.header.model_dump(mode="json"), episodes=told)
    return []


def _rows(episode: Episode) -> dict[str, np.ndarray]:
    steps = {name: getattr(episode, field) for name, field in _STEP_ARRAYS.items()}
    return episode.observations | {"state_digest": episode.digests} | steps


class _Arrays:
    """The arrays of a group, filled from their beginnings, in whole chunks.

    Args:
        group: Of zarr.
        count: How many rows each will have.
    """

    def __init__(self, group: Any, count: int) -> None:
        self._group, self._count = group, count
        self._arrays: dict[str, Any] = {}
        self._written: dict[str, int] = {}
        self._gathered: dict[str, list[np.ndarray]] = {}
        self._gathered_rows: dict[str, int] = {}

    def append(self, name: str, rows: np.ndarray) -> None:
        """Adds rows to an array, which is made when it gets its first ones."""
        if name not in self._arrays:
            self._arrays[name] = _create(self._group, name, self._count, rows)
            self._written[name], self._gathered[name], self._gathered_rows[name] = 0, [], 0
        self._gathered[name].append(rows)
        self._gathered_rows[name] += len(rows)
        if self._gathered_rows[name] >= self._arrays[name].chunks[0]:
            self._write(name, self._arrays[name].chunks[0])

    def flush(self) -> None:
        """Writes what does not fill a chunk."""
        for name in self._arrays:
            self._write(name, 1)

    def _write(self, name: str, multiple: int) -> None:
        rows = np.concatenate(self._gathered[name])
        count = len(rows) // multiple * multiple
        begin = self._written[name]
        self._arrays[name][begin : begin + count] = rows[:count]
        self._written[name] = begin + count
        self._gathered[name], self._gathered_rows[name] = [rows[count:]], len(rows) - count


def _create(group: Any, name: str, count: int, like: np.ndarray) -> Any:
    import numcodecs  # which zarr itself needs

    row = max(1, like.dtype.itemsize * math.prod(like.shape[1:]))
    rows = 1 if is_picture(name) else min(count, max(1, _CHUNK_BYTES // row))
    return group.create_array(
        name,
        shape=(count, *like.shape[1:]),
        chunks=(rows, *like.shape[1:]),
        dtype=like.dtype,
        compressors=numcodecs.Blosc("zstd", clevel=5, shuffle=numcodecs.Blosc.SHUFFLE),
        fill_value=0,
    )
