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
from fleet_tools.episode import Episode
from fleet_tools.libraries import require
from fleet_tools.vision import is_picture

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
    ends = np.cumsum([record.steps for record in source.records])
    told: list[dict[str, Any]] = []
    begin = 0
    for number, (record, episode) in enumerate(source.episodes()):
        end = begin + len(episode)
        for name, rows in _rows(episode).items():
            if number == 0:
                _create(data, name, source.steps, rows)
            data[name][begin:end] = rows[: len(episode)]
            if len(rows) > len(episode):
                if number == 0:
                    _create(final, name, len(ends), rows)
                final[name][number] = rows[-1]
        told.append(provenance(record, episode))
        begin = end
    for name, values in {
        "episode_ends": ends,
        "attempt": np.array([record.attempt for record in source.records]),
        "seed": np.array([record.seed for record in source.records]),
        "success": np.array([record.success for record in source.records]),
    }.items():
        _create(meta, name, len(values), values)
        meta[name][:] = values
    root.attrs.update(fleet_tools=source.header.model_dump(mode="json"), episodes=told)
    return []


def _rows(episode: Episode) -> dict[str, np.ndarray]:
    steps = {name: getattr(episode, field) for name, field in _STEP_ARRAYS.items()}
    return episode.observations | {"state_digest": episode.digests} | steps


def _create(group: Any, name: str, count: int, like: np.ndarray) -> None:
    import numcodecs  # which zarr itself needs

    row = max(1, like.dtype.itemsize * math.prod(like.shape[1:]))
    rows = 1 if is_picture(name) else min(count, max(1, _CHUNK_BYTES // row))
    group.create_array(
        name,
        shape=(count, *like.shape[1:]),
        chunks=(rows, *like.shape[1:]),
        dtype=like.dtype,
        compressors=numcodecs.Blosc("zstd", clevel=5, shuffle=numcodecs.Blosc.SHUFFLE),
        fill_value=0,
    )
