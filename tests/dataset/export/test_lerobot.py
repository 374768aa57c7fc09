"""LeRobot's layout and its own reader give the episodes; statistics agree with the data."""

import io
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.exported import each_mode, same, successes
from support.processes import python_of, run_foreign
from support.small_datasets import OBSERVATION, Drawn, a_header, write

from fleet_tools.dataset import Dataset, DatasetWriter
from fleet_tools.dataset.export.exporting import export_dataset
from fleet_tools.dataset.export.lerobot_columns import color_counts, image_stats, vector_stats


def read_lerobot(root: Path) -> tuple[dict[str, Any], list[dict[str, Any]], dict[int, Any]]:
    """Returns `info.json`, the rows of episodes, and each episode's table, as in the format."""
    info = json.loads((root / "meta/info.json").read_text())
    episodes = pq.read_table(root / "meta/episodes").to_pylist()
    tables = {}
    for row in episodes:
        location = {part: row[f"data/{part}"] for part in ("chunk_index", "file_index")}
        table = pq.read_table(root / info["data_path"].format(**location))
        first = table["index"][0].as_py()
        tables[row["episode_index"]] = table.slice(row["dataset_from_index"] - first, row["length"])
    return info, episodes, tables


def as_array(column: Any, feature: Mapping[str, Any]) -> np.ndarray:
    """Returns a column of a table with the dtype and shape that `info.json` declares."""
    from PIL import Image

    if feature["dtype"] == "image":
        return np.stack([np.array(Image.open(io.BytesIO(c["bytes"]))) for c in column.to_pylist()])
    shape = [] if feature["shape"] == [1] else feature["shape"]
    values = column.combine_chunks()
    for _ in shape:
        values = values.flatten()
    numbers = values.to_numpy(zero_copy_only=False)
    assert numbers.dtype == feature["dtype"]
    return numbers.reshape(len(column), *shape)


def split_state(rows: np.ndarray, dataset: Dataset) -> dict[str, np.ndarray]:
    """Splits `observation.state` into its entries."""
    parts, begin = {}, 0
    for name, array in dataset.header.observation.items():
        if not name.startswith(("point_cloud", "overhead", "wrist")):
            end = begin + int(np.prod(array.shape))
            parts[name] = rows[:, begin:end].reshape(len(rows), *array.shape)
            begin = end
    assert begin == rows.shape[1]
    return parts


def observations_of(columns: Mapping[str, np.ndarray], dataset: Dataset) -> dict[str, np.ndarray]:
    """Returns the observations of an episode, by their names in the dataset."""
    observations = split_state(columns["observation.state"], dataset)
    for name, rows in columns.items():
        if name.startswith("observation.images."):
            observations[name.removeprefix("observation.images.") + "_rgb"] = rows
        elif name.startswith("observation.") and name != "observation.state":
            observations[name.removeprefix("observation.")] = rows
    return observations


@each_mode
def test_lerobot_holds_every_step(mode, collected, tmp_path):
    dataset = collected(mode)
    export_dataset(dataset, "lerobot", tmp_path / "out")
    info, rows_of_episodes, tables = read_lerobot(tmp_path / "out")
    assert (info["codebase_version"], info["fps"]) == ("v3.0", 6)
    assert info["total_episodes"] == 2
    assert info["total_frames"] == rows_of_episodes[-1]["dataset_to_index"]
    assert [row["attempt"] for row in rows_of_episodes] == [0, 4]
    state = info["features"]["observation.state"]
    stats = json.loads((tmp_path / "out/meta/stats.json").read_text())
    assert state["shape"] == [len(state["names"])] == [len(stats["observation.state"]["mean"])]
    assert mode != "state" or "tool_keypoints.head.2" in state["names"]
    count = 0
    for number, episode in enumerate(successes(dataset)):
        table, steps = tables[number], len(episode)
        assert set(table.column_names) == set(info["features"])
        columns = {name: as_array(table[name], info["features"][name]) for name in info["features"]}
        observations = observations_of(columns, dataset)
        assert observations.keys() == episode.observations.keys()
        for name, rows in episode.observations.items():
            assert same(observations[name], rows[:-1]), name
        assert same(columns["action"], episode.actions)
        assert same(columns["next.reward"], episode.rewards)
        assert same(columns["next.success"], episode.success)
        assert columns["next.done"].tolist() == [False] * (steps - 1) + [True]
        assert columns["index"].tolist() == list(range(count, count + steps))
        np.testing.assert_allclose(columns["timestamp"], np.arange(steps) / 6, rtol=1e-6)
        count += steps


