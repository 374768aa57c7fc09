"""Scenes: drawn from seeds, group by group, and stored without loss."""

import cmath
import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet_tools.config.distributions import Choice, NameChoice, Uniform, nominal
from fleet_tools.config.randomization import Randomization, RandomPlace
from fleet_tools.config.tasks import load_task, task_names
from fleet_tools.config.values import parse
from fleet_tools.errors import ConfigError, FleetToolsError
from fleet_tools.robot.arm import load_robot
from fleet_tools.sim.scene import Place, Scene, check_randomization, marked_place, sample_scene

GROUPS = sorted(Randomization.model_fields)
TASKS = {name: load_robot().fill(load_task(name)) for name in task_names()}
HAMMER, SPATULA = TASKS["hammer"], TASKS["spatula"]

tasks = st.sampled_from(list(TASKS.values()))
seeds = st.integers(0, 2**64) | st.just(2**128 - 1)


@given(tasks, seeds)
def test_json_round_trip_is_lossless(task, seed):
    scene = sample_scene(task, seed)
    back = parse(Scene, json.loads(scene.to_json()), "test")
    assert back == scene
    assert back.to_json() == scene.to_json()
    assert back.digest() == scene.digest()


@given(tasks, st.lists(st.integers(0, 2**32), min_size=2, max_size=2, unique=True))
def test_different_seeds_draw_different_scenes(task, pair):
    first, second = (sample_scene(task, seed) for seed in pair)
    assert first.model_copy(update={"seed": second.seed}) != second


@given(tasks, seeds, st.sampled_from(GROUPS))
def test_switching_a_group_off_leaves_the_others_as_they_were(task, seed, group):
    everything = sample_scene(task, seed).model_dump()
    rest = sample_scene(task, seed, randomization={group: False}).model_dump()
    off = sample_scene(task, seed, randomization="off").model_dump()
    assert rest.pop(group, None) == off.get(group)
    everything.pop(group, None)
    assert rest == everything


@given(seeds, st.sampled_from(["tool", "object"]))
def test_fixing_a_model_leaves_the_rest_as_it_was(seed, kind):
    name = {"tool": "claw", "object": "round_nail"}[kind]
    chosen: Any = {kind: name}
    fixed = sample_scene(HAMMER, seed, split="all", **chosen).model_dump()
    free = sample_scene(HAMMER, seed, split="all").model_dump()
    assert fixed.pop(kind) == name
    free.pop(kind)
    assert fixed == free


distances = st.floats(0, 2)
bearings = st.floats(-360, 360)


@given(seeds, st.lists(distances, min_size=2, max_size=2).map(sorted), bearings)
def test_a_place_is_drawn_without_changing_any_other_quantity(seed, between, bearing_deg):
    """So a level that only moves the place has the scenes of `nominal` otherwise."""

    def drawn(place: RandomPlace | None) -> Scene:
        own = SPATULA.randomization.model_copy(update={"place": place})
        return sample_scene(SPATULA.model_copy(update={"randomization": own}), seed)

    nominal_scene, without = sample_scene(SPATULA, seed), drawn(None)
    far = drawn(RandomPlace(distance_m=Uniform(uniform=tuple(between)), bearing_deg=bearing_deg))
    assert without.place is None and "place" not in json.loads(without.to_json())
    for scene in (nominal_scene, far):
        assert scene.model_copy(update={"place": None}) == without
    assert far.place is not None and nominal_scene.place is not None
    assert between[0] <= far.place.distance_m <= between[1]
    assert far.place.bearing_deg == bearing_deg


@given(seeds, distances, bearings)
def test_a_place_lies_at_its_distance_and_bearing_from_the_object(seed, distance_m, bearing_deg):
    place = Place(distance_m=distance_m, bearing_deg=bearing_deg)
    scene = sample_scene(SPATULA, seed).model_copy(update={"place": place})
    x, y, z = marked_place(scene) or (np.nan,) * 3
    way = complex(x, y) - complex(*scene.object_pose.translation_m[:2])
    assert z == 0 and abs(way) == pytest.approx(distance_m, abs=2e-6)
    expected = cmath.rect(distance_m, math.radians(bearing_deg))
    assert abs(way - expected) < 2e-6


@given(seeds)
def test_every_switch_on_is_on(seed):
    every = dict.fromkeys(GROUPS, True)
    on = sample_scene(HAMMER, seed)
    assert on == sample_scene(HAMMER, seed, randomization=every)
    assert on == sample_scene(HAMMER, seed, randomization={})


def draws(distributions: Any, values: Any) -> Iterator[tuple[Any, Any]]:
    """Yields pairs of a distribution and the value drawn from it, at any depth."""
    match distributions:
        case Uniform() | Choice() | NameChoice() | float() | str():
            yield distributions, values
        case dict():
            for key, inner in distributions.items():
                yield from draws(inner, values[key])
        case None:  # no place
            assert values is None
        case tuple():
            for inner, value in zip(distributions, values, strict=True):
                yield from draws(inner, value)
        case _:
            for key in type(distributions).model_fields:
                yield from draws(getattr(distributions, key), getattr(values, key))


@given(tasks, seeds)
def test_every_value_lies_in_its_distribution(task, seed):
    pairs = list(draws(task.randomization, sample_scene(task, seed)))
    assert len(pairs) >= 23
    for distribution, value in pairs:
        match distribution:
            case Uniform(uniform=(low, high)):
                assert low <= value <= high
            case Choice(choice=options) | NameChoice(choice=options):
                assert value in options
            case _:
                assert value == distribution


@given(tasks, seeds)
def test_off_gives_nominal_values(task, seed):
    scene = sample_scene(task, seed, randomization="off")
    assert all(value == nominal(of) for of, value in draws(task.randomization, scene))


def test_the_models_of_a_family_are_drawn_evenly():
    tools = [sample_scene(HAMMER, seed).tool for seed in range(500)]
    counts = np.unique(tools, return_counts=True)[1]
    assert counts.min() > 0.6 * len(tools) / len(counts)


@pytest.mark.parametrize("seed", [-1, 1.0, "1", None, True, 2**128, np.float64(3)])
def test_an_invalid_seed_is_refused(seed):
    with pytest.raises(ConfigError, match=r"from 0 to below 2\^128; given"):
        sample_scene(HAMMER, seed)


def test_numpys_integers_are_seeds_too():
    seed: Any = np.int64(3)
    assert sample_scene(HAMMER, seed).to_json() == sample_scene(HAMMER, 3).to_json()


@pytest.mark.parametrize("switch", ["onn", True, None, ["object_pose"], {"object_pose": 0}])
def test_an_invalid_switch_is_refused(switch):
    with pytest.raises(ConfigError, match=r"randomization .*given"):
        sample_scene(HAMMER, 0, randomization=switch)


@pytest.mark.parametrize(
    "change",
    [
        {"initial_joints_rad": []},
        {"initial_joints_rad": [float("nan")] * 7},
        {"tool_mas_scale": 1.0},
        {"seed": 1.5},
        {"table_texture": "velvet"},
    ],
)
def test_an_invalid_scene_is_refused(change):
    data = json.loads(sample_scene(HAMMER, 0).to_json())
    with pytest.raises(ConfigError, match=next(iter(change))):
        parse(Scene, data | change, "scene.json")


@given(st.dictionaries(st.text(), st.booleans() | st.none() | st.text(), max_size=3))
def test_any_switches_are_accepted_or_refused(switches):
    try:
        check_randomization(switches)
    except FleetToolsError:
        return
    assert set(switches) <= set(GROUPS)
