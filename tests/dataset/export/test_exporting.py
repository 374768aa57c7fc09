"""All formats: counts, errors, unchanged files, and what a learner of each imitates."""

import json
import re
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
from support.exported import names_below, successes
from support.labelled import of_export, of_samples, others_of, random_dataset
from support.small_datasets import OBSERVATION, Drawn, a_header, write

from fleet_tools.dataset import Dataset, DatasetWriter
from fleet_tools.dataset.__main__ import main
from fleet_tools.dataset.export.exporting import FORMATS, Export, as_text, export_dataset
from fleet_tools.dataset.header import Header
from fleet_tools.errors import DatasetError, UnknownNameError
from fleet_tools.registration import TOOL_USE
from fleet_tools.rollouts.episode import EXPERT_ACTIONS, LEARNER_STEPS, NOISE_STEPS
from fleet_tools.utils import progress

each_format = pytest.mark.parametrize("format_name", list(FORMATS))
"""Formats of whole episodes; that of clouds alone is in `test_formats`."""


@each_format
def test_counts_bytes_and_omissions(format_name, collected, tmp_path):
    dataset = collected("state")
    export = export_dataset(dataset, format_name, tmp_path / "out")
    assert export.episodes == 2
    assert export.steps == sum(map(len, successes(dataset)))
    files = [path for path in [tmp_path / "out", *tmp_path.rglob("*")] if path.is_file()]
    assert export.bytes == sum(path.stat().st_size for path in set(files))
    for omission in (
        "1 failed episodes (--all exports them, too)",
        "1 episodes without a single step",
        "1 attempts that only the manifest lists",
    ):
        assert omission in export.left_out
    complete = export_dataset(dataset, format_name, tmp_path / "complete", failures=True)
    assert complete.episodes == 3
    assert not any("--all" in omission for omission in complete.left_out)


@each_format
def test_existing_output_is_left_unchanged(format_name, collected, tmp_path):
    output = tmp_path / "out"
    export_dataset(collected("state"), format_name, output)
    before = names_below(tmp_path)
    with pytest.raises(DatasetError, match=r"exists already\. Give another --output"):
        export_dataset(collected("state"), format_name, output)
    assert names_below(tmp_path) == before


@each_format
def test_a_damaged_episode_is_named_and_nothing_is_left_behind(format_name, collected, tmp_path):
    shutil.copytree(collected("state").folder, tmp_path / "set")
    dataset = Dataset(tmp_path / "set")
    last = dataset.path(dataset.stored()[-1])
    last.write_bytes(last.read_bytes()[:-8])
    before = names_below(tmp_path)
    with pytest.raises(DatasetError, match=r"episode_000004\.hdf5 is damaged(.|\n)*makes it again"):
        export_dataset(dataset, format_name, tmp_path / "new" / "out")
    last.unlink()
    with pytest.raises(DatasetError, match=r"episode_000004\.hdf5 is missing"):
        export_dataset(dataset, format_name, tmp_path / "new" / "out")
    assert names_below(tmp_path) == [name for name in before if "000004" not in name]


def test_an_unknown_format_names_the_nearest_and_nothing_to_export_is_an_error(collected, tmp_path):
    with pytest.raises(UnknownNameError, match="Did you mean 'minari'"):
        export_dataset(collected("state"), "minary", tmp_path / "out")
    with DatasetWriter(tmp_path / "set", collected("state").header) as writer:
        writer.add(collected("state").manifest()[2])
    with pytest.raises(DatasetError, match="no episode to export"):
        export_dataset(Dataset(tmp_path / "set"), "lerobot")
    assert names_below(tmp_path / "set") == ["dataset.json", "episodes", "manifest.jsonl"]


