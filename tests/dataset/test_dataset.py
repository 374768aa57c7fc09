"""The folder of a dataset, its episodes' files, its header and its summary."""

import io
import json
import math
import tempfile
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.folders import contents
from support.small_datasets import Drawn, Layout, a_record, hammer_header, write
from support.small_datasets import a_header as small_header
from support.small_datasets import an_episode as random_episode

from fleet_tools.config.tasks import load_task
from fleet_tools.dataset import AttemptRecord, Dataset, DatasetWriter, episode_file
from fleet_tools.dataset.header import Header
from fleet_tools.dataset.samples import Samples
from fleet_tools.dataset.summary import as_text, summarize
from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.errors import DatasetError
from fleet_tools.policies.policy import EXPLANATION
from fleet_tools.robot.arm import load_robot
from fleet_tools.rollouts.episode import Episode, first_difference
from fleet_tools.rollouts.rollout import cause_lines, failure_causes
from fleet_tools.sim.scene import sample_scene

LAYOUT: Layout = {"joint_position": ((7,), "float32")}


@cache
def a_header() -> Header:
    return small_header(LAYOUT).model_copy(update={"keep_failures": False})


def an_episode(number: int = 0) -> Episode:
    episode = random_episode(np.random.default_rng(number), 3, True, LAYOUT)
    return replace(episode, info={"planning_seconds": 0.1})


def write_same(folder: Path, count: int) -> Dataset:
    """Adds episodes to a dataset until it holds a given number."""
    with DatasetWriter(folder, a_header()) as writer:
        for number in range(len(writer.records), count):
            content = episode_file.to_bytes(an_episode(number), number)
            writer.add(a_record(number, an_episode(number)), content)
    return Dataset(folder)


@pytest.fixture(name="five", scope="module")
def _five(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_same(tmp_path_factory.mktemp("five"), 5)


# --- What is stored -------------------------------------------------------------------------


def test_reads_what_was_written(tmp_path):
    dataset = write_same(tmp_path / "new" / "set", 3)
    assert [record.attempt for record in dataset.manifest()] == [0, 1, 2]
    assert len(dataset) == 3
    for number, episode in enumerate(dataset):
        assert first_difference(an_episode(number), episode) is None
        assert episode.info == {"planning_seconds": 0.1}
    line = json.loads((dataset.folder / "manifest.jsonl").read_text().splitlines()[1])
    assert line["file"] == "episodes/episode_000001.hdf5"
    assert (line["seed"], line["outcome"], line["steps"]) == (1, "success", 3)


@given(st.none() | st.integers(1, 7), st.integers(0, 2**32))
def test_the_seed_draws_stored_attempts_in_order(five, count, seed):
    drawn = [record.attempt for record in five.draw(count, seed)]
    assert drawn == sorted(set(drawn))
    assert set(drawn) <= set(range(5))
    assert len(drawn) == (5 if count is None else min(count, 5))
    assert drawn == [record.attempt for record in five.draw(count, seed)]


def test_every_stored_attempt_is_drawn_equally_often(five):
    drawn = [record.attempt for seed in range(1000) for record in five.draw(2, seed)]
    rates = np.bincount(drawn, minlength=5) / 1000
    np.testing.assert_allclose(rates, 2 / 5, atol=0.06)  # four standard deviations


def test_failed_attempt_is_recorded_without_a_file(tmp_path):
    with DatasetWriter(tmp_path, a_header()) as writer:
        writer.add(a_record(0, an_episode()))
    dataset = Dataset(tmp_path)
    assert dataset.manifest()[0].file is None
    assert len(dataset) == 0
    with pytest.raises(DatasetError, match="no episode of attempt 0"):
        dataset.episode(0)
    with pytest.raises(DatasetError, match="holds no episodes yet"):
        dataset.draw(None, 0)


# --- Interruptions --------------------------------------------------------------------------


@pytest.mark.parametrize("torn", [b"", b'{"attempt":2,"se', b"\x00\x00", b"{"])
def test_what_a_crash_leaves_is_repaired(tmp_path, torn):
    write_same(tmp_path / "one", 2)
    with (tmp_path / "one" / "manifest.jsonl").open("ab") as manifest:
        manifest.write(torn)
    (tmp_path / "one" / "episodes" / ".episode_000002.7.aside.hdf5").write_bytes(b"half")
    (tmp_path / "one" / "episodes" / "episode_000002.hdf5").write_bytes(b"never listed")
    assert len(Dataset(tmp_path / "one")) == 2
    write_same(tmp_path / "one", 3)
    write_same(tmp_path / "other", 3)
    assert contents(tmp_path / "one") == contents(tmp_path / "other")


# --- What is refused ------------------------------------------------------------------------


@pytest.mark.parametrize("by_samples", [False, True])
def test_missing_truncated_or_exchanged_episode_is_named_with_its_remedy(tmp_path, by_samples):
    dataset = write_same(tmp_path, 3)
    samples = Samples(tmp_path)

    def read(attempt: int) -> object:
        return samples.gather([3 * attempt]) if by_samples else dataset.episode(attempt)

    first, second, third = map(dataset.path, dataset.stored())
    first.write_bytes(third.read_bytes())
    second.write_bytes(second.read_bytes()[:-8])
    third.unlink()
    command = r"`python -m fleet_tools.collect --tool hammer --seed 7 --episodes 3 --output"
    problems = "is damaged, or not the episode", "is damaged", "is missing"
    for attempt, problem in enumerate(problems):
        with pytest.raises(DatasetError, match=rf"episode_00000{attempt}.hdf5 {problem}"):
            read(attempt)
    with pytest.raises(DatasetError, match=command):
        read(2)


HAMMER = load_task("hammer")
IMAGES = ["wrist_rgb", "wrist_depth", "wrist_segmentation"]


def small_episode() -> Episode:
    layout = {"joint_position": ((7,), "float32")}
    return random_episode(np.random.default_rng(0), 3, True, layout)


@st.composite
def episodes(draw: st.DrawFn) -> Episode:
    steps = draw(st.integers(0, 4))

    def rows(extra: int, dtype: Any, *shape: int) -> np.ndarray:
        return draw(hnp.arrays(dtype, (steps + extra, *shape)))

    names = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1) | st.sampled_from(IMAGES)
    dtypes = st.sampled_from(["float32", "float64", "uint8", "int64"])
    return Episode(
        scene=sample_scene(HAMMER, draw(st.integers(0, 2**53 - 1))),
        observations={
            name: rows(1, draw(dtypes), *draw(hnp.array_shapes(max_dims=2, max_side=3)))
            for name in draw(st.sets(names, min_size=1, max_size=3))
        },
        actions=rows(0, "float32", 6),
        rewards=rows(0, "float64"),
        terminated=rows(0, "bool"),
        truncated=rows(0, "bool"),
        success=rows(0, "bool"),
        digests=rows(1, "uint64"),
        outcome=draw(st.sampled_from(["success", "time_limit", "policy_error"])),
        error=draw(st.none() | st.text()),
    )


