"""A learner of any format reads the steps and actions that `Samples` and `train` imitate."""

import json
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import pytest
from support.exported import names_below
from support.labelled import of_export, of_samples, others_of, random_dataset
from support.small_datasets import Drawn, write

from fleet_tools.dataset import Dataset, DatasetWriter
from fleet_tools.dataset.__main__ import main
from fleet_tools.dataset.export.exporting import FORMATS, Export, as_text, export_dataset
from fleet_tools.errors import DatasetError
from fleet_tools.rollouts.episode import EXPERT_ACTIONS, LEARNER_STEPS, NOISE_STEPS

each_format = pytest.mark.parametrize(
    "format_name", [name for name, each in FORMATS.items() if each.executed]
)


def exported(format_name: str, folder: Path, labelled: bool = True, whole: bool = False) -> Export:
    """Exports random numbers to "out"."""
    if format_name in ("lerobot", "zarr"):
        pytest.importorskip({"lerobot": "pyarrow", "zarr": "zarr"}[format_name])
    dataset = random_dataset(folder / "set", labelled=labelled)
    return export_dataset(dataset, format_name, folder / "out", whole=whole)


@each_format
def test_learners_read_what_samples_imitate_and_nothing_is_lost(format_name, tmp_path):
    exported(format_name, tmp_path)
    expected = of_samples(tmp_path / "set")
    episodes = of_export(format_name, tmp_path / "out")
    read = [step.content() for steps in episodes for step in steps]
    assert read == [step.content() for step in expected if step.imitate]
    assert 0 < len(read) < len(expected)
    assert others_of(format_name, tmp_path / "out") == sorted(
        (step.attempt, step.step, step.executed.tobytes()) for step in expected if not step.imitate
    )
    for steps in episodes:  # no two steps that did not follow each other
        assert all(after.step == before.step + 1 for before, after in pairwise(steps))


@each_format
def test_episodes_left_whole_are_marked_as_samples_are(format_name, tmp_path):
    export = exported(format_name, tmp_path, whole=True)
    episodes = of_export(format_name, tmp_path / "out")
    read = [step.content() for steps in episodes for step in steps]
    assert read == [step.content() for step in of_samples(tmp_path / "set")]
    assert len(episodes) == export.episodes
    assert any("has to heed `imitate`" in line for line in export.imitation)
    assert any("chunk" in line for line in export.imitation) == FORMATS[format_name].of_chunks


@each_format
@pytest.mark.parametrize("whole", [False, True])
def test_without_noise_and_learners_all_is_imitated_as_executed(format_name, whole, tmp_path):
    export = exported(format_name, tmp_path, labelled=False, whole=whole)
    episodes = of_export(format_name, tmp_path / "out")
    assert len(episodes) == export.episodes and export.imitation == []
    for step in (step for steps in episodes for step in steps):
        assert step.imitate and step.action.tobytes() == step.executed.tobytes()
    assert not any("whole" in name or "not_imitated" in name for name in names_below(tmp_path))
    if format_name == "robomimic":
        with h5py.File(tmp_path / "out") as file:
            assert set(file) == {"data", "mask"}


@pytest.mark.parametrize("format_name", [name for name, each in FORMATS.items() if each.of_chunks])
@pytest.mark.parametrize("chunk", [1, 2, 5])
def test_chunks_within_an_episode_are_chunks_that_train_imitates(format_name, chunk, tmp_path):
    pytest.importorskip("torch")
    from support.training_cases import BODIES

    from fleet_tools.baselines.policies.config import PolicyConfig
    from fleet_tools.baselines.training.demonstrations import Trajectories, blueprint_of
    from fleet_tools.dataset.samples import Samples

    exported(format_name, tmp_path)
    samples = Samples(tmp_path / "set", observations=["joint_position"])
    config = PolicyConfig(body=BODIES["mlp"], chunk=chunk)
    trajectories = Trajectories(samples, blueprint_of(config, samples))
    batch = trajectories.batch(np.arange(len(samples)))
    rows = {(each.attempt, each.step): k for k, each in enumerate(of_samples(tmp_path / "set"))}
    compared = 0
    for steps in of_export(format_name, tmp_path / "out"):
        for k, step in enumerate(steps):
            row = rows[step.attempt, step.step]
            for ahead, following in enumerate(steps[k : k + chunk]):
                assert batch.imitated[row, 0, ahead]
                assert batch.actions[row, 0, ahead].numpy().tobytes() == following.action.tobytes()
                compared += 1
    assert compared >= trajectories.steps  # each step at least by itself
    if chunk == 1:
        assert compared == trajectories.steps


