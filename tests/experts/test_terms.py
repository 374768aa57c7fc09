"""Drake's constraints and plain geometry must mean the same."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import planning_problem
from pydrake.common.eigen_geometry import AngleAxis, Quaternion
from pydrake.math import RigidTransform, RotationMatrix
from pydrake.solvers import MathematicalProgram

from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.experts.kinematics import free_body
from fleet_tools.experts.terms import AtPose, AxisAtAngle, PointNearPoint, condition
from fleet_tools.tasks import AxisToAxis, PointToPoint

BODY = free_body()
unit = st.floats(-1, 1)
vectors = st.tuples(unit, unit, unit).map(np.array)
directions = vectors.filter(lambda v: np.linalg.norm(v) > 0.1).map(lambda v: v / np.linalg.norm(v))
poses = st.tuples(st.tuples(directions, st.floats(0, np.pi)), vectors).map(
    lambda drawn: RigidTransform(RotationMatrix(AngleAxis(drawn[0][1], drawn[0][0])), drawn[1])
)


def drake_agrees(condition, X_WE: RigidTransform) -> bool:
    """Whether Drake's constraint allows a pose, to within rounding."""
    prog = MathematicalProgram()
    x = BODY.add_positions(prog)
    condition.add_to(prog, x, BODY)
    wxyz = X_WE.rotation().ToQuaternion().wxyz()
    return prog.CheckSatisfied(
        prog.GetAllConstraints(), _values(prog, x, np.r_[wxyz, X_WE.translation()]), 1e-12
    )


def _values(prog, x, value):
    prog.SetInitialGuess(x, value)
    return prog.initial_guess()


@given(poses, vectors, directions, st.floats(1e-3, 0.5), st.floats(0.5, 2))
def test_a_point_is_near_a_point_exactly_when_drake_says_so(X_WE, p_EP, way, tolerance, ratio):
    near = PointNearPoint("", p_EP, X_WE @ p_EP + ratio * tolerance * way, tolerance)
    assert near.ratio(X_WE) == pytest.approx(ratio, rel=1e-6)
    if abs(ratio - 1) > 1e-3:
        assert drake_agrees(near, X_WE) == (ratio < 1)


@given(
    poses, directions, directions, st.floats(0, 180), st.floats(0.5, 10), st.floats(-2, 2)
)
def test_an_axis_is_at_an_angle_exactly_when_drake_says_so(X, a_E, side, angle, tolerance, ratio):
    a_W = X.rotation() @ a_E
    actual = np.clip(angle + ratio * tolerance, 0, 180)
    if np.linalg.norm(np.cross(a_W, side)) < 0.1:
        return
    turn_axis = np.cross(a_W, side) / np.linalg.norm(np.cross(a_W, side))
    b_W = RotationMatrix(AngleAxis(np.radians(actual), turn_axis)) @ a_W
    at = AxisAtAngle("", a_E, b_W, angle, tolerance)
    assert at.error_deg(X) == pytest.approx(abs(actual - angle), abs=1e-5)
    if abs(at.ratio(X) - 1) > 1e-3:
        assert drake_agrees(at, X) == (at.ratio(X) < 1)


@given(poses, directions, directions)
def test_a_pose_is_met_by_itself_alone(X_WF, way, axis):
    at = AtPose("", X_WF)
    assert at.ratio(X_WF) < 1e-3
    assert drake_agrees(at, X_WF @ RigidTransform()) or np.allclose(_rows(at, X_WF), 0, atol=1e-12)
    flips = [AngleAxis(np.pi, e) for e in np.eye(3)]
    for turn in [AngleAxis(0.01, axis), *flips]:
        X_WE = X_WF @ RigidTransform(RotationMatrix(turn), np.zeros(3))
        assert at.ratio(X_WE) > 1 and not drake_agrees(at, X_WE)
    X_WE = RigidTransform(X_WF.rotation(), X_WF.translation() + 1e-3 * way)
    assert at.ratio(X_WE) == pytest.approx(1e-3 / at.tolerance_m, rel=1e-6)
    assert not drake_agrees(at, X_WE)
