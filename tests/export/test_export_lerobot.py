"""LeRobot's layout and its own reader give the episodes; statistics are of what they name."""

import io
import json

import numpy as np
import pytest
from exported import each_mode, same, successes
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fleet_tools.dataset.export import export_dataset
from fleet_tools.dataset.export.lerobot_stats import combined, picture_stats, vector_stats


def read_lerobot(root):
    """Returns `info.json`, the episodes' rows, and each episode's columns, as the format has it."""
    pq = pytest.importorskip("pyarrow.parquet")
    info = json.loads((root / "meta/info.json").read_text())
    told = pq.read_table(root / "meta/episodes").to_pylist()
    tables = {}
    for row in told:
        place = {part: row[f"data/{part}"] for part in ("chunk_index", "file_index")}
        table = pq.read_table(root / info["data_path"].format(**place))
        first = table["index"][0].as_py()
        tables[row["episode_index"]] = table.slice(row["dataset_from_index"] - first, row["length"])
    return info, told, tables


def as_array(column, feature):
    from PIL import Image

    if feature["dtype"] == "image":
        return np.stack([np.array(Image.open(io.BytesIO(c["bytes"]))) for c in column.to_pylist()])
    shape = [] if feature["shape"] == [1] else feature["shape"]
    return np.array(column.to_pylist(), feature["dtype"]).reshape(len(column), *shape)


def split_state(rows, dataset):
    """Takes `observation.state` apart again."""
    parts, begin = {}, 0
    for name, array in dataset.header.observation.items():
        if not name.startswith(("point_cloud", "overhead", "wrist")):
            end = begin + int(np.prod(array.shape))
            parts[name] = rows[:, begin:end].reshape(len(rows), *array.shape)
            begin = end
    assert begin == rows.shape[1]
    return parts


def lerobot_observations(columns, dataset):
    """Gives the columns of an episode our names."""
    seen = split_state(columns["observation.state"], dataset)
    for name, rows in columns.items():
        if name.startswith("observation.images."):
            seen[name.removeprefix("observation.images.") + "_rgb"] = rows
        elif name.startswith("observation.") and name != "observation.state":
            seen[name.removeprefix("observation.")] = rows
    return seen


@each_mode
def test_lerobot_holds_every_step(mode, collected, tmp_path):
    dataset = collected(mode)
    export_dataset(dataset, "lerobot", tmp_path / "out")
    info, told, tables = read_lerobot(tmp_path / "out")
    assert (info["codebase_version"], info["fps"]) == ("v3.0", 6)
    assert (info["total_episodes"], info["total_frames"]) == (2, told[-1]["dataset_to_index"])
    assert [row["attempt"] for row in told] == [0, 4]
    count = 0
    for number, ours in enumerate(successes(dataset)):
        table, steps = tables[number], len(ours)
        assert set(table.column_names) == set(info["features"])
        columns = {name: as_array(table[name], info["features"][name]) for name in info["features"]}
        seen = lerobot_observations(columns, dataset)
        assert seen.keys() == ours.observations.keys()
        for name, rows in ours.observations.items():
            assert same(seen[name], rows[:-1]), name
        assert same(columns["action"], ours.actions)
        assert same(columns["next.reward"], ours.rewards)
        assert same(columns["next.success"], ours.success)
        assert columns["next.done"].tolist() == [False] * (steps - 1) + [True]
        assert columns["index"].tolist() == list(range(count, count + steps))
        np.testing.assert_allclose(columns["timestamp"], np.arange(steps) / 6, rtol=1e-6)
        count += steps


@each_mode
def test_lerobot_reads_it(mode, collected, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    reader = pytest.importorskip("lerobot.datasets.lerobot_dataset")
    dataset = collected(mode)
    export_dataset(dataset, "lerobot", tmp_path / "out")
    loaded = reader.LeRobotDataset("fleet_tools/hammer", root=tmp_path / "out")
    k = 0
    for ours in successes(dataset):
        for t in range(len(ours)):
            # Its reader makes every float float32, every integer int64, and pictures colours in
            # [0, 1], (3, height, width).
            item = {name: np.asarray(value)[None] for name, value in loaded[k].items()}
            for name in loaded.meta.image_keys:
                item[name] = (item[name] * 255).round().transpose(0, 2, 3, 1)
            assert same(item["action"][0], ours.actions[t])
            assert item["next.reward"][0] == ours.rewards[t]
            seen = lerobot_observations(item, dataset)
            for name, rows in ours.observations.items():
                np.testing.assert_array_equal(seen[name][0], rows[t])
            k += 1
    assert k == len(loaded)


def test_lerobot_statistics_name_what_they_are_of(collected, tmp_path):
    export_dataset(collected("state"), "lerobot", tmp_path / "out")
    stats = json.loads((tmp_path / "out/meta/stats.json").read_text())
    info = json.loads((tmp_path / "out/meta/info.json").read_text())
    actions = np.concatenate([episode.actions for episode in successes(collected("state"))])
    np.testing.assert_allclose(stats["action"]["mean"], actions.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(stats["action"]["std"], actions.std(axis=0), atol=1e-6)
    assert stats["action"]["count"] == [len(actions)]
    state = info["features"]["observation.state"]
    assert state["shape"] == [len(stats["observation.state"]["mean"])] == [len(state["names"])]
    assert "tool_keypoints.head.2" in state["names"]


@given(hnp.arrays(np.float64, st.tuples(st.integers(2, 12), st.just(3)),
                  elements=st.floats(-100, 100)), st.data())  # fmt: skip
def test_statistics_of_parts_are_those_of_the_whole(rows, data):
    cut = data.draw(st.integers(1, len(rows) - 1))
    parts, whole = (
        combined([vector_stats(rows[:cut]), vector_stats(rows[cut:])]),
        vector_stats(rows),
    )
    for name in ("min", "max", "mean", "std", "count"):
        np.testing.assert_allclose(parts[name], whole[name], atol=1e-9)


def test_statistics_of_pictures_are_of_colours_up_to_one():
    pictures = np.zeros((2, 8, 8, 3), np.uint8)
    pictures[..., 1] = 255
    stats = picture_stats(pictures)
    assert stats["mean"].tolist() == [[[0.0]], [[1.0]], [[0.0]]]
    assert stats["count"].tolist() == [2]
