"""Levels: the nominal scenes with one thing changed, each a protocol with a digest of its own."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from level_strengths import validation_protocol
from support.evaluated import SMALL
from support.processes import ROOT

from fleet_tools.config.distributions import Choice, NameChoice, OneOf, Uniform, bounds
from fleet_tools.config.randomization import Randomization
from fleet_tools.config.tasks import load_task, task_names
from fleet_tools.config.values import load_yaml, parse
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.evaluation.changed_ranges import Outside, changed_task
from fleet_tools.evaluation.config import EvaluationConfig
from fleet_tools.evaluation.level_scenes import SceneRules
from fleet_tools.evaluation.levels import LevelsFile
from fleet_tools.evaluation.protocol import NOMINAL, Protocol, protocol_digest, task_digests
from fleet_tools.evaluation.protocol_file import load_levels, load_protocol
from fleet_tools.evaluation.run import describe
from fleet_tools.robot.arm import load_robot
from fleet_tools.sim.scene import Scene, sample_scene

LEVELS = load_levels("v1")
TASKS = {name: load_robot().fill(load_task(name)) for name in task_names()}
SEEDS = st.integers(0, 2**53)
CHANGED = {
    NOMINAL: set(),
    "cameras": {"depth_error_scale"},
    "pushes": {"hand_forces", "object_forces"},
    "physics": {
        *("tool_mass_scale", "object_mass_scale", "tool_friction_scale"),
        *("object_friction_scale", "joint_resistance"),
    },
    "poses": {"tool_in_hand", "object_pose"},
    "long": {"next_objects", "place"},
}
"""Quantities of a scene that a level of the package may change."""
DATA = yaml.safe_load("""
name: own
version: 1
description: It.
tasks: [hammer, spatula]
splits: {train: {scenes: 3, first_seed: 4503599627370500}}
levels:
  shaken:
    description: Pushes.
    scenes: 2
    hand_pushes: [{start_s: 1, duration_s: 0.5, horizontal_N: {uniform: [10, 20]}}]
    object_pushes: [{start_s: {uniform: [0, 1]}, duration_s: 0.2, horizontal_N_per_kg: 3}]
  heavy:
    description: Masses.
    scenes: 1
    ranges: {object_mass_scale: {uniform: [2, 3]}, joint_resistance: {above: [0.5, 1]}}
""")
PUSHED = {name: DATA["levels"]["shaken"][name] for name in ("hand_pushes", "object_pushes")}


def digest(protocol: Protocol) -> str:
    return protocol_digest(protocol, task_digests(protocol))


def numbers(drawn: Any, own: Any, place: str = "") -> Iterator[tuple[str, float, Any]]:
    """Yields the place, the number, and the task's distribution, of all that is drawn."""
    match own:
        case None | str() | NameChoice():
            return
        case int() | float() | Uniform() | Choice() | OneOf():
            yield place, drawn, own
        case tuple():
            for k, (value, inner) in enumerate(zip(drawn, own, strict=True)):
                yield from numbers(value, inner, f"{place}.{k}")
        case _:
            for name, inner in dict(own).items():
                value = drawn[name] if isinstance(drawn, dict) else getattr(drawn, name)
                yield from numbers(value, inner, f"{place}.{name}")


def is_outside(number: float, own: Any, place: str) -> bool:
    low, high = bounds(own)
    turns = (0, -360, 360) if "_deg" in place else (0,)
    return not any(low <= number + turn <= high for turn in turns)


# --- The package's levels -------------------------------------------------------------------


def test_nominal_scenes_are_drawn_as_in_training_in_every_task_of_the_package():
    nominal = LEVELS[NOMINAL]
    assert {*nominal.tasks} == {*task_names()} and nominal.title == "tool-use v1"
    assert {len(nominal.trials(task)) for task in nominal.tasks} == {80}
    for trial in nominal.trials(scenes=2):
        scene = nominal.scene(TASKS[trial.task], trial)
        assert scene == sample_scene(TASKS[trial.task], trial.seed, split=trial.split)


