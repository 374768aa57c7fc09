"""A copy in LeRobot's format 3.0; images are PNGs within Parquet files, and therefore lossless.

    meta/info.json, stats.json, tasks.parquet
    meta/fleet_tools.json                       header of the first dataset, for `serve --header`
    meta/fleet_tools_datasets.json              folder and header of each dataset
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
episode, or a run of steps to imitate in it, see `ExportSource.episodes`. `not_imitated` has
`dataset`, `attempt` and `step` instead of what counts rows.
Statistics are exact, over all steps and all pixels; there are none of depth, labels and points.
The layout is LeRobot's (https://github.com/huggingface/lerobot); docs/data/export.md names the
tested versions.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fleet_tools.dataset.dataset_folder import Dataset
from fleet_tools.dataset.export.lerobot_columns import (
    ParquetFiles,
    Stats,
    color_counts,
    column,
    image_column,
    image_stats,
    vector_stats,
    write_indexed,
)
from fleet_tools.dataset.export.source import ExportSource, truncated_at_end
from fleet_tools.dataset.header import ArraySpec, Header
from fleet_tools.envs.array_spec import Layout
from fleet_tools.errors import DatasetError
from fleet_tools.policies.lerobot_features import ACTION, STATE, FeatureNames
from fleet_tools.rollouts.episode import Episode
from fleet_tools.utils.libraries import require

_VERSION = "v3.0"
_FILE_MB, _CHUNK_FILES = 100, 1000
_FILE_NAME = "chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"

_EXECUTED, _IMITATE = "executed_action", "imitate"

_UNMEASURED = ("depth", "points", "segmentation")
"""Kinds of entries without statistics: infinity, absent points and labels have no mean."""

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


def opens(output: Path, datasets: Sequence[Dataset]) -> str:
    """Returns the line of Python that opens the copy."""
    tasks = "-".join(dict.fromkeys(dataset.header.task.name for dataset in datasets))
    return f'LeRobotDataset("fleet_tools/{tasks}", root={str(output)!r})'


def write(source: ExportSource, aside: Path, target: Path) -> list[str]:
    """Writes the copy, see `exporting.ExportFormat`.

    One episode is in memory at a time, and for the statistics all numbers that are no images.
    """
    import pyarrow as pa

    columns, rate_hz = columns_of(source.header), source.header.control_rate_hz
    if columns.names.color_images:
        require("PIL", "write images as PNG")
    (aside / "meta").mkdir(parents=True)
    descriptions = [dataset.header.task_description() for dataset in source.datasets]
    tasks = list(dict.fromkeys(descriptions))
    number, begin, total = 0, 0, _Measured({}, {})
    with (
        _files(aside / "data") as data,
        _files(aside / "meta" / "episodes") as episodes,
        _files(aside / "not_imitated") as others,
    ):

        def table(rows: dict[str, np.ndarray]) -> Any:
            return pa.table({name: columns.arrow(name, rows[name]) for name in rows})

        for of_source, episode in source.read():
            of_steps = columns.rows(episode)
            description = descriptions[of_source.dataset]
            for first, end in of_source.pieces:
                counters = _counters(end - first, number, begin, rate_hz)
                task = np.full(end - first, tasks.index(description))
                rows = _piece(of_steps, first, end) | counters | {"task_index": task}
                of_piece = columns.measured(rows)
                total.add(of_piece)
                row = {
                    "episode_index": number,
                    "tasks": [description],
                    "length": end - first,
                    "dataset_from_index": begin,
                    "dataset_to_index": begin + end - first,
                    **_location("data", data),
                    **_location("meta/episodes", episodes),
                    **_flat_stats(of_piece.stats()),
                    **of_source.metadata(episode),
                    "first_step": first,
                }
                data.write(table(rows))
                episodes.write(_row_table(row))
                number, begin = number + 1, begin + end - first
            outside = of_source.steps_outside
            if len(outside):
                rows = {name: rows[outside] for name, rows in of_steps.items()}
                where = {"dataset": of_source.dataset, "attempt": of_source.record.attempt}
                where = {name: np.full(len(outside), value) for name, value in where.items()}
                others.write(table(rows | where | {"step": outside}))
    _write_json(aside / "meta" / "stats.json", _plain(total.stats()))
    _write_json(aside / "meta" / "info.json", _info(source, columns, len(tasks)))
    _write_json(aside / "meta" / "fleet_tools.json", source.header.model_dump(mode="json"))
    _write_json(aside / "meta" / "fleet_tools_datasets.json", source.headers)
    write_indexed(aside / "meta/tasks.parquet", tasks, "task_index", list(range(len(tasks))))
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

    def measured(self, rows: dict[str, np.ndarray]) -> "_Measured":
        """Returns the sums from which statistics of these and more rows are computed."""
        images = self.names.color_images.values()
        kinds = {feature: self.layout[name].kind for name, feature in self.names.others.items()}
        vectors = {
            name: [column]
            for name, column in rows.items()
            if name not in images and kinds.get(name) not in _UNMEASURED
        }
        return _Measured(vectors, {name: color_counts(rows[name]) for name in images})

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


@dataclass(frozen=True)
class _Measured:
    """What statistics are made of.

    Attributes:
        vectors: Rows by the column's name, in parts.
        colors: How often each image's channels have each value, see `color_counts`.
    """

    vectors: dict[str, list[np.ndarray]]
    colors: dict[str, np.ndarray]

    def add(self, other: "_Measured") -> None:
        """Adds more rows."""
        for name, parts in other.vectors.items():
            self.vectors.setdefault(name, []).extend(parts)
        for name, counts in other.colors.items():
            self.colors[name] = self.colors.get(name, 0) + counts

    def stats(self) -> dict[str, Stats]:
        """Returns the statistics of all rows together; of actions, of those to imitate.

        Raises:
            DatasetError: They are not finite.
        """
        vectors = {name: np.concatenate(parts) for name, parts in self.vectors.items()}
        imitate = vectors[_IMITATE]  # left whole, an episode may have no step to imitate
        vectors[ACTION] = vectors[ACTION][imitate if imitate.any() else slice(None)]
        stats = {name: vector_stats(rows) for name, rows in vectors.items()}
        for name, each in stats.items():
            if not np.isfinite([each["mean"], each["std"]]).all():
                raise DatasetError(
                    f"{name} has no finite mean and standard deviation. Export without --no-check "
                    "to see which episode is damaged."
                )
        colors = {name: image_stats(each, len(imitate)) for name, each in self.colors.items()}
        return stats | colors


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
    """Returns the columns that count, but for the task.

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
    }


def _info(source: ExportSource, columns: Columns, tasks: int) -> dict[str, Any]:
    header, episodes = source.header, len(source.lengths)
    rate_hz = header.control_rate_hz
    return {
        "codebase_version": _VERSION,
        "robot_type": header.robot,
        "total_episodes": episodes,
        "total_frames": sum(source.lengths),
        "total_tasks": tasks,
        "chunks_size": _CHUNK_FILES,
        "data_files_size_in_mb": _FILE_MB,
        "video_files_size_in_mb": _FILE_MB,
        # LeRobot declares a whole number and computes with any; rounded, times would be wrong.
        "fps": int(rate_hz) if rate_hz.is_integer() else rate_hz,
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
    return {"dtype": dtype, "shape": list(shape or (1,)), "names": names}


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
