"""Arms of an audit: what they read, and that an arm of the first frame sees nothing else."""

import json

import numpy as np
import pytest
import yaml

pytest.importorskip("torch")

import torch
from support.small_datasets import Drawn, a_header, write
from support.training_cases import LAYOUT, small_data

from fleet_tools.baselines import audit
from fleet_tools.baselines.policies.blueprint import Blueprint
from fleet_tools.baselines.policies.checkpoint import Checkpoint
from fleet_tools.baselines.policies.config import PolicyConfig, read_policy_config
from fleet_tools.baselines.policies.policy import NetworkPolicy
from fleet_tools.baselines.training import arms
from fleet_tools.baselines.training.demonstrations import Trajectories, blueprint_of
from fleet_tools.config.tasks import task_path
from fleet_tools.dataset.header import describe
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.errors import ConfigError, UnknownNameError

KEPT = PolicyConfig.model_validate(
    {"body": {"type": "mlp", "layers": 1, "width": 8}, "first_frame": ["object_keypoints"]}
)


def test_a_kept_entry_is_the_first_of_its_episode_in_training_and_in_action(tmp_path):
    samples = small_data(tmp_path / "data")
    blueprint = blueprint_of(KEPT, samples)
    free = blueprint.model_copy(update={"config": KEPT.model_copy(update={"first_frame": ()})})
    kept, seen = (list(Trajectories(samples, each).episodes()) for each in (blueprint, free))
    for one, other in zip(kept, seen, strict=True):
        assert torch.equal(one["joint_position"], other["joint_position"])
        first = other["object_keypoints"][:1].expand_as(other["object_keypoints"])
        assert torch.equal(one["object_keypoints"], first)
    checkpoint = Checkpoint(blueprint, blueprint.create(seed=0).state_dict())
    generator = np.random.default_rng(0)
    rows = [
        {
            name: generator.normal(size=shape).astype(dtype)
            for name, (shape, dtype) in LAYOUT.items()
        }
        for _ in range(4)
    ]
    policy = NetworkPolicy(checkpoint)
    actions = [policy.act(row) for row in rows]
    policy.reset()
    held = [{**row, "object_keypoints": rows[0]["object_keypoints"]} for row in rows]
    assert np.array_equal(actions, [policy.act(row) for row in held])
    policy.reset()  # another first frame gives other actions
    assert not np.array_equal(policy.act(rows[1]), actions[1])


def test_an_entry_that_is_not_read_cannot_be_kept(tmp_path):
    samples = small_data(tmp_path / "data")
    config = KEPT.model_copy(update={"reads": ("joint_position",)})
    with pytest.raises(UnknownNameError, match="entry that the policy reads"):
        Blueprint.of(config, samples.observation, samples.action)
    assert "first_frame" not in PolicyConfig().model_dump(mode="json")  # digests stay


def test_each_arm_lacks_one_entry_and_one_has_everything(tmp_path):
    layout = {**LAYOUT, "tool_keypoints": ((2, 3), "float32"), "point_cloud": ((5, 4), "float32")}
    write(tmp_path / "data", Drawn([3, 4], [True, True], 0), a_header(layout))
    made = arms.observation_arms([tmp_path / "data"], ["pointnet_mlp"])
    lacking = {arm.name: set(layout) - set(arm.observations or layout) for arm in made}
    assert lacking == {
        "everything": set(),
        "no object_keypoints": {"object_keypoints"},
        "no tool_keypoints": {"tool_keypoints"},
        "no point_cloud": {"point_cloud"},
        arms.SENSES: {"object_keypoints", "tool_keypoints", "point_cloud"},
        arms.FIRST_FRAME: set(),
    }
    assert len({arm.folder for arm in made}) == len(made)
    header = a_header(layout)
    for arm in made:  # each can be made, also where no cloud is left to encode
        config = read_policy_config(arm.architecture, arm.settings, arm.observations or None)
        assert (config.clouds is None) == ("point_cloud" in lacking[arm.name])
        Blueprint.of(config, header.observation, header.action)
    few = arms.observation_arms([tmp_path / "data"], ["pointnet_mlp"], ["tool_keypoints"])
    assert [arm for arm in made if arm.name in ("everything", "no tool_keypoints")] == few
    with pytest.raises(UnknownNameError, match="Did you mean 'tool_keypoints'"):
        arms.observation_arms([tmp_path / "data"], ["mlp"], ["tool_keypoint"])
    with pytest.raises(ConfigError, match="second dataset"):
        arms.observation_arms([tmp_path / "data"] * 2, ["mlp"])


