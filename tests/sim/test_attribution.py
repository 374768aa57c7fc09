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
    Coordinates,
    Regions,
    advance,
    contact_forces,
    displacements,
    distance_behind,
    distance_to_polyline,
    from_start,
    remaining,
)
from fleet_tools.sim.part_motion import (
    Bearing,
    Direction,
    PlaceOnObject,
    misdirected,
    misplaced,
    unsupported,
)
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
    now, at_rest = np.zeros(5) if change is None else change, np.zeros((PARTS, 5))
    return advance(force, displacement, MECHANISM, share, np.zeros(5), now, COORDINATES, at_rest)


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
def test_motion_from_the_start_is_divided_by_the_shares(share, change):
    still = np.zeros((PARTS + 1, LINKS, 6)), np.zeros((LINKS, 6))
    _, motion = advanced(*still, share, change)
    expected = change * np.where(np.array(COORDINATES) == FIXED, 0.0, share[:, COORDINATES])
    np.testing.assert_allclose(motion, expected, atol=1e-12)


steps = st.floats(-3, 3).map(lambda x: round(x, 3))
movers = st.sampled_from(list(np.vstack([np.eye(3), np.zeros(3)])))  # three parts, everything else
mixed = arrays(float, 3, elements=st.floats(0, 1 / 3))
PURE, MIXED = (st.lists(st.tuples(who, steps), max_size=12) for who in (movers, mixed))


def accounts(
    history: list[tuple[np.ndarray, float]], pieces: int = 1
) -> tuple[np.ndarray, float, list[np.ndarray]]:
    """Returns the motion of three parts, the displacement, and all motions on the way."""
    motion, far, path = np.zeros(3), 0.0, []
    for share, step in history:
        for _ in range(pieces):
            now = far + step / pieces
            motion = remaining(motion, share, far, now)
            far = now
            path.append((motion, far))
    return motion, far, path


@given(PURE | MIXED)
def test_nobodys_motion_exceeds_what_remains_and_all_together_do_not(history):
    for motion, far in accounts(history)[2]:
        forwards = motion * np.sign(far)
        assert (forwards >= -1e-9).all() and forwards.sum() <= abs(far) + 1e-9


@given(PURE | MIXED, movers | mixed, steps)
def test_what_is_moved_back_to_the_start_or_beyond_is_no_longer_anybodys(history, who, beyond):
    _, far, _ = accounts(history)
    assume(abs(far) > 1e-6)
    onwards = abs(beyond) * -np.sign(far)
    undone, _, _ = accounts([*history, (who, -far), (who, onwards)])
    np.testing.assert_allclose(undone, who * onwards, atol=1e-9)
    at_once, _, _ = accounts([*history, (who, onwards - far)])
    np.testing.assert_allclose(at_once, who * onwards, atol=1e-9)


@given(PURE | MIXED, st.floats(0, 1))
def test_what_others_move_back_takes_the_same_fraction_of_each(history, fraction):
    motion, far, _ = accounts(history)
    less, _, _ = accounts([*history, (np.zeros(3), -fraction * far)])
    np.testing.assert_allclose(less, (1 - fraction) * motion, atol=1e-9)
    again, _, _ = accounts([*history, (np.zeros(3), -fraction * far), (np.zeros(3), far)])
    np.testing.assert_allclose(again, less, atol=1e-9)  # who opens it once more has done that


@given(PURE | MIXED, st.integers(0, 2), st.floats(0, 1))
def test_a_part_that_goes_to_and_fro_gains_and_loses_nothing(history, part, fraction):
    motion, far, _ = accounts(history)
    who = np.eye(3)[part]
    for step in (fraction * far, -fraction * motion[part]):
        oscillates = [(who, step), (who, -step)] * 3
        np.testing.assert_allclose(accounts([*history, *oscillates])[0], motion, atol=1e-9)


