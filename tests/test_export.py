"""Exports, read back through the other projects' own readers, where these install beside us."""

import io
import json
import shutil
import sys
from functools import cache
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import needs_gl
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fleet_tools.dataset import Dataset, DatasetWriter, Record, episode_file
from fleet_tools.dataset.__main__ import main
from fleet_tools.dataset.export import FORMATS, export_dataset
from fleet_tools.dataset.export.lerobot_stats import combined, picture_stats, vector_stats
from fleet_tools.dataset.header import describe
from fleet_tools.dataset.reader import last_digest
from fleet_tools.episode import rollout
from fleet_tools.errors import DatasetError, InfeasibleError, MissingLibraryError, UnknownNameError
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.registration import make_environment

MODES = {
    "state": {},
    "point_cloud": {"obs_mode": "point_cloud", "cloud_size": [40, 30]},
    "rgbd": {"obs_mode": "rgbd", "camera_size": [64, 48]},
}
each_mode = pytest.mark.parametrize(
    "mode", ["state", *(pytest.param(mode, marks=needs_gl) for mode in ("point_cloud", "rgbd"))]
)
each_format = pytest.mark.parametrize("form", FORMATS)


class _GivesUp:
    """An expert that knows what to do for so many steps only."""

    def __init__(self, env, steps):
        self._expert, self._left = ExpertPolicy(env), steps

    def reset(self):
        self._expert.reset()

    def act(self, observation):
        if not self._left:
            raise InfeasibleError("No plan.", {})
        self._left -= 1
        return self._expert.act(observation)


@pytest.fixture(scope="session", name="collected")
def _collected(tmp_path_factory):
    """Data sets: two successes, and failures of which one is stored, one empty, one forgotten."""

    @cache
    def collected(mode):
        keywords = MODES[mode]
        env = make_environment(task="hammer", **keywords)
        about = describe(env, "hammer", policy="expert", seed=0, keep_failures=True, **keywords)
        folder = tmp_path_factory.mktemp("collected") / mode
        with DatasetWriter(folder, about) as writer:
            for attempt, steps in enumerate([99, 3, None, 0, 99]):
                episode = rollout(env, _GivesUp(env, steps or 0), seed=attempt)
                record = Record(
                    attempt=attempt, seed=attempt, outcome=episode.outcome,
                    success=episode.succeeded, steps=len(episode), seconds=0.5,
                    state_digest=last_digest(episode), error=episode.error,
                )  # fmt: skip
                kept = None if steps is None else episode_file.to_bytes(episode, attempt)
                writer.add(record, kept)
        assert [record.success for record in writer.records] == [True, False, False, False, True]
        return Dataset(folder)

    return collected


def same(one, other):
    """Whether two arrays are the same bit for bit."""
    one, other = np.asarray(one), np.asarray(other)
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())


def successes(dataset):
    return [dataset.episode(record.attempt) for record in dataset.stored() if record.success]


def names_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# --- All formats ----------------------------------------------------------------------------


@each_format
def test_counts_bytes_and_what_is_left_out(form, collected, tmp_path):
    dataset = collected("state")
    made = export_dataset(dataset, form, tmp_path / "out")
    assert made.episodes == 2
    assert made.steps == sum(map(len, successes(dataset)))
    files = [path for path in [tmp_path / "out", *tmp_path.rglob("*")] if path.is_file()]
    assert made.bytes == sum(path.stat().st_size for path in set(files))
    for fact in (
        "1 failed episodes (--all takes them, too)",
        "1 episodes without a single step",
        "1 attempts of which only the manifest knows",
    ):
        assert fact in made.left_out
    every = export_dataset(dataset, form, tmp_path / "every", failures=True)
    assert every.episodes == 3
    assert not any("--all" in fact for fact in every.left_out)