def test_sources_of_demonstrations_are_compared_with_as_many_episodes(tmp_path):
    for name, count in (("noisy", 6), ("clean", 9)):
        small_data(tmp_path / name, steps=[3] * count)
    folders = [tmp_path / "noisy", tmp_path / "clean"]
    made = arms.demonstration_arms(folders, ["mlp"], [2, 5])
    sizes = {"noisy": 6, "clean": 9}
    learned = [
        (
            arm.dataset.name,
            sizes[arm.dataset.name] - round(arm.validation_fraction * sizes[arm.dataset.name]),
        )
        for arm in made
    ]
    assert learned == [("noisy", 2), ("clean", 2), ("noisy", 5), ("clean", 5)]
    with pytest.raises(ConfigError, match="has 6 successful episodes"):
        arms.demonstration_arms(folders, ["mlp"], [6])


def test_rows_compare_with_the_first_arm_of_the_same_scenes(tmp_path):
    arm = arms.Arm("knife", "mlp", "no tool_keypoints", tmp_path)
    all_seen = {"episodes": 40, "solved": [*range(30)]}
    row = arms.table_row(arm, {"episodes": 40, "solved": [*range(3)]}, all_seen)
    assert (row["successes"], row["of_first"]) == (3, 0.1)
    assert row["difference"] == pytest.approx(-27 / 40) and row["difference_interval"][1] < 0
    same = arms.table_row(arm, all_seen, all_seen)
    assert same["difference"] == 0 and same["difference_interval"][0] < 0
    none = arms.table_row(arm, all_seen, {"episodes": 40, "solved": []})
    assert none["of_first"] is None and "difference" not in arms.table_row(arm, all_seen, None)


def test_bad_input_is_refused_before_anything_is_trained(tmp_path, capsys):
    data = small_data(tmp_path / "data").episodes[0].folder
    out = tmp_path / "out"
    options = ["--dataset", str(data), "--output", str(out)]
    for more, message in (
        (["--architecture", "elmn"], "Did you mean 'elman'"),
        (["--set", "body.wdth=8"], "Did you mean 'width'"),
        (["--dataset", "absent"], "absent"),
    ):
        assert audit.main(["observations", *options, *more]) == 2
        assert message in capsys.readouterr().err
    assert not out.exists()


def test_an_audit_trains_and_evaluates_each_arm_and_goes_on_where_it_was_stopped(tmp_path, capsys):
    short = yaml.safe_load(task_path("hammer").read_text()) | {"name": "short", "time_limit_s": 0.5}
    (tmp_path / "short.yaml").write_text(yaml.safe_dump(short))
    spec = EnvSpec.of(str(tmp_path / "short.yaml"))
    header = describe(spec.make(), spec, policy="expert", seed=7, keep_failures=False)
    write(tmp_path / "data", Drawn([2] * 4, [True] * 4, 0), header)
    out = tmp_path / "out"
    command = [
        *("observations", "--dataset", str(tmp_path / "data"), "--output", str(out), "--json"),
        *("--architecture", "mlp", "--set", "body.layers=1", "--set", "body.width=8"),
        *("--epochs", "1", "--scenes", "1", "--quiet"),
    ]
    assert audit.main(command) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["arm"] for row in found["rows"]] == [
        *(arms.EVERYTHING, "no tool_keypoints", "no object_keypoints"),
        *(arms.SENSES, arms.FIRST_FRAME),
    ]
    assert found["missing"] == 0 and json.loads((out / audit.REPORT).read_text())["rows"]
    files = {path: path.read_bytes() for path in out.rglob("metrics.jsonl")}  # with wall times
    (out / audit.REPORT).unlink()  # as after a kill
    assert audit.main(command) == 0
    assert json.loads(capsys.readouterr().out) == found
    assert {path: path.read_bytes() for path in files} == files and len(files) == 5
    assert audit.main([*command, "--epochs", "2"]) == 2  # another audit needs another folder
    assert "epochs" in capsys.readouterr().err