@given(PURE, st.integers(2, 7))
def test_motion_does_not_depend_on_the_time_step(history, pieces):
    np.testing.assert_allclose(accounts(history, pieces)[0], accounts(history)[0], atol=1e-9)


@given(MIXED)
def test_motion_that_several_cause_at_once_converges_with_the_time_step(history):
    finest = accounts(history, 512)[0]
    errors = [np.abs(accounts(history, n)[0] - finest).max() for n in (8, 64)]
    assert errors[1] <= 0.05 and errors[1] <= max(errors[0], 1e-3)


@given(PURE | MIXED, st.floats(0.1, 10), st.sampled_from([-1, 1]), st.permutations(range(3)))
def test_motion_knows_no_unit_no_direction_and_no_order_of_parts(history, unit, sign, order):
    motion, _, _ = accounts(history)
    other, _, _ = accounts([(share[order], sign * unit * step) for share, step in history])
    np.testing.assert_allclose(other, sign * unit * motion[order], atol=1e-8)


@pytest.mark.parametrize(
    ("history", "by_part"),
    [
        ("p2 e-2 e2", 0.0),  # levered open, pressed shut, opened by the hand
        ("p2 e-1 e1", 1.0),  # half of it
        ("p2 p-1 e1", 1.0),
        ("p2 e1", 2.0),
        ("e1 p1", 1.0),
        ("e-1 p2", 1.0),  # past the start: what leads back to it is no progress
        ("p-1 e2", 0.0),
        ("e2 p-1 p1", 1.0),  # what the part undoes and does again is its own
        ("e1 p1 e-1", 0.5),
        ("p3 e-2 p1", 2.0),
    ],
)
def test_who_did_what_remains(history, by_part):
    shares = {"p": np.eye(3)[0], "e": np.zeros(3)}
    found, _, _ = accounts([(shares[each[0]], float(each[1:])) for each in history.split()])
    assert found[0] == pytest.approx(by_part)


@given(poses, poses, points, points)
def test_displacements_of_points_are_along_the_axes_that_a_link_had(X_WS, X_WV, before, now):
    """So they do not depend on the frame, and what is undone along an axis is undone."""
    tables = pack(Coordinates((0,), (0,) * 4, (0,), (0,), np.zeros((1, 3))))
    far = now - before
    for X in (X_WS, X_WV @ X_WS):  # a turned world
        R = X.rotation().matrix() @ X_WS.rotation().matrix().T
        values, start = ([q, *R @ p] for q, p in ((0.7, now), (0.2, before)))
        found = from_start(np.array(values), np.array(start), X.GetAsMatrix34()[None], tables)
        np.testing.assert_allclose(found, [0.5, *X_WS.rotation().matrix().T @ far], atol=1e-9)


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


@given(points, points, st.floats(0.01, 100), poses)
def test_a_part_counts_where_it_pushes_within_45_degrees_of_a_direction(axis, aside, scale, X):
    """Of the link that it touches, in every frame, and whatever the unit of force is."""
    assume(np.linalg.norm(axis) > 0.05)
    across = aside - (aside @ axis) / (axis @ axis) * axis
    assume(np.linalg.norm(across) > 0.05)
    across *= np.linalg.norm(axis) / np.linalg.norm(across)
    X_WL = np.array([np.eye(3, 4), X.GetAsMatrix34()])
    directions = [Direction(0, 1, axis), Direction(0, 0, -axis)]
    for degrees in (0.0, 44.0, -44.0, 46.0, 90.0, 180.0):
        t = np.radians(degrees)
        force = scale * (np.cos(t) * axis + np.sin(t) * across)
        found = misdirected(directions, [(1, X.rotation() @ force), (0, force), (2, force)], X_WL)
        counts = {1: abs(degrees) < 45, 0: degrees == 180, 2: False}
        assert found == {(k, 0) for k, link in enumerate((1, 0, 2)) if not counts[link]}
    assert misdirected([], [(0, axis)], X_WL) == set()


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
