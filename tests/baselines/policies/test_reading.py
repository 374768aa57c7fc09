"""Numbers that stand for keypoints: turns that look alike, and the way back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from fleet_tools.baselines.policies.reading import (
    Reading,
    RotationalSymmetry,
    TaskReading,
    turn_angles,
)
from fleet_tools.config.values import parse
from fleet_tools.errors import ConfigError

NUT = RotationalSymmetry(part="object", fold=6, axis=(2, 3), marker=1)
READING = Reading(
    tasks=(
        TaskReading(name="hammer", tool=3, object=2),
        TaskReading(name="wrench", tool=2, object=4, symmetries=(NUT,)),
    ),
    rows=5,
)
BODY = np.array([[0, 0, 0.004], [0.008, 0.001, 0.003], [0, 0, 0], [0, 0, 0.01], [0, 0, 0]])
"""A nut: its centre, a flat, and the ends of its axis; the last row is none of its keypoints."""


def posed(rng: np.random.Generator, turn: float) -> np.ndarray:
    """Returns the nut turned about its axis, then tilted and moved at random, (rows, 3)."""
    tilt = Rotation.from_rotvec(rng.normal(size=3) * 0.3)
    return tilt.apply(Rotation.from_euler("z", turn).apply(BODY)) + rng.normal(size=3) * 0.1


def numbers(tool: np.ndarray, thing: np.ndarray, task: int) -> np.ndarray:
    return READING.targets((tool[None], thing[None]), np.array([task]))[0]


seeds, angles = st.integers(0, 2**32), st.floats(-3, 3)


@settings(max_examples=50)
@given(seed=seeds, turn=angles)
def test_the_way_there_and_back_keeps_keypoints(seed, turn):
    rng = np.random.default_rng(seed)
    tool, thing = rng.normal(size=(5, 3)) * 0.1, posed(rng, turn)
    for task, (of_tool, of_object) in enumerate([(3, 2), (2, 4)]):
        read, _ = READING.keypoints(numbers(tool, thing, task), task, None)
        for part, points, count in ((0, tool, of_tool), (1, thing, of_object)):
            np.testing.assert_allclose(read[part, :count, :3], points[:count], atol=1e-6)
            assert (read[part, :count, 3] == 1).all() and not read[part, count:].any()


@settings(max_examples=50)
@given(seed=seeds, turn=angles, sixths=st.integers(1, 5))
def test_turns_that_look_alike_have_the_same_numbers_but_for_the_named_turn(seed, turn, sixths):
    tool = np.random.default_rng(seed).normal(size=(5, 3))
    one, other = (
        numbers(tool, posed(np.random.default_rng(seed), turn + k * np.pi / 3), 1)
        for k in (0, sixths)
    )
    named = slice(READING.coordinates + 4, READING.coordinates + 6)
    assert abs(one[named] - other[named]).max() > 1e-3
    one[named] = other[named] = 0
    np.testing.assert_allclose(one, other, atol=2e-5)


@settings(max_examples=50)
@given(seed=seeds, turn=angles, off=st.floats(-0.5, 0.5), sixths=st.integers(-6, 6))
def test_among_turns_that_look_alike_it_is_the_one_next_to_the_former(seed, turn, off, sixths):
    rng = np.random.default_rng(seed)
    row = numbers(np.zeros((5, 3)), thing := posed(rng, turn), 1)
    true = turn_angles(thing[None], NUT)[0]
    former = true + sixths * np.pi / 3 + off  # half a sixth is 0.52
    read, found = READING.keypoints(row, 1, np.array([0, former]))
    assert found[1] == pytest.approx(former - off, abs=1e-5)
    difference = turn_angles(read[1, None, :, :3], NUT)[0] - (former - off)
    assert np.sin(difference / 2) == pytest.approx(0, abs=1e-4)


@settings(max_examples=50)
@given(seed=seeds, turn=angles, off=st.floats(-0.5, 0.5))
def test_a_named_turn_that_is_roughly_right_suffices_at_first(seed, turn, off):
    rng = np.random.default_rng(seed)
    thing = posed(rng, turn)
    row, true = numbers(np.zeros((5, 3)), thing, 1), turn_angles(thing[None], NUT)[0]
    row[READING.coordinates + 4 : READING.coordinates + 6] = 0.1 * np.array(
        [np.cos(true + off), np.sin(true + off)]
    )
    read, _ = READING.keypoints(row, 1, None)
    np.testing.assert_allclose(read[1, :4, :3], thing[:4], atol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 3}, "4 keypoints do not fit into 3 rows"),
        ({"tasks": ()}, "tasks"),
        (
            {"tasks": ({"name": "a", "tool": 1, "object": 3, "symmetries": (NUT,)},)},
            "the object of a has no such keypoint",
        ),
        (
            {"tasks": ({"name": "a", "tool": 1, "object": 4, "symmetries": (NUT, NUT)},)},
            "several symmetries of one part",
        ),
    ],
)
def test_readings_that_cannot_be_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        parse(Reading, {**dict(READING), **change}, "What is read")