@each_format
def test_existing_output_is_left_as_it_is(form, collected, tmp_path):
    output = tmp_path / "out"
    export_dataset(collected("state"), form, output)
    before = names_below(tmp_path)
    with pytest.raises(DatasetError, match=r"exists already\. Give another --output"):
        export_dataset(collected("state"), form, output)
    assert names_below(tmp_path) == before


@each_format
def test_damaged_episode_is_named_and_nothing_is_left_behind(form, collected, tmp_path):
    shutil.copytree(collected("state").folder, tmp_path / "set")
    dataset = Dataset(tmp_path / "set")
    last = tmp_path / "set" / dataset.stored()[-1].file
    last.write_bytes(last.read_bytes()[:-8])
    before = names_below(tmp_path)
    with pytest.raises(DatasetError, match=r"episode_000004\.hdf5 is damaged(.|\n)*makes it again"):
        export_dataset(dataset, form, tmp_path / "new" / "out")
    last.unlink()
    with pytest.raises(DatasetError, match=r"episode_000004\.hdf5 is missing"):
        export_dataset(dataset, form, tmp_path / "new" / "out")
    assert names_below(tmp_path) == [name for name in before if "000004" not in name]


@pytest.mark.parametrize(("form", "module"), [("lerobot", "pyarrow"), ("zarr", "zarr")])
def test_missing_library_is_named_before_anything_is_made(
    form, module, collected, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingLibraryError, match=r"\[export\]"):
        export_dataset(collected("state"), form, tmp_path / "out")
    assert names_below(tmp_path) == []


def test_unknown_format_names_the_nearest(collected, tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean 'minari'"):
        export_dataset(collected("state"), "minary", tmp_path / "out")


def test_nothing_to_export_is_said(collected, tmp_path):
    with DatasetWriter(tmp_path / "set", collected("state").header) as writer:
        writer.add(collected("state").manifest()[2])
    with pytest.raises(DatasetError, match="no episode to export"):
        export_dataset(Dataset(tmp_path / "set"), "zarr")
    assert names_below(tmp_path / "set") == ["dataset.json", "episodes", "manifest.jsonl"]


# --- Minari ---------------------------------------------------------------------------------


def load_minari(monkeypatch, root, mode):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root))
    return minari.load_dataset(f"fleet_tools/hammer/expert-{mode}-v0")


@each_mode
def test_minari_gives_the_episodes_bit_for_bit(mode, collected, tmp_path, monkeypatch):
    dataset = collected(mode)
    export_dataset(dataset, "minari", tmp_path, failures=True)
    loaded = load_minari(monkeypatch, tmp_path, mode)
    assert (loaded.total_episodes, loaded.total_steps) == (3, sum(len(e) for e in dataset))
    loaded.set_seed(0)
    sampled = sorted(loaded.sample_episodes(3), key=lambda episode: episode.id)
    for read in (list(loaded.iterate_episodes()), sampled):
        assert [episode.id for episode in read] == [0, 1, 2]
        for theirs, attempt in zip(read, (0, 1, 4), strict=True):
            ours = dataset.episode(attempt)
            assert theirs.observations.keys() == ours.observations.keys()
            for name, rows in ours.observations.items():
                assert same(theirs.observations[name], rows), name
            assert same(theirs.actions, ours.actions)
            assert same(theirs.rewards, ours.rewards)
            assert same(theirs.terminations, ours.terminated)
            assert same(theirs.truncations, ours.truncated)
            assert same(theirs.infos["success"], ours.success)
            assert same(theirs.infos["state_digest"], ours.digests)


@each_mode
def test_minari_recovers_the_environment_and_its_spaces(mode, collected, tmp_path, monkeypatch):
    export_dataset(collected(mode), "minari", tmp_path)
    loaded = load_minari(monkeypatch, tmp_path, mode)
    env = loaded.recover_environment()
    assert env.observation_space == loaded.observation_space
    assert env.action_space == loaded.action_space
    ours = collected(mode).episode(0)
    observation, _ = env.reset(seed=0)
    assert all(same(observation[name], ours.observations[name][0]) for name in observation)
    env.close()