@pytest.mark.parametrize("level", [*CHANGED])
def test_a_level_has_scenes_of_the_nominal_one_and_changes_its_own_quantities_alone(level):
    protocol, nominal = LEVELS[level], LEVELS[NOMINAL]
    assert [*LEVELS] == [*CHANGED] and protocol.level_name == level
    plain = {trial.key: trial for trial in nominal.trials()}
    for trial in protocol.trials():
        assert trial == plain[trial.key]  # the same seed, too
    scenes = 80 if level == NOMINAL else 40
    assert {len(protocol.trials(task)) for task in nominal.tasks} == {scenes}
    for trial in protocol.trials(scenes=2):
        task = TASKS[trial.task]
        one, other = (of.scene(task, trial).model_dump() for of in (nominal, protocol))
        differing = {name for name in {**one, **other} if one.get(name) != other.get(name)}
        assert differing <= CHANGED[level]
        assert differing or level == NOMINAL


@pytest.mark.parametrize("level", [*CHANGED])
def test_changed_numbers_are_outside_the_ranges_of_training_and_all_others_the_nominal_ones(level):
    changed = set()
    for trial in LEVELS[level].trials(scenes=4):
        task = TASKS[trial.task]
        plain, harder = (LEVELS[name].scene(task, trial) for name in (NOMINAL, level))
        for group in Randomization.model_fields:
            own = getattr(task.randomization, group)
            pairs = zip(
                numbers(getattr(plain, group), own, group),
                numbers(getattr(harder, group), own, group),
                strict=True,
            )
            for (place, one, _), (_, other, distribution) in pairs:
                if one != other:
                    assert is_outside(other, distribution, place), (trial, place)
                    changed.add(group)
    assert changed == CHANGED[level] & {*Randomization.model_fields}


def test_levels_have_digests_of_their_own():
    assert len({digest(each) for each in LEVELS.values()}) == len(LEVELS)


# --- Drawing --------------------------------------------------------------------------------

MARGINS = st.tuples(st.floats(0.01, 0.4), st.floats(0.01, 0.4)).map(
    lambda pair: (min(pair), max(pair) + 0.01)
)
OUTSIDE = st.builds(Outside, below=MARGINS, above=MARGINS)
GROUPS = ("tool_mass_scale", "object_friction_scale", "tool_in_hand", "object_pose", "table_tint")


@given(
    SEEDS,
    st.sampled_from(sorted(TASKS)),
    st.dictionaries(st.sampled_from(GROUPS), OUTSIDE, min_size=1),
)
def test_outside_of_a_group_is_outside_in_each_of_its_numbers_and_in_no_other(seed, name, ranges):
    task, rules = TASKS[name], SceneRules(ranges=ranges)
    plain, scene = sample_scene(task, seed, split="all"), rules.draw(task, seed, "all")
    again = parse(SceneRules, rules.model_dump(mode="json"), "it").draw(task, seed, "all")
    assert again == scene == Scene.model_validate_json(scene.to_json())
    for group in Randomization.model_fields:
        own = getattr(task.randomization, group)
        for place, number, drawn in numbers(getattr(scene, group), own, group):
            low, high = bounds(drawn)
            free = low < high and not ("_deg" in place and high - low >= 360)
            if group not in ranges or not free:
                continue
            assert is_outside(number, drawn, place)
            farthest = max(ranges[group].below[1], ranges[group].above[1]) * (high - low) + 1e-9
            assert low - farthest <= number <= high + farthest
        if group not in ranges:
            assert getattr(scene, group) == getattr(plain, group)


@given(st.lists(st.floats(0.01, 20), min_size=4, max_size=4, unique=True))
def test_a_range_is_accepted_just_where_it_shares_no_number_with_the_tasks_own(ends):
    (low, high), (first, last) = sorted(ends[:2]), sorted(ends[2:])
    own = {"tool_mass_scale": Uniform(uniform=(low, high))}
    drawn = TASKS["hammer"].randomization.model_copy(update=own)
    task = TASKS["hammer"].model_copy(update={"randomization": drawn})
    changes = {"tool_mass_scale": Uniform(uniform=(first, last))}
    if last < low or high < first:
        changed = changed_task(task, changes, "it").randomization
        assert bounds(changed.tool_mass_scale) == (first, last)
    else:
        with pytest.raises(ConfigError, match="overlaps the task's own range"):
            changed_task(task, changes, "it")