@each_mode
@pytest.mark.parametrize("rate_hz", [6.0, 7.5])
def test_lerobot_reads_it(mode, rate_hz, collected, tmp_path):
    python_of("lerobot")
    dataset = at_rate(collected(mode), rate_hz, tmp_path / "set")
    export_dataset(dataset, "lerobot", tmp_path / "out")
    run_foreign(
        "lerobot", "lerobot_reader.py", tmp_path / "out", tmp_path / "read.npz", folder=tmp_path
    )
    with np.load(tmp_path / "read.npz") as content:
        read = dict(content)
    # The reader makes images of colors in [0, 1], (3, height, width).
    for name in (name for name in read if name.startswith("observation.images.")):
        read[name] = (read[name] * 255).round().transpose(0, 2, 3, 1)
    episodes = successes(dataset)
    observations = observations_of(read, dataset)
    for name in episodes[0].observations:
        expected = np.concatenate([episode.observations[name][:-1] for episode in episodes])
        np.testing.assert_array_equal(observations[name], expected)
    actions = np.concatenate([episode.actions for episode in episodes])
    assert same(read["action"], actions)
    assert set(read["task"]) == {dataset.header.task_description()}
    times = np.concatenate([np.arange(len(episode)) for episode in episodes]) / rate_hz
    np.testing.assert_allclose(read["timestamp"], times, atol=1e-5)
    for ahead in range(3):  # chunks end with their episode
        within = ~read["chunk_is_pad"][:, ahead]
        assert within.sum() == sum(len(episode) - ahead for episode in episodes)
        rows = np.flatnonzero(within)
        assert same(read["chunk"][rows, ahead], actions[rows + ahead])
    for name, stats in json.loads((tmp_path / "out/meta/stats.json").read_text()).items():
        largest = np.maximum(np.abs(stats["max"]), np.abs(stats["min"]))
        for kind in ("min", "max", "mean", "std"):  # which LeRobot computes in float32
            theirs = read[f"stats/{name}/{kind}"].reshape(np.shape(stats[kind]))
            assert (np.abs(theirs - stats[kind]) <= 1e-3 * largest).all(), (name, kind)


def at_rate(dataset: Dataset, rate_hz: float, folder: Path) -> Dataset:
    """Returns a copy of a dataset that says to have been controlled at another rate."""
    header = dataset.header
    action = header.action.model_copy(update={"rate_hz": rate_hz})
    with DatasetWriter(folder, header.model_copy(update={"action": action})) as writer:
        for record in dataset.stored():
            writer.add(record, dataset.path(record).read_bytes())
    return Dataset(folder)


QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}


def numpy_stats(numbers: np.ndarray) -> dict[str, np.ndarray]:
    """Returns NumPy's statistics of the columns of (N, n)."""
    numbers = numbers.astype(np.float64)
    moments = {name: getattr(numbers, name)(axis=0) for name in ("min", "max", "mean", "std")}
    return moments | {name: np.quantile(numbers, q, axis=0) for name, q in QUANTILES.items()}


def require_stats(
    found: Mapping[str, Any], columns: Mapping[str, np.ndarray], left: Collection[str]
) -> None:
    """Checks the statistics of all columns but some against NumPy's of their rows."""
    assert found.keys() == columns.keys() - left
    for name, stats in found.items():
        rows = columns[name] / 255 if "images" in name else columns[name]
        assert stats["count"] == [len(rows)], name
        for kind, expected in numpy_stats(rows.reshape(-1, np.shape(stats["mean"])[0])).items():
            given = np.array(stats[kind])
            assert given.shape == ((3, 1, 1) if "images" in name else expected.shape)
            np.testing.assert_allclose(given.ravel(), expected, rtol=1e-12, atol=1e-12)


def columns_of(root: Path) -> list[dict[str, np.ndarray]]:
    """Returns the columns of each episode of an export."""
    info, _, tables = read_lerobot(root)
    features = info["features"]
    return [{n: as_array(t[n], features[n]) for n in features} for t in tables.values()]


