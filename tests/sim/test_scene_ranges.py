"""Scenes are physical: every number in its range, every pose whole, and resets all or nothing."""

import copy
import json
import math
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.shares import few

from fleet_tools.config.distributions import DISTURBANCES, RANGES, Range
from fleet_tools.config.file_access import assets_root
from fleet_tools.config.tasks import TaskConfig, load_task, task_path
from fleet_tools.config.values import parse, read_yaml
from fleet_tools.errors import ConfigError, EpisodeOverError, FleetToolsError, SimulationError
from fleet_tools.robot.arm import load_robot
from fleet_tools.robot.arm_model import joint_limits
from fleet_tools.sim.scene import NextObject, Push, Scene, sample_scene

HAMMER = load_task("hammer")
TIMES = {"start_s": 0.2, "duration_s": 0.3}
PUSH = {
    "push": {"time_s": 0.4, "translation_m": [0.01, 0.0, 0.0]},
    "hand_forces": [{**TIMES, "force_N": [1.0, 0.0, 0.0]}],
    "object_forces": [{**TIMES, "force_N_per_kg": [1.0, 0.0, 0.0]}],
    "depth_error_scale": 2.0,
}
DATA: dict[str, Any] = json.loads(sample_scene(HAMMER, 0).to_json()) | PUSH
MARKED = DATA | {"place": {"distance_m": 0.05, "bearing_deg": 30.0}}
STILL = np.zeros(6, np.float32)


def numbers(data: Any, place: tuple = ()) -> Iterator[tuple]:
    """Yields the places of all numbers in plain data."""
    if isinstance(data, dict | list):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from numbers(value, (*place, key))
    elif not isinstance(data, str):
        yield place


def changed(data: Any, *changes: tuple[tuple, Any]) -> dict[str, Any]:
    """Returns a copy of plain data with other values at some places."""
    data = copy.deepcopy(data)
    for place, value in changes:
        inner = data
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = value
    return data


def range_at(place: tuple) -> Range:
    """Returns the range of the number at a place of a scene."""
    place = place[2:] if place[0] == "next_objects" else place
    allowed: Any = RANGES[place[0]]
    for key in place[1:]:
        if isinstance(allowed, dict):
            allowed = allowed.get(key, allowed)
    return allowed


PLACES = [place for place in numbers(MARKED) if place != ("seed",)]
SECOND = copy.deepcopy({name: MARKED[name] for name in NextObject.model_fields})
SEVERAL = {**{k: DATA[k] for k in DATA if k not in PUSH}, "next_objects": [SECOND]}
MORE_PLACES = [place for place in numbers(SEVERAL) if place[0] == "next_objects"]


@pytest.mark.parametrize(
    ("data", "places", "number"), [(MARKED, PLACES, 62), (SEVERAL, MORE_PLACES, 11)]
)
def test_a_number_is_refused_beyond_its_range_and_accepted_within(data, places, number):
    assert len(places) == number
    for place in places:
        low, high, _ = range_at(place)
        for inside in (low, high):
            parse(Scene, changed(data, (place, inside)), "scene.json")
        near = (low - 1, high + 1) if place[-1] == "step" else beyond(low, high)
        for outside in (1e308, -1e308, 10**400, *near):
            with pytest.raises(ConfigError) as error:
                parse(Scene, changed(data, (place, outside)), "scene.json")
            dotted = ".".join(map(str, place))
            assert f"scene.json is not a valid Scene:\n  {dotted}: " in str(error.value)


def beyond(low: float, high: float) -> tuple[float, float]:
    """Returns the next numbers below and above a range."""
    return math.nextafter(low, -math.inf), math.nextafter(high, math.inf)


@pytest.mark.parametrize("part", ["translation_m", "rpy_deg"])
@pytest.mark.parametrize("pose", [("tool_in_hand",), ("object_pose",), ("cameras", "wrist")])
def test_a_pose_without_a_part_is_refused(pose, part):
    data = copy.deepcopy(DATA)
    inner = data
    for key in pose:
        inner = inner[key]
    del inner[part]
    with pytest.raises(ConfigError, match=rf"{'.'.join(pose)}\.{part}: expected both"):
        parse(Scene, data, "scene.json")