def test_an_episode_ends_where_it_is_cut(tmp_path):
    exported("robomimic", tmp_path)
    with h5py.File(tmp_path / "out") as file:
        demos = list(file["data"].values())  # pyright: ignore
        steps = {k: len(episode["actions"]) for k, episode in file["whole"].items()}  # pyright: ignore
        for demo in demos:
            end = demo.attrs["first_step"] + demo.attrs["num_samples"]
            cut = end < steps[f"attempt_{demo.attrs['attempt']}"]
            # What follows is worth something, so that the episode is truncated and not done.
            assert demo["dones"][-1] == (not cut) and demo["truncations"][-1] == cut
            stored = file[f"whole/attempt_{demo.attrs['attempt']}/observations/joint_position"]
            after = stored[demo.attrs["first_step"] + 1 : end + 1]  # pyright: ignore
            np.testing.assert_array_equal(demo["next_obs/joint_position"], after)
        masks = {name: set(rows[()]) for name, rows in file["mask"].items()}  # pyright: ignore
        attempts = {
            name: {int(file[f"data/{each.decode()}"].attrs["attempt"]) for each in rows}  # pyright: ignore
            for name, rows in masks.items()
        }
    assert not attempts["train"] & attempts["valid"] and attempts["valid"]
    assert masks["train"] | masks["valid"] == masks["success"]


def test_lerobot_statistics_are_of_the_actions_to_imitate(tmp_path):
    for whole in (False, True):
        exported("lerobot", tmp_path / str(whole), whole=whole)
        stats = json.loads((tmp_path / str(whole) / "out/meta/stats.json").read_text())["action"]
        steps = of_samples(tmp_path / str(whole) / "set")
        actions = np.array([step.action for step in steps if step.imitate], np.float64)
        np.testing.assert_allclose(stats["mean"], actions.mean(axis=0))
        np.testing.assert_allclose(stats["std"], actions.std(axis=0), atol=1e-6)
        np.testing.assert_allclose(stats["max"], actions.max(axis=0))
        assert stats["count"] == [len(actions)]


def relabelled(folder: Path, info: dict) -> Dataset:
    """Writes a dataset of one episode, of three steps, with another `info`."""
    dataset = write(folder / "plain", Drawn([3], [True], 0))
    (record,) = dataset.manifest()
    with DatasetWriter(folder / "set", dataset.header) as writer:
        content = dataset.path(record).read_bytes()
        writer.add(record.model_copy(update={"info": info}), content)
    return Dataset(folder / "set")


def test_nothing_to_imitate_is_an_error_unless_left_whole(tmp_path, capsys):
    dataset = relabelled(tmp_path, {NOISE_STEPS: [0, 1, 2]})
    arguments = ["export", str(dataset.folder), "--to", "robomimic", "--output"]
    assert main([*arguments, str(tmp_path / "out")]) == 2
    assert "no step to imitate. --whole exports" in capsys.readouterr().err
    assert main([arguments[0], str(tmp_path / "plain"), *arguments[1:], str(tmp_path / "out")]) == 2
    assert "set holds no step to imitate" in capsys.readouterr().err
    assert main([*arguments, str(tmp_path / "out"), "--whole"]) == 0
    assert "3 of 3 steps are not to be imitated" in capsys.readouterr().out


def test_the_command_says_what_is_imitated(tmp_path):
    info = {NOISE_STEPS: [0], LEARNER_STEPS: [1], EXPERT_ACTIONS: [[0.5] * 6]}
    dataset = relabelled(tmp_path, info)
    text = as_text(export_dataset(dataset, "robomimic", tmp_path / "one"))
    first = text.partition("\n")[0]
    assert first.startswith("robomimic: 1 pieces of 1 episodes, median 2 steps, cut at")
    assert "`collect --policy expert`" in first and "--whole" in first
    assert "1 of 3 steps are not to be imitated: they are in the group `whole`" in text
    assert "1 of 3 actions are the expert's" in text and "`executed_actions`" in text


@each_format
@pytest.mark.parametrize(
    ("info", "message"),
    [({NOISE_STEPS: [7]}, "names the step 7"), ({LEARNER_STEPS: [0]}, "one action of the expert")],
)
def test_labels_that_lie_are_refused_and_nothing_is_left(format_name, info, message, tmp_path):
    dataset = relabelled(tmp_path, info)
    before = names_below(tmp_path)
    with pytest.raises(DatasetError, match=message):
        export_dataset(dataset, format_name, tmp_path / "out")
    assert names_below(tmp_path) == before