def test_angles_are_compared_by_whole_turns_and_a_whole_turn_has_no_outside():
    knife = TASKS["knife"]  # turned by -45 to 45 degrees
    for yaw, message in ((370.0, "overlaps"), (180.0, None), (Outside(above=(3, 3.5)), "overlaps")):
        changes = {"object_pose": {"rpy_deg": ("same", "same", yaw)}}
        if message is None:
            changed_task(knife, changes, "it")
        else:
            with pytest.raises(ConfigError, match=message):
                changed_task(knife, changes, "it")
    hammer = TASKS["hammer"]
    pose = changed_task(hammer, {"object_pose": Outside(above=(0.1, 0.2))}, "it")
    assert pose.randomization.object_pose.rpy_deg == hammer.randomization.object_pose.rpy_deg


def test_pushes_are_those_of_the_file_on_what_is_free_and_one_that_is_added_leaves_the_others():
    for name, on_object in (("spatula", 1), ("hammer", 0)):
        task = TASKS[name]
        scene = parse(SceneRules, PUSHED, "it").draw(task, 5, "all")
        assert (len(scene.hand_forces), len(scene.object_forces)) == (1, on_object)
        assert 10 - 1e-5 <= np.hypot(*scene.hand_forces[0].force_N[:2]) <= 20 + 1e-5
        for force in scene.object_forces:
            assert np.hypot(*force.force_N_per_kg[:2]) == pytest.approx(3, abs=1e-5)
        more = parse(SceneRules, {**PUSHED, "hand_pushes": PUSHED["hand_pushes"] * 2}, "it")
        other = more.draw(task, 5, "all")
        assert scene.hand_forces == other.hand_forces[:1] != other.hand_forces[1:]
        assert scene.object_forces == other.object_forces


def test_what_changes_in_a_task_replaces_what_changes_in_all():
    rules = parse(SceneRules, {**PUSHED, "by_task": {"hammer": {"depth_error_scale": 3}}}, "it")
    hammer, spatula = (rules.draw(TASKS[name], 1, "all") for name in ("hammer", "spatula"))
    assert (hammer.depth_error_scale, hammer.hand_forces) == (3, ())
    assert spatula.depth_error_scale == 1 and spatula.hand_forces


# --- Files ----------------------------------------------------------------------------------


def written(tmp_path, data: dict[str, Any]) -> str:
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return str(path)


def change(path: tuple, value: Any) -> dict[str, Any]:
    data = yaml.safe_load(yaml.safe_dump(DATA, sort_keys=False))
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return data


def test_a_level_that_is_added_or_tuned_leaves_the_digests_of_the_others(tmp_path):
    before = {name: digest(each) for name, each in load_levels(written(tmp_path, DATA)).items()}
    more = change(("levels", "more"), DATA["levels"]["shaken"])
    more["levels"]["heavy"]["ranges"]["object_mass_scale"] = 5
    after = {name: digest(each) for name, each in load_levels(written(tmp_path, more)).items()}
    assert [*before] == [NOMINAL, "shaken", "heavy"] and [*after] == [*before, "more"]
    assert {name for name in before if before[name] != after[name]} == {"heavy"}
    path = written(tmp_path, DATA)
    assert load_protocol(path) == load_protocol(path, NOMINAL)
    assert load_protocol(path, "shaken").title == "own v1, shaken"
    assert len(load_protocol(path, "shaken").trials()) == 4
    with pytest.raises(UnknownNameError, match="Did you mean 'shaken'"):
        load_protocol(path, "shake")


@pytest.mark.parametrize("level", ["disturbed", "hard", "sensors"])
def test_an_unknown_level_is_refused_with_those_that_exist(level):
    with pytest.raises(UnknownNameError, match="Known: cameras, long, nominal, physics"):
        describe(EvaluationConfig(policy="zero", level=level))