def test_minari_keeps_attempts_outcomes_and_scenes(collected, tmp_path, monkeypatch):
    dataset = collected("state")
    export_dataset(dataset, "minari", tmp_path, failures=True)
    told = list(load_minari(monkeypatch, tmp_path, "state").storage.get_episode_metadata(range(3)))
    assert [(episode["id"], episode["seed"]) for episode in told] == [(0, 0), (1, 1), (4, 4)]
    assert [episode["outcome"] for episode in told] == ["success", "policy_error", "success"]
    assert told[2]["scene"] == dataset.episode(4).scene.to_json()


def test_minari_root_holds_several_data_sets(collected, tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    first = collected("state")
    other = first.header.model_copy(update={"policy": "m y/policy"})
    with DatasetWriter(tmp_path / "set", other) as writer:
        writer.add(first.manifest()[0], episode_file.to_bytes(first.episode(0), 0))
    for dataset in (first, Dataset(tmp_path / "set")):
        export_dataset(dataset, "minari", tmp_path / "root")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "root"))
    assert set(minari.list_local_datasets()) == {
        "fleet_tools/hammer/expert-state-v0",
        "fleet_tools/hammer/m_y_policy-state-v0",
    }


# --- robomimic ------------------------------------------------------------------------------


def read_robomimic(path):
    """Reads every demonstration whole, in their order."""
    with h5py.File(path, swmr=True, libver="latest") as file:  # as robomimic opens it
        data = file["data"]
        return [
            {
                "obs": {name: rows[()] for name, rows in data[f"demo_{n}/obs"].items()},
                "next_obs": {name: rows[()] for name, rows in data[f"demo_{n}/next_obs"].items()},
                "attributes": dict(data[f"demo_{n}"].attrs),
                **{
                    name: rows[()]
                    for name, rows in data[f"demo_{n}"].items()
                    if isinstance(rows, h5py.Dataset)
                },
            }
            for n in range(len(data))
        ]


def with_channel(name, rows):
    return rows[..., None] if name.endswith("_depth") else rows


@each_mode
def test_robomimic_layout_holds_every_row(mode, collected, tmp_path):
    dataset = collected(mode)
    export_dataset(dataset, "robomimic", tmp_path / "view.hdf5")
    demos = read_robomimic(tmp_path / "view.hdf5")
    for demo, ours in zip(demos, successes(dataset), strict=True):
        assert demo["attributes"]["num_samples"] == len(ours)
        assert same(demo["actions"], ours.actions)
        assert same(demo["rewards"], ours.rewards)
        assert same(demo["success"], ours.success)
        assert same(demo["state_digest"], ours.digests)
        assert demo["dones"].tolist() == [0] * (len(ours) - 1) + [1]
        for name, rows in ours.observations.items():
            assert same(demo["obs"][name], with_channel(name, rows[:-1])), name
            assert same(demo["next_obs"][name], with_channel(name, rows[1:])), name


@each_mode
def test_robomimic_reads_it(mode, collected, tmp_path):
    reader = pytest.importorskip("robomimic.utils.dataset")
    utils = pytest.importorskip("robomimic.utils.obs_utils")
    dataset = collected(mode)
    names = tuple(dataset.header.observation)
    kinds = {kind: [n for n in names if n.endswith(f"_{kind}")] for kind in ("rgb", "depth")}
    rest = [n for n in names if not n.endswith(("_rgb", "_depth"))]
    utils.initialize_obs_utils_with_obs_specs({"obs": kinds | {"low_dim": rest}})
    export_dataset(dataset, "robomimic", tmp_path / "view.hdf5")
    for number, (mask, ours) in enumerate(zip(("train", "valid"), successes(dataset), strict=True)):
        sequences = reader.SequenceDataset(
            str(tmp_path / "view.hdf5"), names, ("actions", "rewards", "dones"),
            hdf5_cache_mode=(None, "low_dim")[number], filter_by_attribute=mask,
        )  # fmt: skip
        assert len(sequences) == len(ours)
        for t, item in enumerate(sequences[k] for k in range(len(ours))):
            assert same(item["actions"][0], ours.actions[t])
            for name, rows in ours.observations.items():
                assert same(item["obs"][name][0], with_channel(name, rows[t])), name
                assert same(item["next_obs"][name][0], with_channel(name, rows[t + 1])), name