@given(episodes(), st.integers(0, 10**6))
def test_nothing_is_lost_on_disk(episode, number):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "episode.hdf5"
        path.write_bytes(episode_file.to_bytes(episode, number, IMAGES))
        stored = episode_file.read(path)
    assert first_difference(episode, stored) is None
    assert stored.scene == episode.scene
    assert (stored.outcome, stored.error) == (episode.outcome, episode.error)


def test_same_episode_same_bytes_at_another_time():
    first = episode_file.to_bytes(small_episode(), 4)
    time.sleep(1.1)  # HDF5 counts in seconds
    assert first == episode_file.to_bytes(small_episode(), 4)


def test_arrays_are_contiguous_and_aligned(tmp_path):
    path = tmp_path / "episode.hdf5"
    path.write_bytes(episode_file.to_bytes(small_episode(), 12))
    with h5py.File(path) as file:
        actions = file["episode_12/actions"]
        assert isinstance(actions, h5py.Dataset)
        offset, shape = actions.id.get_offset(), actions.shape
        assert file["episode_12"].attrs["total_steps"] == 3
    assert offset % 8 == 0
    mapped = np.memmap(path, np.float32, "r", offset, shape)
    np.testing.assert_array_equal(mapped, small_episode().actions)


def test_images_are_compressed_one_by_one():
    images = np.zeros((4, 60, 80, 3), np.uint8)
    episode = replace(small_episode(), observations={"wrist_rgb": images})
    content = episode_file.to_bytes(episode, 0, IMAGES)
    assert len(content) < images.nbytes / 4
    with h5py.File(io.BytesIO(content)) as file:
        stored = file["episode_0/observations/wrist_rgb"]
        assert isinstance(stored, h5py.Dataset)
        assert stored.chunks == (1, 60, 80, 3)
        np.testing.assert_array_equal(stored, images)


