"""Task files: the package's own, a user's own, and messages about wrong ones."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.task_files import whole_task

from fleet_tools.config.tasks import TaskConfig, load_task, task_names, task_path
from fleet_tools.config.values import load_yaml, parse
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.sim.catalog import find_model, model_names

BASKET = str(Path(__file__).parents[2] / "examples/basket/task.yaml")


@pytest.fixture(name="data")
def _data():
    return whole_task("hammer")


def with_change(data: dict[str, Any], location: str, value: Any) -> dict[str, Any]:
    """Returns data with the value at a location, such as `expert.before.0.speed`, replaced."""
    data = copy.deepcopy(data)
    *parents, last = (int(part) if part.isdigit() else part for part in location.split("."))
    inner: Any = data
    for part in parents:
        inner = inner[part]
    inner[last] = value
    return data


@pytest.mark.parametrize("name", task_names())
def test_every_task_of_the_package_loads(name):
    task = load_task(name)
    assert task.name == name
    assert parse(TaskConfig, json.loads(task.to_json()), "test") == task
    for kind in ("tool", "object"):
        family = getattr(task, f"{kind}_family")
        for model in model_names(kind, family):
            for keypoint in getattr(task.keypoints, kind):
                assert find_model(kind, family, model).keypoint(keypoint)


def test_a_users_own_task_is_given_by_path(tmp_path, data):
    data |= {"name": "own", "time_limit_s": 1.2, "assets": "models"}
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump(data))
    task = load_task(str(file))
    assert (task.name, task.max_episode_steps) == ("own", 7)
    assert task.assets == str((tmp_path / "models").resolve())


@pytest.mark.parametrize("name", [*task_names(), BASKET])
def test_what_a_file_leaves_out_and_what_it_says_in_full_are_one_task(name):
    task = load_yaml(TaskConfig, task_path(name))
    in_full = parse(TaskConfig, json.loads(task.to_json()), "test")  # every default is checked
    assert in_full == task and in_full.digest() == task.digest()


def test_a_task_file_says_only_what_is_its_own(data):
    own = ("tool_family", "object_family", "object_mount", "keypoints", "time_limit_s")
    actuation = {"constraints": data["expert"]["actuation"]["constraints"]}
    task = parse(
        TaskConfig,
        {key: data[key] for key in own}
        | {"name": "own", "description": "", "success": data["success"][:1]}
        | {"expert": {"actuation": actuation}},
        "test",
    )
    hammer = load_task("hammer")
    assert (task.action, task.cameras) == (hammer.action, hammer.cameras)
    assert task.randomization == hammer.randomization.model_copy(update={"joint_resistance": {}})
    assert len(task.expert.retreat) == 1


def test_defaults_are_not_shared(data):
    del data["randomization"]
    one, other = (parse(TaskConfig, data, "test") for _ in range(2))
    assert one.cameras is not other.cameras
    assert one.randomization.cameras == other.randomization.cameras


@pytest.mark.parametrize(
    "given, nearest", [("hamer", "Did you mean 'hammer'.*"), ("hamer.yaml", ""), ("", "")]
)
def test_an_unknown_task_is_refused_with_the_nearest_and_the_known_ones(given, nearest):
    message = rf"Unknown task: '{given}'.*{nearest}Known: .*hammer.*given by the path of its YAML"
    with pytest.raises(UnknownNameError, match=message):
        load_task(given)


@pytest.mark.parametrize("given", [5, None, ["hammer"]])
def test_a_task_is_given_as_a_string(given):
    with pytest.raises(ConfigError, match=r"Expected a task: one of .*hammer.*; given: "):
        load_task(given)


UNIFORM = {"uniform": [-1, 1]}
OVER_PLACE = {"type": "keypoint_over_place", "object": "head", "within_m": 0.01}


@pytest.mark.parametrize(
    "location, value, messages",
    [
        ("nmae", 1, ["'nmae'", "Did you mean 'name'?"]),
        ("object_mount", "glued", ["object_mount", "'fixed' or 'free'", "'glued'"]),
        ("time_limit_s", 0, ["time_limit_s", "greater than 0"]),
        ("control_rate_hz", 251, ["control_rate_hz", "less than or equal to 250"]),
        ("action.rotation_deg_s", -1, ["action.rotation_deg_s", "greater than 0"]),
        ("action.rotation_degs", 1, ["'rotation_degs'", "Did you mean 'rotation_deg_s'?"]),
        ("keypoints.tool", [], ["keypoints.tool", "at least 1"]),
        ("tool_parts.face.facing.axis", ["sid", "head"], ["facing.axis.0", "sid", "side"]),
        ("tool_parts.face.facing.front", "hed", ["facing.front", "hed", "head"]),
        ("tool_parts.face.facing.depth_m", 0.0, ["facing.depth_m", "greater than 0"]),
        ("randomization.initial_joints_rad", [{}], ["initial_joints_rad", "expected a number"]),
        ("randomization.tool_mas_scale", 1, ["Did you mean 'tool_mass_scale'?"]),
        ("randomization.object_pose.rpy", [0, 0, 0], ["Did you mean 'rpy_deg'?"]),
        ("randomization.tool_mass_scale", UNIFORM, ["tool_mass_scale"]),
        ("randomization.joint_resistance.slide", UNIFORM, ["joint_resistance"]),
        ("randomization.place", {}, ["randomization.place.distance_m", "Field required"]),
        ("randomization.place", {"distance_m": -0.1}, ["place.distance_m", "from 0 to 2 m"]),
        ("randomization.place", {"distance": 0.1}, ["Did you mean 'distance_m'?"]),
        ("randomization.table_texture", "wod", ["table_texture", "Did you mean 'wood'"]),
        ("randomization.tool_tint", [1, 1], ["tool_tint"]),
        ("randomization.cameras.wrist", {"rpy": 1}, ["Did you mean 'rpy_deg'?"]),
        ("gentle.table_work_J", 0, ["gentle.table_work_J", "greater than 0"]),
        ("gentle.object_peak", 9, ["gentle", "Did you mean 'object_peak_N'?"]),
        ("success", [], ["success", "at least 1"]),
        ("success.0.at_lest", 1, ["success.0", "'at_lest'", "Did you mean 'at_least'?"]),
        ("success.0.type", "joint_moved", ["success.0", "'joint_moved'", "'joint_displacement'"]),
        ("tool_parts.face.keypoints.0", "haed", ["tool_parts.face.keypoints.0", "head"]),
        ("tool_parts.face.within_m", 0, ["tool_parts.face.within_m"]),
        ("success.1.part", "fase", ["success.1.part", "'face'"]),
        ("success.0", OVER_PLACE, ["success.0.type", "the task has none", "place: {dist"]),
        ("success.1.change", OVER_PLACE, ["success.1.change.type", "the task has none"]),
        ("expert.actuation.expect", [OVER_PLACE], ["expert.actuation.expect.0", "has none"]),
        (
            "expert.before.0.motion",
            {"type": "over_place", "tool": "head", "object": "head"},
            ["expert.before.0.motion.type", "the task has none"],
        ),
        ("success.1.change.at_last", 1, ["success.1", "at_least"]),
        ("expert.actuation.constraints.0.tool", "haed", ["haed", "head"]),
        ("expert.before.0.speed", 1.5, ["expert.before.0.speed", "less than or equal to 1"]),
        ("expert.before.0.motion.by", 1, ["expert.before.0", "Did you mean 'by_m'?"]),
        (
            "expert.before.0.motion",
            {"type": "fly"},
            ["'fly'", "'translate', 'advance', 'over_place', 'rotate', 'stay'"],
        ),
        ("expert.actuation.constraints", [], ["constraints", "at least 1"]),
        ("expert.actuation.constraints.0.tolerance", 1, ["Did you mean 'tolerance_m'?"]),
        ("expert.actuation.constraints.0.type", "p2p", ["'p2p'", "'point_to_point'"]),
        ("expert.actuation.constraints.1.object", None, ["give either `object`"]),
    ],
)
def test_an_invalid_building_block_is_refused_with_its_location(data, location, value, messages):
    with pytest.raises(ConfigError) as error:
        parse(TaskConfig, with_change(data, location, value), "own.yaml")
    for part in ["own.yaml", *messages]:
        assert part in str(error.value)


@pytest.mark.parametrize(
    "location, value, messages",
    [
        ("success.2.object", "bas", ["success.2.object", "Did you mean 'base'"]),
        ("expert.after.3.motion.object", "bas", ["after.3.motion.object", "Did you mean 'base'"]),
        ("expert.after.3.motion.tool", "fac", ["after.3.motion.tool", "Did you mean 'face'"]),
        (
            "keypoints.object",
            ["base", "top", "place"],
            ["'place' is the name of the task's marked place"],
        ),
    ],
)
def test_a_place_is_used_with_keypoints_that_exist(location, value, messages):
    data = with_change(load_task("spatula").model_dump(mode="json"), location, value)
    with pytest.raises(ConfigError) as error:
        parse(TaskConfig, data, "own.yaml")
    assert all(part in str(error.value) for part in messages)


REQUIRED = [name for name, field in TaskConfig.model_fields.items() if field.is_required()]


@pytest.mark.parametrize("key", REQUIRED)
def test_a_missing_part_is_named(data, key):
    del data[key]
    with pytest.raises(ConfigError, match=f"{key}: Field required"):
        parse(TaskConfig, data, "own.yaml")