@pytest.mark.parametrize(
    "given, place",
    [
        ("tool_mass_scale: 1.0e+9", "tool_mass_scale"),
        ("joint_resistance: {slide: {choice: [40, 0]}}", "joint_resistance.slide"),
        ("initial_joints_rad: [0, 0, 0, {uniform: [-2, 20]}, 0, 2, 0]", "initial_joints_rad.3"),
        ("object_pose: {translation_m: [{uniform: [0, 9]}, {uniform: [0, 99]}, 0]}", "object_pose"),
        ("place: {distance_m: {uniform: [0, 3]}}", "place.distance_m"),
        ("place: {distance_m: 0.1, bearing_deg: 400}", "place.bearing_deg"),
        ("cameras: {overhead: {rpy_deg: [0, 0, 920]}, wrist: {}}", "cameras.overhead.rpy_deg.2"),
    ],
)
def test_a_task_that_draws_out_of_range_is_refused_with_the_line(given, place):
    head, _, rest = task_path("hammer").read_text().partition("randomization:")
    success = rest.partition("\nsuccess:")[2]
    text = f"{head}randomization:\n  {given}\nsuccess:{success}"
    line = head.count("\n") + 2
    with pytest.raises(
        ConfigError, match=rf"line {line}: randomization\.{place}.*: .*expected a number"
    ):
        read_yaml(TaskConfig, text, "own.yaml")


# --- Resets ---------------------------------------------------------------------------------

BAD_OPTIONS: list[Any] = [
    1,
    "scene",
    [("scene", DATA)],
    np.zeros(3),
    {"scene": 1},
    {"scen": DATA},
    {(): DATA},
    {"scene": changed(DATA, (("initial_joints_rad",), [1e308] * 7))},
    {"scene": changed(DATA, (("tool_in_hand", "translation_m"), [1e12, 0, 0]))},
    {"scene": changed(DATA, (("object_pose", "translation_m"), [1e308, 0, 0]))},
    {"scene": changed(DATA, (("push", "translation_m"), [1e308, 0, 0]))},
    {"scene": changed(DATA, (("tool",), "x" * 5000))},
    {"scene": changed(DATA, (("tool",), "a\0b"))},
]


def test_a_reset_that_is_refused_leaves_the_episode_as_it_was(hammer):
    hammer.reset(seed=0)
    hammer.step(STILL)
    before = hammer.state_digest()
    altered = hammer.scene.model_copy(update={"push": Push(time_s=0, translation_m=(1e12, 0, 0))})
    for options in (*BAD_OPTIONS, {"scene": altered}):
        with pytest.raises(FleetToolsError):
            hammer.reset(options=options)
    for seed in (-1, 1.5, True, "1", [1], 10**400):
        with pytest.raises(ConfigError, match="seed"):
            hammer.reset(seed=seed)
    assert hammer.state_digest() == before
    assert hammer.step(STILL)[4]["outcome"] == "running"


def test_after_a_reset_that_failed_later_there_is_no_episode(hammer, tmp_path):
    folder = shutil.copytree(assets_root() / "tools" / "hammer" / "claw", tmp_path / "own")
    (folder / "model.sdf").write_text("<sdf version='1.9'/>")
    for change in (
        (("object_pose", "translation_m"), [5.0, 0.0, 0.0]),  # out of the workspace
        (("tool",), str(folder)),
    ):
        hammer.reset(seed=0)
        with pytest.raises(ConfigError):
            hammer.reset(options={"scene": changed(DATA, change)})
        for use in (lambda: hammer.step(STILL), hammer.world_state, hammer.get_state):
            with pytest.raises(EpisodeOverError, match=r"call reset\(\)"):
                use()
    fresh = [hammer.reset(seed=seed) and hammer.state_digest() for seed in (1, 0, 1)]
    assert fresh[0] == fresh[2]


def limits_at(place: tuple) -> Range:
    """Returns the range of the number at a place of a scene, with this arm."""
    if place[0] != "initial_joints_rad":
        return range_at(place)
    limits = joint_limits(load_robot())
    return Range(float(limits.lower[place[1]]), float(limits.upper[place[1]]))


WITHIN_REACH = [
    place for place in PLACES if place[0] not in ("object_pose", "place", *DISTURBANCES)
]


@few(8)
@given(st.lists(st.booleans(), min_size=len(WITHIN_REACH), max_size=len(WITHIN_REACH)))
def test_the_corners_of_the_ranges_can_be_simulated(hammer, high):
    ends = [
        (place, limits_at(place)[int(end)]) for place, end in zip(WITHIN_REACH, high, strict=True)
    ]
    try:
        observation, info = hammer.reset(options={"scene": changed(DATA, *ends)})
        assert info["outcome"] == "running"
        for _ in range(3):
            assert all(np.isfinite(value).all() for value in observation.values())
            observation, *_, info = hammer.step(STILL)
    except (SimulationError, EpisodeOverError):
        pass