@given(st.floats(0, 1, exclude_max=True))
def test_truncated_file_is_refused_wherever_it_ends(fraction):
    complete = episode_file.to_bytes(small_episode(), 0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "episode.hdf5"
        path.write_bytes(complete[: math.floor(fraction * len(complete))])
        with pytest.raises(DatasetError, match=r"episode\.hdf5 is damaged"):
            episode_file.read(path)


def test_file_of_another_layout_is_refused(tmp_path):
    path = tmp_path / "other.hdf5"
    with h5py.File(path, "w") as file:
        file.create_group("episode_0/actions")  # a group where an array is expected
    with pytest.raises(DatasetError, match=r"other\.hdf5 is damaged or not an episode"):
        episode_file.read(path)
    with pytest.raises(DatasetError, match=r"missing\.hdf5 is missing"):
        episode_file.read(tmp_path / "missing.hdf5")


def test_header_describes_every_array_of_a_step(hammer):
    header = hammer_header()
    space = hammer.observation_space
    assert isinstance(space, gymnasium.spaces.Dict)
    assert {name: (array.shape, array.dtype) for name, array in header.observation.items()} == {
        name: (entry.shape, entry.dtype) for name, entry in space.items()
    }
    assert header.observation["tool_keypoints"].entries == hammer.task.keypoints.tool
    assert header.action.scale == tuple(hammer.action_scale)


def test_environment_is_made_again_from_the_task_as_it_was():
    header = hammer_header()
    text = header.task.text.replace("time_limit_s: 10", "time_limit_s: 1.2")
    changed = HAMMER.model_copy(update={"time_limit_s": 1.2})
    task = header.task.model_copy(update={"text": text, "content_digest": changed.digest()})
    fill = load_robot().fill
    assert unwrap(header.model_copy(update={"task": task}).make_env()).task == fill(changed)
    env = header.make_env(render_mode="rgb_array")  # which is another argument
    assert unwrap(env).task == fill(HAMMER) and env.render_mode == "rgb_array"


def test_the_name_of_a_task_does_not_lead_to_a_file(tmp_path):
    header = hammer_header()
    text = header.task.text.replace("time_limit_s: 10", "time_limit_s: 1.2")
    changes = {"text": text, "content_digest": "0", "name": str(tmp_path / "own")}
    task = header.task.model_copy(update=changes)
    env = unwrap(header.model_copy(update={"task": task}).make_env())
    assert env.task.max_episode_steps == 7
    assert not list(tmp_path.iterdir())


NOWHERE = Path("/nonexistent")


def record(outcome: str, error: str | None = None, **info: str) -> AttemptRecord:
    counts = {"attempt": 3, "seed": 7, "steps": 1, "seconds": 0.5}
    success = outcome == "success"
    return AttemptRecord(outcome=outcome, success=success, error=error, info=dict(info), **counts)


def name(of: AttemptRecord) -> str:
    return f"attempt {of.attempt}"


def test_summary_counts_what_the_dataset_holds(tmp_path):
    dataset = write(tmp_path, Drawn([2, 3, 5], [True, False, True], 0))
    summary = summarize(tmp_path, dataset.header, dataset.manifest())
    assert (summary["attempts"], summary["successes"]) == (3, 2)
    assert (summary["stored_episodes"], summary["stored_steps"]) == (3, 10)
    assert summary["stored_steps_to_imitate"] == 10 and "imitated" not in as_text(summary)
    assert summary["episode_steps"] == {"mean": 3.333, "median": 3, "longest": 5}
    assert summary["tools"] == {"tool_0": 2, "tool_1": 1}
    assert summary["causes"] == {"time_limit": {"count": 1, "example": "attempt 1 (seed 1)"}}
    assert summary["bytes"] == sum(
        path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()
    )
    assert "2 of 3 attempts succeeded: 66.7%" in as_text(summary)


def test_summary_says_how_many_steps_are_not_to_be_imitated(tmp_path):
    dataset = write(tmp_path, Drawn([9, 8], [True, True], 0, labelled=True))
    summary = summarize(tmp_path, dataset.header, dataset.manifest())
    to_imitate = sum(each.labels.imitate(len(each)).sum() for each in dataset)
    assert summary["stored_steps_to_imitate"] == to_imitate < 17
    assert f"17 steps ({17 - to_imitate} not to be imitated)" in as_text(summary)


def test_summary_of_no_attempts():
    summary = summarize(NOWHERE, hammer_header(), [])
    assert summary["success_rate"] is None
    assert as_text(summary) == "hammer: 0 episodes, 0 steps, 0.00 MB in /nonexistent"


@given(st.lists(st.sampled_from(["success", "time_limit", "policy_error"])))
def test_every_failure_is_counted(outcomes):
    causes = failure_causes(map(record, outcomes), name)
    counts = {outcome: outcomes.count(outcome) for outcome in outcomes if outcome != "success"}
    assert {outcome: cause["count"] for outcome, cause in causes.items()} == counts


def test_the_example_tells_the_error_or_what_the_policy_says():
    records = [
        record("policy_error", "no plan"),
        record("time_limit", **{EXPLANATION: "2 attempts"}),
    ]
    assert cause_lines(failure_causes(records, name)) == [
        "  1 ended as policy_error, such as attempt 3: no plan",
        "  1 ended as time_limit, such as attempt 3: 2 attempts",
    ]
    text = as_text(summarize(NOWHERE, hammer_header(), records[1:]))
    assert "1 ended as time_limit, such as attempt 3 (seed 7): 2 attempts" in text
