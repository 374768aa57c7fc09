"""A copy in LeRobot's format 3.0; images are PNGs within Parquet files, and therefore lossless.

    meta/info.json, stats.json, tasks.parquet, fleet_tools.json (the dataset's header)
    meta/episodes/chunk-000/file-000.parquet    a row for each episode
    data/chunk-000/file-000.parquet             a row for each step to imitate
    not_imitated/chunk-000/file-000.parquet     the other steps, which LeRobot does not read

A row of `data` holds an observation, the action to imitate, and the result of the step:

    observation.state                           robot state and keypoints, concatenated
    observation.images.<camera>                 color images
    observation.<name>                          all other entries: depth, points, poses
    action                                      the action to imitate
    executed_action, imitate
    next.reward, next.done, next.terminated, next.truncated, next.success
    timestamp, frame_index, episode_index, index, task_index

LeRobot's learners imitate all actions of an episode, and chunks of them, so an episode here is an
episode, or a run of steps to imitate in it, see `ExportSource.pieces`. `not_imitated` has
`attempt` and `step` instead of what counts rows.
There are statistics of state, action and color images. The layout is LeRobot 0.4's
(https://github.com/huggingface/lerobot).
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fleet_tools.dataset.export.lerobot_columns import (
    ParquetFiles,
    Stats,
    column,
    combined,
    image_column,
    image_stats,
    vector_stats,
    write_indexed,
)
from fleet_tools.dataset.export.source import ExportSource, episode_metadata, truncated_at_end
from fleet_tools.dataset.header import ArraySpec, Header
from fleet_tools.envs.array_spec import Layout
from fleet_tools.envs.lerobot_features import ACTION, STATE, FeatureNames
from fleet_tools.rollouts.episode import Episode
from fleet_tools.utils.libraries import require

_VERSION = "v3.0"
_FILE_MB, _CHUNK_FILES = 100, 1000
_FILE_NAME = "chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"

_EXECUTED, _IMITATE = "executed_action", "imitate"

_SCALARS = {
    _IMITATE: "bool",
    "next.reward": "float64",
    "next.done": "bool",
    "next.terminated": "bool",
    "next.truncated": "bool",
    "next.success": "bool",
    "timestamp": "float32",
    "frame_index": "int64",
    "episode_index": "int64",
    "index": "int64",
    "task_index": "int64",
}


def opens(output: Path, header: Header) -> str:
    """Returns the line of Python that opens the copy."""
    return f'LeRobotDataset("fleet_tools/{header.task.name}", root={str(output)!r})'


def write(source: ExportSource, aside: Path, target: Path) -> list[str]:
    """Writes the copy, see `exporting.ExportFormat`; one episode is in memory at a time."""
    pa = require("pyarrow", "write LeRobot's format")
    columns, description = columns_of(source.header), source.header.task_description()
    if columns.names.color_images:
        require("PIL", "write images as PNG")
    (aside / "meta").mkdir(parents=True)
    stats: list[dict[str, Stats]] = []
    begin = 0
    with (
        _files(aside / "data") as data,
        _files(aside / "meta" / "episodes") as episodes,
        _files(aside / "not_imitated") as others,
    ):

        def table(rows: dict[str, np.ndarray]) -> Any:
            return pa.table({name: columns.arrow(name, rows[name]) for name in rows})

        for record, episode in source.episodes():
            of_steps = columns.rows(episode)
            for first, end in source.pieces(record):
                number, rate_hz = len(stats), source.header.control_rate_hz
                rows = _piece(of_steps, first, end) | _counters(end - first, number, begin, rate_hz)
                stats.append(columns.stats(rows))
                row = {
                    "episode_index": number,
                    "tasks": [description],
                    "length": end - first,
                    "dataset_from_index": begin,
                    "dataset_to_index": begin + end - first,
                    **_location("data", data),
                    **_location("meta/episodes", episodes),
                    **_flat_stats(stats[-1]),
                    **episode_metadata(record, episode),
                    "first_step": first,
                }
                data.write(table(rows))
                episodes.write(_row_table(row))
                begin += end - first
            outside = source.steps_outside(record)
            if len(outside):
                rows = {name: rows[outside] for name, rows in of_steps.items()}
                numbers = {"attempt": np.full(len(outside), record.attempt), "step": outside}
                others.write(table(rows | numbers))
    total = {name: combined([each[name] for each in stats]) for name in stats[0]}
    _write_json(aside / "meta" / "stats.json", _plain(total))
    _write_json(aside / "meta" / "info.json", _info(source, columns))
    _write_json(aside / "meta" / "fleet_tools.json", source.header.model_dump(mode="json"))
    write_indexed(aside / "meta/tasks.parquet", [description], "task_index", [0])
    return [
        "the observation after each episode's last action, since a row has an action",
        "hashes of the states (`Episode.digests`)",
    ]


@dataclass(frozen=True)
class Columns:
    """The columns of a dataset's steps.

    Attributes:
        layout: Entries of an observation.
        names: Their features.
    """

    layout: Layout
    names: FeatureNames

    def rows(self, episode: Episode) -> dict[str, np.ndarray]:
        """Returns the columns of an episode but those that count, T rows each."""
        steps = len(episode)
        return {
            **self.names.features(
                {name: rows[:steps] for name, rows in episode.observations.items()}
            ),
            ACTION: episode.labels.actions(episode.actions),
            _EXECUTED: episode.actions,
            _IMITATE: episode.labels.imitate(steps),
            "next.reward": episode.rewards,
            "next.done": np.arange(1, steps + 1) == steps,
            "next.terminated": episode.terminated,
            "next.truncated": episode.truncated,
            "next.success": episode.success,
        }

    def stats(self, rows: dict[str, np.ndarray]) -> dict[str, Stats]:
        """Returns the statistics of an episode's state, actions to imitate, and color images."""
        vectors = {name: vector_stats(rows[name]) for name in (STATE,) if name in rows}
        imitate = rows[_IMITATE]  # left whole, an episode may have no step to imitate
        vectors[ACTION] = vector_stats(rows[ACTION][imitate if imitate.any() else slice(None)])
        return vectors | {name: image_stats(rows[name]) for name in rows if self._is_image(name)}

    def arrow(self, name: str, rows: np.ndarray) -> Any:
        """Returns a column as an Arrow array."""
        return image_column(rows) if self._is_image(name) else column(rows)

    def features(self, action: ArraySpec) -> dict[str, Any]:
        """Returns the description of the columns in `info.json`."""
        layout = self.layout
        entries = [entry for name in self.names.state for entry in _entries(name, layout[name])]
        state = {STATE: _feature("float32", (len(entries),), entries)} if entries else {}
        axes = ["height", "width", "channels"]
        images = {
            feature: _feature("image", layout[name].shape, axes)
            for name, feature in self.names.color_images.items()
        }
        others = {
            feature: _feature(layout[name].dtype, layout[name].shape, None)
            for name, feature in self.names.others.items()
        }
        return (
            state
            | images
            | others
            | {
                name: _feature(action.dtype, action.shape, list(action.entries))
                for name in (ACTION, _EXECUTED)
            }
            | {name: _feature(dtype, (1,), None) for name, dtype in _SCALARS.items()}
        )

    def _is_image(self, name: str) -> bool:
        return name in self.names.color_images.values()