def test_the_command_reports_its_export(collected, tmp_path, capsys):
    folder, output = str(collected("state").folder), tmp_path / "out"
    arguments = ["export", folder, "--to", "minari", "--output"]
    assert main([*arguments, str(output)]) == 0
    text = capsys.readouterr().out
    assert "minari: 2 episodes" in text
    assert "left out: " in text
    assert f"a view of {folder}, whose files it needs" in text
    assert f"MINARI_DATASETS_PATH={output}" in text
    assert main([*arguments, str(tmp_path / "complete"), "--all", "--json"]) == 0
    export = json.loads(capsys.readouterr().out)
    assert (export["format"], export["episodes"]) == ("minari", 3)
    assert export["view_of"] == [folder]
    assert Path(export["output"]).is_dir()
    assert main([*arguments, str(tmp_path / "silent"), "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_an_export_says_how_far_it_is_where_no_terminal_is(
    collected, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(progress, "LINE_SECONDS", 1e-3)
    arguments = ["export", str(collected("state").folder), "--to", "lerobot", "--output"]
    assert main([*arguments, str(tmp_path / "told")]) == 0
    assert re.search(r"episode 2/2 after 00:\d\d", capsys.readouterr().err)
    assert main([*arguments, str(tmp_path / "silent"), "--quiet"]) == 0
    assert capsys.readouterr().err == ""


# --- Several datasets ---------------------------------------------------------------------------


def changed(header: Header, **fields: Any) -> Header:
    """Returns a header with other fields of the action, the task or the environment's kwargs."""
    action = header.action.model_copy(update=fields.pop("action", {}))
    spec = header.env_spec
    spec = spec.model_copy(update={"kwargs": {**spec.kwargs, **fields.pop("kwargs", {})}})
    return header.model_copy(update={"action": action, "env_spec": spec, **fields})


@each_format
@pytest.mark.parametrize("whole", [False, True])
def test_datasets_together_are_read_as_samples_reads_them(format_name, whole, tmp_path):
    datasets = [random_dataset(tmp_path / name, seed) for seed, name in enumerate("abc")]
    export = export_dataset(datasets, format_name, tmp_path / "out", whole=whole)
    read = [step.content() for steps in of_export(format_name, tmp_path / "out") for step in steps]
    expected = of_samples(*(tmp_path / name for name in "abc"))
    assert read == [step.content() for step in expected if whole or step.imitate]
    assert export.episodes == 9 and export.pieces == len(of_export(format_name, tmp_path / "out"))
    if format_name == "robomimic":
        with h5py.File(tmp_path / "out") as file:
            for mask in ("train", "valid"):  # neither lacks a dataset
                demos = [file[f"data/{name.decode()}"] for name in file[f"mask/{mask}"][()]]  # pyright: ignore
                assert {str(demo.attrs["dataset"]) for demo in demos} == {"0", "1", "2"}
            folders = [each["folder"] for each in json.loads(file["data"].attrs["fleet_tools"])]  # pyright: ignore
        assert folders == ["a", "b", "c"]


def test_tasks_of_several_datasets_are_told_apart(tmp_path):
    headers = [a_header(), a_header(), changed(a_header(), task=TOOL_USE.read_task("knife"))]
    datasets = [
        write(tmp_path / f"set{k}", Drawn([2, 3], [True] * 2, k), header)
        for k, header in enumerate(headers)
    ]
    export_dataset(datasets, "lerobot", tmp_path / "out")
    tasks = pq.read_table(tmp_path / "out/meta/tasks.parquet").to_pydict()
    texts = [header.task_description() for header in headers]
    named = dict(zip(tasks["__index_level_0__"], tasks["task_index"], strict=True))
    assert named == {texts[0]: 0, texts[2]: 1}
    rows = pq.read_table(tmp_path / "out/meta/episodes").to_pylist()
    steps = pq.read_table(tmp_path / "out/data").to_pydict()
    for row in rows:
        assert row["tasks"] == [texts[row["dataset"]]]
        here = slice(row["dataset_from_index"], row["dataset_to_index"])
        assert set(steps["task_index"][here]) == {named[row["tasks"][0]]}
    for format_name in ("minari", "robomimic"):
        with pytest.raises(DatasetError, match=r"fit into lerobot(.|\n)*task is 'knife"):
            export_dataset(datasets, format_name, tmp_path / format_name)
        assert not (tmp_path / format_name).exists()


MISFITS = {
    "the rate_hz of 'action' is 7.5, not 6.0": {"action": {"rate_hz": 7.5}},
    "the unit of 'action' is 'mm, deg', not 'm, rad'": {"action": {"unit": "mm, deg"}},
    "the robot is 'ur5e', not 'panda'": {"kwargs": {"robot": "ur5e"}},
    "obs_mode is 'rgbd', not 'state'": {"kwargs": {"obs_mode": "rgbd"}},
    "there is 'more'": {
        "observation": a_header().observation | {"more": a_header().observation["ticks"]}
    },
    "the shape of 'wrist_rgb' is (8, 6, 3), not (4, 3, 3)": {
        "observation": a_header({**OBSERVATION, "wrist_rgb": ((8, 6, 3), "uint8")}).observation
    },
}


@each_format
def test_datasets_that_do_not_fit_are_refused_with_all_that_differs(format_name, tmp_path):
    first = write(tmp_path / "set", Drawn([2], [True], 0))
    others = [
        write(tmp_path / f"other{k}", Drawn([2], [True], 0), changed(a_header(), **fields))
        for k, fields in enumerate(MISFITS.values())
    ]
    before = names_below(tmp_path)
    with pytest.raises(DatasetError) as caught:
        export_dataset([first, *others], format_name, tmp_path / "out")
    for other, misfit in zip(others, MISFITS, strict=True):
        (line,) = (line for line in str(caught.value).splitlines() if f"{other.folder}:" in line)
        assert misfit in line
    assert names_below(tmp_path) == before


def test_what_cannot_be_exported_together_is_refused_and_nothing_is_left(tmp_path, capsys):
    one, two = (random_dataset(tmp_path / name) for name in ("one", "two"))
    with DatasetWriter(tmp_path / "empty", one.header):
        pass
    arguments = ["export", str(one.folder), str(two.folder), "--to", "robomimic"]
    before = names_below(tmp_path)
    assert main(arguments) == 2
    assert "Give --output" in capsys.readouterr().err
    arguments += ["--output", str(tmp_path / "out")]
    with pytest.raises(DatasetError, match=r"two is given twice"):
        export_dataset([one, two, Dataset(tmp_path / "empty/../two")], "lerobot", tmp_path / "out")
    with pytest.raises(DatasetError, match=r"empty holds no episode to export"):
        export_dataset([one, Dataset(tmp_path / "empty")], "lerobot", tmp_path / "out")
    assert names_below(tmp_path) == before


def exported(format_name: str, folder: Path, labelled: bool = True, whole: bool = False) -> Export:
    """Exports random numbers to "out"."""
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
    assert "no steps to imitate. --whole exports" in capsys.readouterr().err
    assert main([arguments[0], str(tmp_path / "plain"), *arguments[1:], str(tmp_path / "out")]) == 2
    assert "set has no steps to imitate" in capsys.readouterr().err
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
    [({NOISE_STEPS: [7]}, "names step 7"), ({LEARNER_STEPS: [0]}, "one action of the expert")],
)
def test_labels_that_lie_are_refused_and_nothing_is_left(format_name, info, message, tmp_path):
    dataset = relabelled(tmp_path, info)
    before = names_below(tmp_path)
    with pytest.raises(DatasetError, match=message):
        export_dataset(dataset, format_name, tmp_path / "out")
    assert names_below(tmp_path) == before
