"""Laws of the attribution of motion."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pydrake.common.eigen_geometry import AngleAxis
from pydrake.math import RigidTransform, RollPitchYaw, RotationMatrix

from fleet_tools.sim.attribution import (
    FIXED,
    ROBOT,
    TOOL,
    Regions,
    advance,
    contact_forces,
    displacements,
    distance_behind,
    distance_to_polyline,
)
from fleet_tools.sim.part_motion import Bearing, PlaceOnObject, misplaced, unsupported
from fleet_tools.utils.straight_line import pack

PARTS, LINKS = 2, 4
MECHANISM = (0, 1, 0, FIXED)
COORDINATES = (0, 0, 1, FIXED, 1)

numbers = st.floats(-100, 100, allow_subnormal=False)
forces = arrays(float, (PARTS + 1, LINKS, 6), elements=numbers)
displaced = arrays(float, (LINKS, 6), elements=numbers)
shares = arrays(float, (PARTS, 2), elements=st.floats(0, 0.5))
changes = arrays(float, 5, elements=numbers)
points = arrays(float, 3, elements=st.floats(-1, 1))
poses = st.builds(lambda rpy, p: RigidTransform(RollPitchYaw(rpy), p), points, points)
polylines = st.lists(points, min_size=1, max_size=4).map(np.array)


def advanced(
    force: np.ndarray, displacement: np.ndarray, share: np.ndarray, change: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns shares and motion after a step."""
    change, at_rest = np.zeros(5) if change is None else change, np.zeros((PARTS, 5))
    return advance(force, displacement, MECHANISM, share, change, COORDINATES, at_rest)


@given(forces, displaced, shares)
def test_shares_are_those_of_positive_work(force, displacement, share):
    work = np.einsum("alk,lk->al", force, displacement)
    power = np.maximum(
        np.stack([work[:, m == np.array(MECHANISM)].sum(axis=1) for m in (0, 1)], 1), 0
    )
    found, _ = advanced(force, displacement, share)
    assert (found >= 0).all() and (found.sum(axis=0) <= 1 + 1e-12).all()
    for m in (0, 1):
        if power[:, m].sum() > 1e-6:
            expected = power[:-1, m] / power[:, m].sum()
            np.testing.assert_allclose(found[:, m], expected, atol=1e-6)


@given(forces, displaced, shares)
def test_a_mechanism_that_nothing_pushes_keeps_its_shares(force, displacement, share):
    assert (advanced(force, np.zeros_like(displacement), share)[0] == share).all()
    assert (advanced(np.zeros_like(force), displacement, share)[0] == share).all()


@given(shares, changes)
def test_motion_is_divided_by_the_shares(share, change):
    still = np.zeros((PARTS + 1, LINKS, 6)), np.zeros((LINKS, 6))
    _, motion = advanced(*still, share, change)
    expected = change * np.where(np.array(COORDINATES) == FIXED, 0.0, share[:, COORDINATES])
    np.testing.assert_allclose(motion, expected, atol=1e-12)
    _, back = advanced(*still, share, -change)
    np.testing.assert_allclose(motion + back, 0.0, atol=1e-12)


@given(poses, points, st.floats(0, 3), points)
def test_a_displacement_is_a_rotation_vector_and_a_translation(X, axis, angle, shift):
    assume(np.linalg.norm(axis) > 1e-3)
    theta = angle * axis / np.linalg.norm(axis)
    turned = RotationMatrix(AngleAxis(angle, axis / np.linalg.norm(axis))) @ X.rotation()
    moved = RigidTransform(turned, X.translation() + shift)
    found = displacements(X.GetAsMatrix34()[None], moved.GetAsMatrix34()[None])
    np.testing.assert_allclose(found[0], [*theta, *shift], atol=1e-6)