def test_robomimic_masks_mark_failures(collected, tmp_path):
    export_dataset(collected("state"), "robomimic", tmp_path / "view.hdf5", failures=True)
    with h5py.File(tmp_path / "view.hdf5") as file:
        masks = {name: [demo.decode() for demo in rows] for name, rows in file["mask"].items()}
        assert json.loads(file["data"].attrs["env_args"]) == {
            "env_name": "FleetTools/Hammer-v0", "type": 2, "env_kwargs": {"task": "hammer"},
        }  # fmt: skip
        failed = dict(file["data/demo_1"].attrs)
    assert masks == {
        "train": ["demo_0"],
        "valid": ["demo_2"],
        "success": ["demo_0", "demo_2"],
        "failure": ["demo_1"],
    }
    assert (failed["attempt"], failed["outcome"]) == (1, "policy_error")
    assert "No plan" in json.loads(failed["error"])


# --- Views ----------------------------------------------------------------------------------


@needs_gl
def test_views_copy_nothing(collected, tmp_path):
    export_dataset(collected("rgbd"), "minari", tmp_path / "minari")
    export_dataset(collected("rgbd"), "robomimic", tmp_path / "view.hdf5")
    owned = []

    def note(name, item):
        if isinstance(item, h5py.Dataset) and not item.is_virtual:
            owned.append(name)

    for path in (*tmp_path.rglob("main_data.hdf5"), tmp_path / "view.hdf5"):
        with h5py.File(path) as file:
            file.visititems(note)  # which follows no links
    assert {name.split("/")[0] for name in owned if "dones" not in name} == {"mask"}


@pytest.mark.parametrize("form", ["minari", "robomimic"])
def test_view_and_data_move_together(form, collected, tmp_path, monkeypatch):
    there = tmp_path / "there"
    shutil.copytree(collected("state").folder, there / "data" / "hammer")
    dataset = Dataset(there / "data" / "hammer")
    made = export_dataset(dataset, form)  # beside the data set
    assert Path(made.output).is_relative_to(there / "data")
    there.rename(tmp_path / "here")
    view = tmp_path / "here" / Path(made.output).relative_to(there)
    ours = successes(Dataset(tmp_path / "here/data/hammer"))[1]

    def actions():
        if form == "robomimic":
            return read_robomimic(view)[1]["actions"]
        return load_minari(monkeypatch, tmp_path / "here/data/hammer-minari", "state")[1].actions

    assert same(actions(), ours.actions)
    shutil.rmtree(tmp_path / "here/data/hammer")
    with pytest.raises((KeyError, OSError)):
        actions()


# --- LeRobot --------------------------------------------------------------------------------


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


@given(st.sampled_from(["float32", "float64", "uint8", "int64", "bool"]).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(max_dims=4, max_side=4))))  # fmt: skip
def test_columns_lose_nothing(rows):
    pytest.importorskip("pyarrow")
    from fleet_tools.dataset.export.parquet import column

    values = column(rows)
    assert len(values) == len(rows)
    for _ in range(rows.ndim - 1):
        values = values.flatten()
    np.testing.assert_array_equal(values.to_numpy(zero_copy_only=False), rows.reshape(-1))


