"""Pose displacements: inverses, fractions, and the frame in which they are expressed."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from pydrake.math import RigidTransform, RollPitchYaw

from fleet_tools.robot.pose_delta import displace, displacement, rotation_vector

lengths = st.floats(-2.0, 2.0)
vectors = st.tuples(lengths, lengths, lengths).map(np.array)
angles = st.floats(-3.14, 3.14)
poses = st.tuples(angles, angles, angles, vectors).map(
    lambda given: RigidTransform(RollPitchYaw(*given[:3]), given[3])
)


def _turn(direction: np.ndarray, angle: float) -> np.ndarray:
    length = np.linalg.norm(direction)
    return direction / length * angle if length > 1e-3 else np.zeros(3)


turns = st.builds(_turn, vectors, st.floats(0.0, np.pi - 1e-3))
motions = st.builds(lambda p, r: np.concatenate([p, r]), vectors, turns)
fractions = st.floats(0.0, 1.0)


@given(poses, poses)
def test_displace_undoes_displacement(X_WE, X_WF):
    assert displace(X_WE, displacement(X_WE, X_WF)).IsNearlyEqualTo(X_WF, 1e-9)


@given(poses, motions)
def test_no_fraction_is_no_motion_and_the_whole_is_the_whole(X_WE, motion):
    assert displace(X_WE, motion, 0.0).IsExactlyEqualTo(X_WE)
    assert displace(X_WE, motion, 1.0).IsExactlyEqualTo(displace(X_WE, motion))
    assert displace(X_WE, np.zeros(6)).IsExactlyEqualTo(X_WE)


@given(poses, motions, fractions)
@example(RigidTransform(), np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.6e-161]), 1.0)
@example(RigidTransform(), np.array([0.3, -0.2, 1.0, 1.0, -2.0, 2.0]), 1.0)
def test_the_path_is_straight_and_evenly_travelled(X_WE, motion, fraction):
    travelled = displacement(X_WE, displace(X_WE, motion, fraction))
    np.testing.assert_allclose(travelled, fraction * motion, atol=1e-9)


@given(poses)
def test_rotation_vectors_are_no_longer_than_pi(X_WE):
    assert np.linalg.norm(rotation_vector(X_WE.rotation())) <= np.pi + 1e-12


@given(poses, motions)
def test_motions_are_seen_from_the_moved_frame(X_WE, motion):
    moved = displace(RigidTransform(), motion)
    assert displace(X_WE, motion).IsNearlyEqualTo(X_WE @ moved, 1e-12)


@given(turns, st.floats(1e-12, 1e-6))
def test_small_turns_keep_their_direction(turn, scale):
    small = np.concatenate([np.zeros(3), scale * turn])
    back = displacement(RigidTransform(), displace(RigidTransform(), small))
    np.testing.assert_allclose(back, small, atol=1e-15)