@given(
    points,
    points,
    arrays(float, 6, elements=numbers),
    st.sampled_from([TOOL, ROBOT, 1, 2, 3]),
    st.integers(1, 20),
)
def test_contacts_do_the_same_work_about_the_origin_of_their_link(p, origin, wrench, agent, count):
    """The power of F at C is F . V_WC, with the velocity of the link there."""
    share = np.array([[0.25, 0.5], [0.25, 0.0]])
    corners = [[9.0, 0, 0], p, [9.0, 9, 9], [9, 9, 8]]
    regions = Regions(
        body=(0,) * (4 + 3 * PARTS),
        p_BK=np.array([*corners, *np.zeros((3 * PARTS, 3))]),
        last_corner=(1, 4),
        within=np.array([0.5, 0.5]),
        depth=np.full(PARTS, np.inf),
    )
    force = contact_forces(
        [(0, agent, p, wrench)] * count,
        np.tile(origin, (LINKS, 1)),
        MECHANISM,
        share,
        np.eye(3, 4)[None],
        pack(regions),
    )
    expected = {  # agents' fractions: parts, then everything else
        TOOL: (0, 1, 0),
        ROBOT: (0, 0, 1),
        1: (0.5, 0, 0.5),  # as the other mechanism was moved
        2: (0, 0, 0),  # of the same mechanism
        3: (0, 0, 0),  # fixed
    }[agent]
    w, v = np.array([0.3, -0.2, 0.5]), np.array([1.0, 0.4, -0.7])  # at the link's origin
    at_contact = wrench[:3] @ w + wrench[3:] @ (v + np.cross(w, p - origin))
    power = force[:, 0] @ np.concatenate([w, v]) / count
    np.testing.assert_allclose(power, np.array(expected) * at_contact, atol=1e-6)
    assert not force[:, 1:].any()


@given(points, points, points, points, st.floats(-1, 1), points)
def test_distance_behind_a_point_along_an_axis(start, end, front, across, along, shift):
    length = np.linalg.norm(end - start)
    if length > 1e-3:
        axis = (end - start) / length
        p = front - along * axis + np.cross(axis, across)
        side = np.array([start, end, front])
        for s in (np.zeros(3), shift):
            assert distance_behind(p + s, side + s) == pytest.approx(along, abs=1e-6)
    assert distance_behind(shift, np.array([start, start, front])) == 0.0


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


@given(poses, polylines, st.lists(points, min_size=1, max_size=5), st.floats(0.01, 2))
def test_a_contact_counts_for_a_part_only_at_its_place(X_WL, p_LK, p_LC, within):
    """The place moves with the link; other parts are not concerned."""
    X = np.array([np.eye(3, 4), X_WL.GetAsMatrix34()])
    place = PlaceOnObject(1, tuple((1, point) for point in p_LK), within)
    found = misplaced([place], [X_WL @ point for point in p_LC], X)
    for k, point in enumerate(p_LC):
        distance = distance_to_polyline(point, p_LK)
        assume(abs(distance - within) > 1e-6)
        assert ((k, 1) in found) == (distance > within)
    assert all(part == 1 for _, part in found)


@given(forces)
def test_a_misplaced_contact_is_everything_elses(wrenches):
    regions = Regions((0,) * 4, np.zeros((4, 3)), (1,), np.array([1.0]), np.array([np.inf]))
    contacts = [(0, TOOL, np.zeros(3), F[0]) for F in wrenches]
    args = contacts, np.zeros((1, 3)), (0,), np.zeros((1, 1)), np.eye(3, 4)[None], pack(regions)
    placed, other = contact_forces(*args), contact_forces(*args, {(0, 0)})
    np.testing.assert_allclose(placed.sum(axis=0), other.sum(axis=0), atol=1e-9)
    np.testing.assert_array_equal(other[1, 0], contacts[0][3])


@given(points, points, st.floats(0.01, 100), poses)
def test_a_part_counts_while_the_tool_bears_against_half_of_its_load(load, aside, scale, X):
    """In every frame, and whatever the unit of force is."""
    assume(np.linalg.norm(load) > 0.01)
    across = aside - (aside @ load) / (load @ load) * load
    for share, counts in ((-0.51, True), (-1.4, True), (-0.49, False), (0.0, False), (0.7, False)):
        borne = share * load + across
        turned = [scale * (X.rotation() @ each) for each in (borne, load)]
        for on_link, of_all in ((borne, load), turned):
            found = unsupported([Bearing(2, 5)], {5: on_link, 4: -load}, of_all)
            assert found == (set() if counts else {2})
    assert unsupported([Bearing(2, 5)], {}, load) == {2} and unsupported([], {}, load) == set()