def test_files_are_begun_as_they_grow(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    from fleet_tools.dataset.export.parquet import ParquetFiles

    generator, places = np.random.default_rng(0), []
    with ParquetFiles(tmp_path, "{chunk_index}/{file_index}.parquet", 1, 2) as files:
        for _ in range(5):
            places.append(files.place())
            files.write(pa.table({"x": generator.normal(size=100_000)}))  # 0.8 MB
    assert places == [(0, 0), (0, 0), (0, 1), (0, 1), (1, 0)]
    rows = {place: pq.read_metadata(tmp_path / f"{place[0]}/{place[1]}.parquet").num_rows
            for place in places}  # fmt: skip
    assert rows == {(0, 0): 200_000, (0, 1): 200_000, (1, 0): 100_000}


# --- zarr -----------------------------------------------------------------------------------


@each_mode
def test_zarr_loses_nothing(mode, collected, tmp_path):
    zarr = pytest.importorskip("zarr")
    dataset = collected(mode)
    export_dataset(dataset, "zarr", tmp_path / "out.zarr", failures=True)
    root = zarr.open(tmp_path / "out.zarr", mode="r")
    ends = root["meta/episode_ends"][:]
    assert all(rows.shape[0] == ends[-1] for _, rows in root["data"].arrays())
    assert root["meta/attempt"][:].tolist() == [0, 1, 4]
    assert root["meta/success"][:].tolist() == [True, False, True]
    for number, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        told = root.attrs["episodes"][number]
        ours = dataset.episode(told["attempt"])
        assert (told["outcome"], told["error"]) == (ours.outcome, ours.error)
        assert told["scene"] == ours.scene.to_json()
        for name, rows in {
            "action": ours.actions, "reward": ours.rewards, "success": ours.success,
            "terminated": ours.terminated, "truncated": ours.truncated,
        }.items():  # fmt: skip
            assert same(root["data"][name][begin:end], rows), name
        for name, rows in {**ours.observations, "state_digest": ours.digests}.items():
            assert same(root["data"][name][begin:end], rows[:-1]), name
            assert same(root["final"][name][number], rows[-1]), name


@needs_gl
def test_zarr_is_compressed_and_pictures_are_chunks(collected, tmp_path):
    zarr = pytest.importorskip("zarr")
    export_dataset(collected("rgbd"), "zarr", tmp_path / "out.zarr")
    data = zarr.open(tmp_path / "out.zarr", mode="r")["data"]
    assert data.metadata.zarr_format == 2  # zarr 2 reads it, too
    assert data["wrist_rgb"].chunks == (1, 48, 64, 3)
    assert all(rows.compressors for _, rows in data.arrays())


# --- The command line -----------------------------------------------------------------------


def test_command_says_what_it_made(collected, tmp_path, capsys):
    folder, output = str(collected("state").folder), tmp_path / "out"
    arguments = ["export", folder, "--to", "minari", "--output"]
    assert main([*arguments, str(output)]) == 0
    text = capsys.readouterr().out
    assert "minari: 2 episodes" in text
    assert "left out: " in text
    assert f"MINARI_DATASETS_PATH={output}" in text
    assert main([*arguments, str(tmp_path / "every"), "--all", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["format"], made["episodes"]) == ("minari", 3)
    assert Path(made["output"]).is_dir()
    assert main([*arguments, str(tmp_path / "silent"), "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_command_refuses_what_it_cannot_do(collected, tmp_path, capsys):
    folder = str(collected("state").folder)
    for arguments in (["--to", "tfds"], []):
        with pytest.raises(SystemExit) as exit:
            main(["export", folder, *arguments])
        assert exit.value.code == 2
    assert main(["export", str(tmp_path), "--to", "zarr"]) == 2
    assert "is not a data set" in capsys.readouterr().err
    (tmp_path / "mine").touch()
    taken = str(tmp_path / "mine")
    assert main(["export", folder, "--to", "robomimic", "--output", taken]) == 2
    assert "exists already" in capsys.readouterr().err
