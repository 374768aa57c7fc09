"""Levels: each is a protocol of its own, drawn by seeds, and none changes another's results."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support.evaluated import FIRST, SMALL

from fleet_tools.config.distributions import bounds
from fleet_tools.config.tasks import TaskConfig, load_task
from fleet_tools.config.values import parse
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.evaluation.config import EvaluationConfig
from fleet_tools.evaluation.disturbances import Disturbances, disturbed_scene
from fleet_tools.evaluation.levels import LevelsFile
from fleet_tools.evaluation.protocol import NOMINAL, Protocol, protocol_digest, task_digests
from fleet_tools.evaluation.protocol_file import load_levels, load_protocol
from fleet_tools.evaluation.run import describe
from fleet_tools.robot.arm import load_robot
from fleet_tools.sim.scene import Scene, sample_scene

LEVELS = load_levels("v3")
TASKS = {name: load_robot().fill(load_task(name)) for name in LEVELS[NOMINAL].tasks}
SEEDS = st.integers(0, 2**53)
DATA = yaml.safe_load("""
name: own
version: 1
tasks: [hammer, spatula]
levels:
  nominal: {protocol: v2}
  shaken:
    description: Pushes.
    splits: {train: {scenes: 2, first_seed: 4503599627370500}}
    disturbances:
      object_mass_scale: {uniform: [2, 3]}
      joint_resistance: {slide: 90, turn: 5}
      hand_pushes: [{start_s: 1, duration_s: 0.5, horizontal_N: {uniform: [10, 20]}}]
      object_pushes: [{start_s: {uniform: [0, 1]}, duration_s: 0.2, horizontal_N_per_kg: 3}]