def test_nominal_says_nothing_of_levels():
    dumped = {*SMALL.model_dump(mode="json")}
    assert not {"level", "sensors", "ranges", "by_task", "hand_pushes", "second_object"} & dumped


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("splits", "train", "first_seed"), 7, "for training"),
        (("levels", "shaken", "scenes"), 4, "has only 3"),
        (("level",), "shaken", "is reserved for the file itself"),
        (("levels", "nominal"), DATA["levels"]["shaken"], "is reserved for the file itself"),
        (("levels", "idle"), {"description": "It.", "scenes": 1}, "changes nothing in the task"),
        (("levels", "shaken", "by_task"), {"hammer": {}}, "nothing in the task 'hammer'"),
        (("levels", "shaken", "sensors"), "sonar", "sensors"),
        (("levels", "shaken", "range"), {}, "Did you mean 'ranges'"),
        (("levels", "heavy", "ranges"), {"objct_pose": 1}, "Did you mean 'object_pose'"),
        (
            ("levels", "heavy", "ranges", "object_mass_scale"),
            1e9,
            "expected a number from 0.01 to 100",
        ),
        (("levels", "heavy", "ranges", "object_mass_scale"), 1, "overlaps the task's"),
        (("levels", "heavy", "ranges", "object_mass_scale"), "sme", "expected 'same', {below"),
        (
            ("levels", "heavy", "ranges", "object_mass_scale"),
            {"above": [0.3, 0.1]},
            "the smaller distance first",
        ),
        (
            ("levels", "heavy", "ranges", "object_pose"),
            {"translation_m": [1]},
            r"object_pose.translation_m: expected 3 entries; given: 1",
        ),
        (("levels", "heavy", "ranges", "object_pose"), {"translation": 1}, "Did you mean"),
        (("levels", "heavy", "ranges", "table_texture"), "same", None),
        (("levels", "heavy", "ranges", "joint_resistance"), {"slid": 9}, "Did you mean 'slide'"),
        (("levels", "heavy", "ranges", "table_texture"), 1, "no numbers here"),
        (("levels", "shaken", "by_task"), {"wrench": {"depth_error_scale": 2}}, "wrench"),
        (("levels", "shaken", "hand_pushes", 0, "horizontal_N"), -1, "from 0 to 500"),
        (
            ("levels", "shaken", "second_object"),
            {"least_distance_m": 0.2, "y_m": 0},
            "cannot have a push",
        ),
        (
            ("levels", "heavy", "second_object"),
            {"least_distance_m": 0, "y_m": 50},
            "expected a number from -10 to 10 m",
        ),
    ],
)
def test_a_level_that_does_not_fit_is_refused(tmp_path, path, value, message):
    file = written(tmp_path, change(path, value))
    if message is None:
        load_levels(file)
        return
    with pytest.raises((ConfigError, UnknownNameError), match=message):
        load_levels(file)


def test_the_file_survives_a_round_trip():
    file = parse(LevelsFile, DATA, "it")
    again = yaml.safe_load(yaml.safe_dump(file.model_dump(mode="json")))
    assert parse(LevelsFile, again, "it") == file


# --- Strengths --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["benchmarks/level_strengths.yaml", "task_configs/protocols/v1.yaml"]
)
def test_candidate_strengths_are_tried_in_scenes_of_no_protocol(tmp_path, name):
    candidates = load_yaml(LevelsFile, ROOT / name)
    levels = load_levels(written(tmp_path, validation_protocol(candidates)))
    assert [*levels] == [NOMINAL, *candidates.levels]
    final = {trial.seed for level in LEVELS.values() for trial in level.trials()}
    for level in levels.values():
        seeds = {trial.seed for trial in level.trials("hammer")}
        assert len(seeds) == 4000 and not seeds & final
        for trial in level.trials(scenes=1):
            level.scene(TASKS[trial.task], trial)


# --- Evaluations ----------------------------------------------------------------------------


def test_a_level_of_cameras_decides_which_and_has_no_results_of_policies_without_any():
    seeing = EvaluationConfig(policy="zero", tool="hammer", level="cameras", obs_mode="point_cloud")
    assert describe(seeing)[1].policy.sensors == "active_stereo"
    for others in ({"sensors": "ideal"}, {"sensors": "structured_light"}):
        with pytest.raises(ConfigError, match="choose another level"):
            describe(EvaluationConfig(**{**seeing.model_dump(), **others}))
    with pytest.raises(ConfigError, match="Leave this level out for this policy"):
        describe(EvaluationConfig(policy="zero", tool="hammer", level="cameras"))
    free = EvaluationConfig(**{**seeing.model_dump(), "level": "pushes", "sensors": "ideal"})
    assert describe(free)[1].policy.sensors == "ideal"