def columns_of(header: Header) -> Columns:
    """Returns the columns of a dataset's steps."""
    return Columns(header.observation, FeatureNames.of(header.observation))


def _piece(rows: dict[str, np.ndarray], first: int, end: int) -> dict[str, np.ndarray]:
    """Returns the columns of a piece of an episode, which is truncated if the episode goes on."""
    piece = {name: column[first:end] for name, column in rows.items()}
    if end < len(rows[_IMITATE]):
        last = truncated_at_end(end - first)
        piece |= {"next.done": last, "next.truncated": last}
    return piece


def _counters(steps: int, number: int, begin: int, rate_hz: float) -> dict[str, np.ndarray]:
    """Returns the columns that count.

    Args:
        steps: Number of steps of the piece.
        number: Its number in the export.
        begin: Number of steps before it.
        rate_hz: Control rate.
    """
    k = np.arange(steps)
    return {
        "timestamp": (k / rate_hz).astype(np.float32),
        "frame_index": k,
        "episode_index": np.full(steps, number),
        "index": begin + k,
        "task_index": np.zeros(steps, np.int64),
    }


def _info(source: ExportSource, columns: Columns) -> dict[str, Any]:
    header, episodes = source.header, source.piece_count
    return {
        "codebase_version": _VERSION,
        "robot_type": header.robot,
        "total_episodes": episodes,
        "total_frames": source.steps_in_pieces,
        "total_tasks": 1,
        "chunks_size": _CHUNK_FILES,
        "data_files_size_in_mb": _FILE_MB,
        "video_files_size_in_mb": _FILE_MB,
        "fps": round(header.control_rate_hz),
        "splits": {"train": f"0:{episodes}"},
        "data_path": f"data/{_FILE_NAME}",
        "video_path": None,
        "features": columns.features(header.action),
    }


def _entries(name: str, array: ArraySpec) -> list[str]:
    """Returns the names of an array's numbers, in their order."""

    def label(index: tuple[int, ...]) -> str:
        first = array.entries[index[0]] if array.entries else index[0]
        return ".".join(map(str, (name, first, *index[1:])))

    return [label(index) for index in np.ndindex(*array.shape)]


def _feature(dtype: str, shape: tuple[int, ...], names: list[str] | None) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "names": names}


def _files(folder: Path) -> ParquetFiles:
    return ParquetFiles(folder, _FILE_NAME, _FILE_MB, _CHUNK_FILES)


def _location(name: str, files: ParquetFiles) -> dict[str, int]:
    chunk, file = files.next_location()
    return {f"{name}/chunk_index": chunk, f"{name}/file_index": file}


def _flat_stats(stats: dict[str, Stats]) -> dict[str, Any]:
    return {
        f"stats/{name}/{kind}": values
        for name, kinds in _plain(stats).items()
        for kind, values in kinds.items()
    }


def _row_table(row: dict[str, Any]) -> Any:
    import pyarrow as pa

    error = {"error": pa.array([row["error"]], pa.string())}  # None has no type
    return pa.table({name: pa.array([value]) for name, value in row.items()} | error)


def _plain(stats: dict[str, Stats]) -> dict[str, dict[str, list[Any]]]:
    return {
        name: {kind: values.tolist() for kind, values in kinds.items()}
        for name, kinds in stats.items()
    }


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")
