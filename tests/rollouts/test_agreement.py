"""The comparison of an episode with one that ran again: laws, and displacements of known length."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from fleet_tools.rollouts.agreement import (
    Agreement,
    Points,
    compared_points,
    counts,
    distance,
    distance_of_points,
)
from fleet_tools.rollouts.episode import Episode
from fleet_tools.sim.scene import Scene

STEPS = 4
SHAPES = {"tool_keypoints": (2, 3), "object_keypoints": (3, 3)}


def an_episode(seed: int, steps: int = STEPS, names: tuple[str, ...] = tuple(SHAPES)) -> Episode:
    """Returns an episode of pseudo-random poses and keypoints."""
    generator = np.random.default_rng(seed)
    rotations = Rotation.random(steps + 1, rng=generator).as_matrix()
    origins = generator.normal(size=(steps + 1, 3, 1))
    keypoints = {name: generator.normal(size=(steps + 1, *SHAPES[name])) for name in names}
    observations = {"end_effector_pose": np.concatenate([rotations, origins], 2), **keypoints}
    return Episode(
        scene=Scene.model_construct(),
        observations=observations,
        actions=np.zeros((steps, 6), np.float32),
        rewards=np.zeros(steps),
        terminated=np.zeros(steps, bool),
        truncated=np.zeros(steps, bool),
        success=np.zeros(steps, bool),
        digests=np.zeros(steps + 1, np.uint64),
        outcome="success",
    )


def observing(episode: Episode, name: str, change: Callable[[np.ndarray], np.ndarray]) -> Episode:
    """Returns the episode with one of its observations changed."""
    changed = change(episode.observations[name].copy())
    return replace(episode, observations={**episode.observations, name: changed})


def known(one: Episode, other: Episode) -> float:
    value = distance(one, other)
    assert value is not None
    return value


SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS, SEEDS, SEEDS)
def test_it_is_a_metric_of_what_is_observed(a, b, c):
    one, two, three = map(an_episode, (a, b, c))
    assert known(one, one) == 0.0
    assert known(one, two) == known(two, one)
    assert (known(one, two) == 0.0) == (a == b)
    assert known(one, three) <= known(one, two) + known(two, three) + 1e-12


@given(SEEDS, SEEDS)
def test_the_frame_of_the_world_does_not_matter(a, b):
    R, p = Rotation.random(rng=np.random.default_rng(a)).as_matrix(), np.ones((3, 1))

    def moved(episode: Episode) -> Episode:
        shift = np.concatenate([np.zeros((3, 3)), p], 1)
        return observing(episode, "end_effector_pose", lambda X: R @ X + shift)

    one, two = an_episode(a), an_episode(b)
    assert known(moved(one), moved(two)) == pytest.approx(known(one, two))


@given(SEEDS, st.integers(0, STEPS), st.sampled_from(list(SHAPES)), st.floats(1e-4, 10.0))
def test_a_displacement_of_one_point_at_one_step_is_the_distance(seed, step, name, length):
    direction = np.random.default_rng(seed).normal(size=3)
    shift = length * direction / np.linalg.norm(direction)

    def displaced(points: np.ndarray) -> np.ndarray:
        points[step, -1] += shift
        return points

    episode = an_episode(seed)
    assert known(episode, observing(episode, name, displaced)) == pytest.approx(length)


def test_the_object_counts_where_it_is_and_not_as_the_hand_sees_it():
    """A hand that turns about its origin moves what it holds, and not the object."""
    episode = an_episode(0)
    turn = Rotation.from_euler("z", 90, degrees=True).as_matrix()
    turned = observing(
        episode, "end_effector_pose", lambda X: np.concatenate([X[..., :3] @ turn, X[..., 3:]], 2)
    )
    seen = observing(turned, "object_keypoints", lambda p_EQ: p_EQ @ turn)
    radius = np.linalg.norm(episode.observations["tool_keypoints"][..., :2], axis=-1).max()
    assert known(episode, seen) == pytest.approx(np.sqrt(2) * radius)


def test_rows_that_only_one_episode_has_do_not_count():
    long = an_episode(3)
    short = replace(
        an_episode(3, STEPS - 2),
        observations={name: rows[: STEPS - 1] for name, rows in long.observations.items()},
    )
    assert known(long, short) == known(short, long) == 0.0


def test_padded_keypoints_with_a_mask_have_the_same_distance():
    def padded(episode: Episode) -> Episode:
        for name in SHAPES:
            points = episode.observations[name]
            rows = np.zeros((len(points), 8, 4))
            rows[:, : points.shape[1], :3], rows[:, : points.shape[1], 3] = points, 1
            episode = observing(episode, name, lambda _, rows=rows: rows)
        return episode

    one, two = an_episode(1), an_episode(2)
    assert known(padded(one), padded(two)) == pytest.approx(known(one, two))


def test_without_keypoints_the_end_effector_is_compared():
    one, two = an_episode(1, names=()), an_episode(2, names=())
    origins = [each.observations["end_effector_pose"][..., 3] for each in (one, two)]
    assert known(one, two) == pytest.approx(np.linalg.norm(origins[0] - origins[1], axis=1).max())
    assert compared_points(one.observations) == ["end_effector"]


def test_a_distance_that_cannot_be_told_is_none():
    episode = an_episode(1)
    for number in (np.nan, np.inf):
        lost = observing(episode, "object_keypoints", lambda p, x=number: np.where(p == p, x, p))
        assert distance(episode, lost) is None
        assert distance(lost, lost) is None
    assert distance(episode, an_episode(1, names=())) is None


# --- Agreement and stored points ------------------------------------------------------------

DISTANCES = st.none() | st.floats(0, 10)
AGREEMENTS = st.builds(
    lambda identical, same, apart: Agreement(
        identical, same or identical, 0 if identical else apart
    ),
    st.booleans(),
    st.booleans(),
    DISTANCES,
)
POINT = st.tuples(*[st.floats(-10, 10)] * 3)
POINTS = st.fixed_dictionaries(
    {"end_effector": st.lists(POINT, min_size=1, max_size=1), "keypoints": st.lists(POINT)}
)


@given(st.lists(AGREEMENTS), st.floats(0, 10), st.floats(0, 10))
def test_counts_go_from_strict_to_loose(agreements, limit_m, more_m):
    found, looser = counts(agreements, limit_m), counts(agreements, limit_m + more_m)
    assert found["identical"] <= found["within"] <= looser["within"] <= found["same_outcome"]
    assert found["same_outcome"] <= found["episodes"] == len(agreements)
    assert (found["largest_distance_m"] is None) == (found["measured"] == 0)


@given(POINTS, POINT)
def test_a_shift_of_all_points_is_the_distance(one, shift):
    moved = {kind: [tuple(np.add(p, shift)) for p in rows] for kind, rows in one.items()}
    found = distance_of_points(one, moved)
    assert found == distance_of_points(moved, one) and distance_of_points(one, one) == 0
    assert found == pytest.approx(math.hypot(*shift), abs=1e-9)


def test_other_points_have_no_distance():
    one: Points = {"end_effector": [(0.0, 0.0, 0.0)]}
    assert distance_of_points(one, None) is None
    assert distance_of_points(one, {}) is None
    assert distance_of_points(one, {"object_keypoints": [(0.0, 0.0, 0.0)]}) is None
    assert distance_of_points(one, {"end_effector": [(0.0, 0.0, 0.0)] * 2}) is None
    assert distance_of_points(one, {"end_effector": [(math.nan, 0.0, 0.0)]}) is None
