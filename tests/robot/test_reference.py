"""The reference that the controller follows."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from pydrake.math import RigidTransform, RotationMatrix

from fleet_tools.robot.controller import Reference
from fleet_tools.robot.osc import orientation_error, pose_along
from fleet_tools.robot.pose_delta import displace, displacement

motions = st.tuples(*[st.floats(-0.5, 0.5)] * 6).map(np.array)
poses = st.integers(0, 2**32).map(lambda seed: random_pose(np.random.default_rng(seed)))


def random_pose(rng: np.random.Generator) -> RigidTransform:
    return displace(RigidTransform(rng.uniform(-1, 1, 3)), rng.uniform(-1, 1, 6))


def reference_along(X_WE: RigidTransform, motion: np.ndarray) -> Reference:
    return Reference(X_WE, motion, start=1.0, duration=0.5, posture=np.zeros(7))


def pose_at(reference: Reference, time: float) -> RigidTransform:
    p_WD, R_WD = pose_along(reference.path, reference.at(time)[0])
    return RigidTransform(RotationMatrix(R_WD), p_WD)


@given(poses, motions, st.floats(-1.0, 2.0))
def test_a_reference_is_the_motion_done_so_far(X_WE, motion, fraction):
    expected = displace(X_WE, motion, min(max(fraction, 0.0), 1.0))
    X_WD = pose_at(reference_along(X_WE, motion), 1.0 + 0.5 * fraction)
    assert X_WD.IsNearlyEqualTo(expected, 1e-12)


@given(poses, motions)
def test_a_reference_is_at_rest_before_and_after(X_WE, motion):
    reference = reference_along(X_WE, motion)
    for time in (0.9, 1.501, 7.0):
        assert not reference.at(time)[1].any()


@given(poses, motions)
def test_it_is_in_motion_at_its_very_end_however_that_is_rounded(X_WE, motion):
    reference = reference_along(X_WE, motion)
    for time in (1.5, np.nextafter(1.5, 1.0), np.nextafter(1.5, 2.0)):
        np.testing.assert_array_equal(reference.at(time)[1], reference.at(1.25)[1])


@given(poses, motions, st.floats(0.01, 0.49))
def test_its_velocity_is_the_slope_of_its_pose(X_WE, motion, elapsed):
    reference = reference_along(X_WE, motion)
    time, h = 1.0 + elapsed, 1e-6
    V_WD = reference.at(time)[1]
    before, after = (pose_at(reference, time + dt) for dt in (-h, h))
    R_WD = before.rotation()
    slope = displacement(before, after) / (2 * h)  # in the moving frame
    np.testing.assert_allclose(V_WD[3:], R_WD @ slope[:3], atol=1e-6)
    np.testing.assert_allclose(V_WD[:3], R_WD @ slope[3:], atol=1e-6)


@given(poses, motions)
def test_the_orientation_error_is_the_sine_of_the_turn(X_WE, motion):
    X_WD = displace(X_WE, motion)
    turn = X_WE.rotation() @ motion[3:]  # the rotation vector in the world, rad
    angle = np.linalg.norm(turn)
    error = orientation_error(X_WD.rotation().matrix(), X_WE.rotation().matrix())
    np.testing.assert_allclose(error, np.sinc(angle / np.pi) * turn, atol=1e-12)


@given(poses, motions, st.floats(0.0, 1.0))
def test_a_scaled_reference_makes_a_part_of_the_motion_in_the_same_time(X_WE, motion, scale):
    scaled = replace(reference_along(X_WE, motion), scale=scale)
    assert pose_at(scaled, 1.5).IsNearlyEqualTo(displace(X_WE, scale * motion), 1e-12)