def stats_of_row(row: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the statistics in a row of the table of episodes."""
    stats: dict[str, dict[str, Any]] = {}
    for name, value in row.items():
        if name.startswith("stats/"):
            _, feature, kind = name.split("/")
            stats.setdefault(feature, {})[kind] = value
    return stats


@pytest.mark.parametrize("seed", [0, 3])
def test_statistics_are_numpys_of_all_frames_and_of_each_episode(seed, tmp_path):
    """Means of the episodes' quantiles are no quantiles: LeRobot clips to them."""
    shapes = {"flag": ((), "bool"), "ticks": ((1,), "int64"), "pose": ((3, 4), "float64")}
    header = a_header({**OBSERVATION, **shapes})
    dataset = write(tmp_path / "set", Drawn([9, 1, 4], [True] * 3, seed, True), header)
    export_dataset(dataset, "lerobot", tmp_path / "out")
    episodes, without = columns_of(tmp_path / "out"), {"observation.point_cloud"}
    whole = {name: np.concatenate([each[name] for each in episodes]) for name in episodes[0]}
    require_stats(json.loads((tmp_path / "out/meta/stats.json").read_text()), whole, without)
    _, rows, _ = read_lerobot(tmp_path / "out")
    for row, columns in zip(rows, episodes, strict=True):
        require_stats(stats_of_row(row), columns, without)


@given(hnp.arrays(np.uint8, st.tuples(st.integers(1, 3), *[st.integers(1, 5)] * 2, st.just(3))))
def test_image_statistics_are_numpys_of_all_pixels(images):
    counts = sum(color_counts(image[None]) for image in images)
    stats = image_stats(np.asarray(counts), len(images))
    assert stats["count"].tolist() == [len(images)]
    for name, expected in numpy_stats(images.reshape(-1, 3) / 255).items():
        np.testing.assert_allclose(stats[name], expected.reshape(3, 1, 1), atol=1e-12)


@given(st.floats(-1e6, 1e6, width=32), st.integers(1, 99))
def test_a_constant_has_no_deviation(value, steps):
    stats = vector_stats(np.full((steps, 1), value, np.float32))
    assert all(stats[name] == value for name in ("min", "max", "mean", *QUANTILES))
    assert stats["std"] == 0


@pytest.mark.parametrize("rate_hz", [6.0, 6.25, 7.5, 1 / 3, 30 / 1.001, 1000.0])
def test_times_are_those_of_the_control_rate(rate_hz, tmp_path):
    header = a_header()
    action = header.action.model_copy(update={"rate_hz": rate_hz})
    header = header.model_copy(update={"action": action})
    dataset = write(tmp_path / "set", Drawn([60], [True], 0), header)
    export_dataset(dataset, "lerobot", tmp_path / "out")
    info, _, _ = read_lerobot(tmp_path / "out")
    (columns,) = columns_of(tmp_path / "out")
    assert info["fps"] == rate_hz and isinstance(info["fps"], int) == rate_hz.is_integer()
    off = np.abs(columns["timestamp"] - columns["frame_index"] / rate_hz)
    assert off.max() < 1e-4  # LeRobot's tolerance, s


@given(
    st.sampled_from(["float32", "float64", "uint8", "int64", "bool"]).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(max_dims=4, max_side=4))
    )
)
def test_columns_are_lossless(rows):
    from fleet_tools.dataset.export.lerobot_columns import column

    values = column(rows)
    assert len(values) == len(rows)
    while pa.types.is_nested(values.type):
        values = values.flatten()
    np.testing.assert_array_equal(values.to_numpy(zero_copy_only=False), rows.reshape(-1))


def test_new_files_are_started_as_files_grow(tmp_path):
    from fleet_tools.dataset.export.lerobot_columns import ParquetFiles

    generator, locations = np.random.default_rng(0), []
    with ParquetFiles(tmp_path, "{chunk_index}/{file_index}.parquet", 1, 2) as files:
        for _ in range(5):
            locations.append(files.next_location())
            files.write(pa.table({"x": generator.normal(size=100_000)}))  # 0.8 MB
    assert locations == [(0, 0), (0, 0), (0, 1), (0, 1), (1, 0)]
    rows = {
        (chunk, file): pq.read_metadata(tmp_path / f"{chunk}/{file}.parquet").num_rows
        for chunk, file in locations
    }
    assert rows == {(0, 0): 200_000, (0, 1): 200_000, (1, 0): 100_000}
