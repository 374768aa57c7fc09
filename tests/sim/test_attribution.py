"""Laws of the attribution of motion."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fleet_tools.sim.attribution import add_motion, distance_to_polyline, divide_work

AGENTS, LINKS = 3, 4
MECHANISM = np.array([0, 1, 0, -1])

numbers = st.floats(-100, 100, allow_subnormal=False)
forces = arrays(float, (AGENTS, LINKS, 6), elements=numbers)
velocities = arrays(float, (LINKS, 6), elements=numbers)
shares = arrays(float, (AGENTS - 1, 2), elements=st.floats(0, 0.5))
points = arrays(float, 3, elements=st.floats(-1, 1))
polylines = st.lists(points, min_size=1, max_size=4).map(np.array)


def divided(force: np.ndarray, velocity: np.ndarray, share: np.ndarray) -> np.ndarray:
    share = share.copy()
    divide_work(force, velocity, MECHANISM, share)
    return share


@given(forces, velocities, shares)
def test_shares_are_those_of_positive_work(force, velocity, share):
    work = np.einsum("alk,lk->al", force, velocity)
    power = np.maximum(np.stack([work[:, m == MECHANISM].sum(axis=1) for m in (0, 1)], 1), 0)
    found = divided(force, velocity, share)
    assert (found >= 0).all() and (found.sum(axis=0) <= 1 + 1e-12).all()
    for m in (0, 1):
        if power[:, m].sum() > 1e-6:
            expected = power[:-1, m] / power[:, m].sum()
            np.testing.assert_allclose(found[:, m], expected, atol=1e-6)


@given(forces, velocities, shares)
def test_a_mechanism_that_nothing_pushes_keeps_its_shares(force, velocity, share):
    assert (divided(force, np.zeros_like(velocity), share) == share).all()
    assert (divided(np.zeros_like(force), velocity, share) == share).all()


@given(forces, velocities, shares, st.permutations(range(AGENTS - 1)))
def test_agents_are_treated_alike(force, velocity, share, order):
    found = divided(force, velocity, share)
    permuted = divided(force[[*order, AGENTS - 1]], velocity, share[order])
    np.testing.assert_allclose(permuted, found[order], atol=1e-9)


@given(velocities, st.integers(0, AGENTS - 1), st.sampled_from([0, 1, 2]))
def test_who_alone_pushes_has_all_of_the_work(velocity, agent, link):
    force = np.zeros((AGENTS, LINKS, 6))
    force[agent, link] = velocity[link]
    found = divided(force, velocity, np.full((AGENTS - 1, 2), 0.25))[:, MECHANISM[link]]
    if np.sum(velocity[link] ** 2) > 0:
        assert found.tolist() == [float(a == agent) for a in range(AGENTS - 1)]


@given(shares, arrays(float, 5, elements=numbers), st.floats(1e-3, 1))
def test_motion_is_divided_by_the_shares(share, rate, step):
    mechanism = np.array([0, 0, 1, -1, 1])
    motion = np.zeros((AGENTS - 1, 5))
    add_motion(share, mechanism, rate, step, motion)
    expected = step * rate * np.where(mechanism >= 0, share[:, mechanism], 0.0)
    np.testing.assert_allclose(motion, expected, atol=1e-12)
    add_motion(share, mechanism, -rate, step, motion)
    np.testing.assert_allclose(motion, 0.0, atol=1e-12)


@given(points, polylines)
def test_distance_is_that_of_the_nearest_point_of_a_segment(p, corners):
    ends = corners[1:] if len(corners) > 1 else corners
    t = np.linspace(0, 1, 1001)[:, None]
    sampled = [a + t * (b - a) for a, b in zip(corners, ends, strict=False)]
    nearest = min(np.linalg.norm(line - p, axis=1).min() for line in sampled)
    assert distance_to_polyline(p, corners) == pytest.approx(nearest, abs=2e-3)


@given(points, polylines, points)
def test_distance_does_not_depend_on_the_frame_or_the_direction(p, corners, shift):
    distance = distance_to_polyline(p, corners)
    assert distance_to_polyline(p, corners[::-1].copy()) == pytest.approx(distance, abs=1e-12)
    assert distance_to_polyline(p + shift, corners + shift) == pytest.approx(distance, abs=1e-9)