""")
SHAKEN: dict[str, Any] = DATA["levels"]["shaken"]["disturbances"]


def digest(protocol: Protocol) -> str:
    return protocol_digest(protocol, task_digests(protocol))


def scenes(protocol: Protocol, per_split: int = 4) -> Iterator[tuple[TaskConfig, Scene]]:
    for trial in protocol.trials(scenes=per_split):
        yield TASKS[trial.task], protocol.scene(TASKS[trial.task], trial)


# --- The package's levels -------------------------------------------------------------------


def test_nominal_is_the_protocol_v2_with_its_digest_and_its_scenes():
    assert LEVELS[NOMINAL] == load_protocol("v2")
    assert digest(LEVELS[NOMINAL]) == "c687639046a4e943"
    for trial in LEVELS[NOMINAL].trials(scenes=3):
        scene = LEVELS[NOMINAL].scene(TASKS[trial.task], trial)
        assert scene == sample_scene(TASKS[trial.task], trial.seed, split=trial.split)


def test_levels_have_digests_and_scenes_of_their_own():
    assert len({digest(each) for each in LEVELS.values()}) == len(LEVELS)
    seeds = [{trial.seed for trial in each.trials("hammer")} for each in LEVELS.values()]
    assert sum(map(len, seeds)) == len(set().union(*seeds)) == 120 + 60 + 60 + 60 + 80
    assert [each.level_name for each in LEVELS.values()] == [*LEVELS]


def test_disturbed_scenes_reach_beyond_training_and_stay_in_the_ranges_of_the_file():
    protocol = LEVELS["disturbed"]
    disturbances = protocol.disturbances
    assert disturbances is not None
    drawn = [*scenes(protocol, per_split=15)]
    for name in ("tool_mass_scale", "object_mass_scale", "tool_friction_scale"):
        low, high = bounds(getattr(disturbances, name))
        values = [getattr(scene, name) for _, scene in drawn]
        trained = bounds(getattr(TASKS["hammer"].randomization, name))
        assert low <= min(values) < trained[0] and trained[1] < max(values) <= high
    for task, scene in drawn:
        for joint, value in scene.joint_resistance.items():
            low, high = bounds(disturbances.joint_resistance[joint])
            trained = bounds(task.randomization.joint_resistance[joint])
            assert low <= value <= high and low < trained[0] and trained[1] < high
        assert len(scene.hand_forces) == len(disturbances.hand_pushes)
        free = task.object_mount == "free"
        assert len(scene.object_forces) == (len(disturbances.object_pushes) if free else 0)
        for force, push in zip(scene.hand_forces, disturbances.hand_pushes, strict=True):
            low, high = bounds(push.horizontal_N)
            assert low - 1e-5 <= np.hypot(*force.force_N[:2]) <= high + 1e-5
            assert bounds(push.start_s)[0] <= force.start_s <= bounds(push.start_s)[1]


def test_the_rest_of_a_disturbed_scene_is_drawn_as_in_training():
    wider = {name for name in Disturbances.model_fields if not name.endswith("pushes")}
    changed = wider | {"hand_forces", "object_forces"}
    protocol = LEVELS["disturbed"]
    for trial in protocol.trials(scenes=2):
        task = TASKS[trial.task]
        plain = sample_scene(task, trial.seed, split=trial.split).model_dump(exclude=changed)
        assert protocol.scene(task, trial).model_dump(exclude=changed) == plain


# --- Drawing --------------------------------------------------------------------------------


@settings(max_examples=30)
@given(SEEDS, st.sampled_from(["hammer", "spatula"]))
def test_a_scene_is_a_function_of_its_seed_and_survives_json(seed, name):
    disturbances = parse(Disturbances, SHAKEN, "it")
    again = parse(Disturbances, disturbances.model_dump(mode="json"), "it")

    def draw(of: Disturbances) -> Scene:
        return disturbed_scene(TASKS[name], seed, of, split="all", randomization="on")

    scene = draw(disturbances)
    assert draw(again) == scene == Scene.model_validate_json(scene.to_json())
    assert draw(again).digest() == scene.digest()
    assert 2 <= scene.object_mass_scale <= 3
    assert scene.joint_resistance == ({"slide": 90.0} if name == "hammer" else {})
    assert len(scene.object_forces) == (name == "spatula")
    for force in scene.object_forces:
        assert np.hypot(*force.force_N_per_kg[:2]) == pytest.approx(3, abs=1e-5)
        assert force.force_N_per_kg[2] == 0


def test_a_push_that_is_added_leaves_the_others_as_they_were():
    more = {**SHAKEN, "hand_pushes": SHAKEN["hand_pushes"] * 2, "object_friction_scale": 3}
    task = TASKS["spatula"]
    one, two = (
        disturbed_scene(task, 5, parse(Disturbances, d, "it"), split="all", randomization="on")
        for d in (SHAKEN, more)
    )
    assert one.hand_forces == two.hand_forces[:1] != two.hand_forces[1:]
    assert one.object_forces == two.object_forces


# --- Several objects ------------------------------------------------------------------------


# --- Files ----------------------------------------------------------------------------------


def test_a_level_that_is_added_leaves_the_digests_of_the_others(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(DATA, sort_keys=False))
    before = {name: digest(each) for name, each in load_levels(str(path)).items()}
    levels = {**DATA["levels"], "more": {**DATA["levels"]["shaken"], "splits": {
        "train": {"scenes": 1, "first_seed": FIRST + 500}}}}  # fmt: skip
    path.write_text(yaml.safe_dump({**DATA, "levels": levels}, sort_keys=False))
    after = {name: digest(each) for name, each in load_levels(str(path)).items()}
    assert before == {name: after[name] for name in before} and [*after] == [*before, "more"]
    assert load_protocol(str(path)).title == "tool-use v2"
    assert load_protocol(str(path), "shaken").title == "own v1, shaken"
    with pytest.raises(UnknownNameError, match="Did you mean 'shaken'"):
        load_protocol(str(path), "shake")


def test_a_protocol_without_levels_has_one():
    assert [*load_levels("v2")] == [NOMINAL]
    with pytest.raises(UnknownNameError, match="level"):
        load_protocol("v2", "disturbed")
    dumped = SMALL.model_dump(mode="json")
    assert not {"level", "sensors", "disturbances", "next_objects"} & {*dumped}


def change(path: tuple, value: Any) -> dict[str, Any]:
    data = yaml.safe_load(yaml.safe_dump(DATA, sort_keys=False))
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (change(("levels", "nominal"), {"protocol": "v3"}), "protocol of the level 'nominal'"),
        (change(("levels", "shaken", "splits", "train", "first_seed"), 7), "for training"),
        (change(("levels", "other"), DATA["levels"]["shaken"]), "shares the seed"),
        (change(("levels", "shaken", "sensors"), "sonar"), "sensors"),
        (change(("levels", "shaken", "disturbance"), {}), "Did you mean 'disturbances'"),
        (
            change(("levels", "shaken", "disturbances", "object_mass_scale"), 1e9),
            "must lie between 0.01 and 100",
        ),
        (
            change(("levels", "shaken", "disturbances", "hand_pushes", 0, "horizontal_N"), -1),
            "must lie between 0 and 500",
        ),
        (change(("levels",), {}), "levels"),
        (change(("levels", "shaken", "tasks"), ["wrench"]), "none of"),
        (
            change(("levels", "shaken", "next_objects"), {"least_distance_m": 0.2, "y_m": 0}),
            "no push on one",
        ),
        (
            change(("levels", "shaken", "next_objects"), {"least_distance_m": 0, "y_m": 50}),
            "must lie between -10 and 10 m",
        ),
    ],
)
def test_a_level_that_does_not_fit_is_refused(tmp_path, data, message):
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(data))
    with pytest.raises((ConfigError, UnknownNameError), match=message):
        load_levels(str(path))


def test_the_file_survives_a_round_trip():
    file = parse(LevelsFile, DATA, "it")
    assert (
        parse(LevelsFile, yaml.safe_load(yaml.safe_dump(file.model_dump(mode="json"))), "it")
        == file
    )


# --- Listed scenes --------------------------------------------------------------------------

LISTED = {"hammer": [FIRST + 7, FIRST + 3], "spatula": [FIRST + 3, FIRST + 9]}


def with_splits(**splits: Any) -> dict[str, Any]:
    return change(("levels", "shaken", "splits"), splits)


def test_listed_scenes_are_those_of_each_task_in_their_order(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(with_splits(train={"listed": LISTED}), sort_keys=False))
    protocol = load_protocol(str(path), "shaken")
    assert parse(Protocol, protocol.model_dump(mode="json"), "it") == protocol
    for task, seeds in LISTED.items():
        trials = protocol.trials(task)
        assert [trial.seed for trial in trials] == seeds
        assert [trial.index for trial in trials] == [0, 1]
        for trial in trials:
            assert protocol.scene(TASKS[task], trial).seed == trial.seed
    assert len(protocol.trials(scenes=1)) == 2


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ({"train": {"listed": {}}}, "listed"),
        ({"train": {"listed": {"hammer": [FIRST]}}}, "task with listed scenes: 'spatula'"),
        ({"train": {"listed": {"hammer": [FIRST], "spatula": []}}}, "as many seeds"),
        ({"train": {"listed": {"hammer": [FIRST, FIRST], "spatula": [1, 2]}}}, "for training"),
        (
            {"train": {"listed": {"hammer": [FIRST, FIRST], "spatula": [FIRST, FIRST + 1]}}},
            "all different",
        ),
        (
            {"train": {"listed": LISTED}, "unseen_tools": {"listed": LISTED}},
            "'train' and 'unseen_tools' share seeds",
        ),
        (
            {"train": {"listed": LISTED}, "unseen_tools": {"scenes": 4, "first_seed": FIRST}},
            "share seeds",
        ),
    ],
)
def test_listed_scenes_that_do_not_fit_are_refused(tmp_path, splits, message):
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(with_splits(**splits)))
    with pytest.raises((ConfigError, UnknownNameError), match=message):
        load_levels(str(path))


# --- Evaluations ----------------------------------------------------------------------------


def test_a_level_of_cameras_decides_which_and_a_policy_without_any_is_refused():
    seeing = EvaluationConfig(policy="zero", tool="hammer", level="sensors", obs_mode="point_cloud")
    assert describe(seeing)[1].policy.sensors == "active_stereo"
    for others in ({"sensors": "ideal"}, {"sensors": "structured_light"}):
        with pytest.raises(ConfigError, match="choose another level"):
            describe(EvaluationConfig(**{**seeing.model_dump(), **others}))
    with pytest.raises(ConfigError, match="has no cameras"):
        describe(EvaluationConfig(policy="zero", tool="hammer", level="sensors"))
    free = EvaluationConfig(**{**seeing.model_dump(), "level": "disturbed", "sensors": "ideal"})
    assert describe(free)[1].policy.sensors == "ideal"
