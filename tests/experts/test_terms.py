"""Conditions on poses: Drake's constraints and plain geometry agree."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydrake.common.eigen_geometry import AngleAxis
from pydrake.math import RigidTransform, RotationMatrix
from pydrake.solvers import MathematicalProgram
from support.planning_problems import directions, planning_problem, poses, vectors

from fleet_tools.config.expert import AxisToAxis, PointToPoint
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.experts.conditions import (
    AtPose,
    AxisAtAngle,
    PointNearPoint,
    PoseCondition,
    condition,
)
from fleet_tools.experts.kinematics import free_body

BODY = free_body()


def drake_allows(condition: PoseCondition, X_WE: RigidTransform, rounding: float = 1e-10) -> bool:
    """Returns whether Drake's constraints hold at a pose, up to rounding (in their own units)."""
    prog = MathematicalProgram()
    x = BODY.add_positions(prog)
    condition.add_to(prog, x, BODY)
    positions = np.r_[X_WE.rotation().ToQuaternion().wxyz(), X_WE.translation()]
    return prog.CheckSatisfied(prog.GetAllConstraints(), positions, rounding)


@given(poses, vectors, directions, st.floats(1e-3, 0.5), st.floats(0, 2))
def test_points_are_near_exactly_if_drakes_constraint_holds(
    X_WE, p_EP, direction, tolerance, ratio
):
    near = PointNearPoint("", p_EP, X_WE @ p_EP + ratio * tolerance * direction, tolerance)
    assert near.ratio(X_WE) == pytest.approx(ratio, abs=1e-6)
    assume(abs(ratio - 1) > 1e-3)
    assert drake_allows(near, X_WE) == (ratio < 1)


@given(poses, directions, directions, st.floats(0, 180), st.floats(0, 180), st.floats(0.5, 10))
def test_an_axis_is_at_an_angle_exactly_if_drakes_constraint_holds(
    X_WE, a_E, other, actual, desired, tolerance
):
    a_W = X_WE.rotation() @ a_E
    normal = np.cross(a_W, other)
    assume(np.linalg.norm(normal) > 0.1)
    turn = AngleAxis(np.radians(actual), normal / np.linalg.norm(normal))
    at = AxisAtAngle("", a_E, RotationMatrix(turn) @ a_W, desired, tolerance)
    assert at.error_deg(X_WE) == pytest.approx(abs(actual - desired), abs=1e-5)
    # Near 0 and 180 degrees the cosine, of which Drake's constraint is made, is flat.
    assume(all(0.1 < abs(desired + sign * tolerance) % 180 < 179.9 for sign in (-1, 1)))
    assume(abs(at.ratio(X_WE) - 1) > 1e-2)
    assert drake_allows(at, X_WE) == (at.ratio(X_WE) < 1)


@given(poses, directions, directions)
def test_only_the_pose_itself_satisfies_its_condition(X_WF, direction, axis):
    at = AtPose("", X_WF)
    assert at.ratio(X_WF) < 1e-3
    assert drake_allows(at, X_WF)
    half_turns = [AngleAxis(np.pi, e) for e in np.eye(3)]
    for turn in (AngleAxis(0.01, axis), *half_turns):
        X_WE = X_WF @ RigidTransform(RotationMatrix(turn), np.zeros(3))
        assert at.ratio(X_WE) > 1
        assert not drake_allows(at, X_WE, rounding=1e-6)
    X_WE = RigidTransform(X_WF.rotation(), X_WF.translation() + 1e-3 * direction)
    assert at.ratio(X_WE) == pytest.approx(1e-3 / at.tolerance_m, rel=1e-6)
    assert not drake_allows(at, X_WE, rounding=1e-6)


def test_an_offset_is_in_the_frame_of_the_object():
    problem = planning_problem(3)
    term = PointToPoint(
        type="point_to_point", tool="head", object="head", offset_m=(0.1, 0, 0), tolerance_m=0.01
    )
    near = condition(term, problem)
    assert isinstance(near, PointNearPoint)
    offset = near.p_WQ - problem.p_W_object["head"]
    np.testing.assert_allclose(problem.X_WO.rotation().inverse() @ offset, [0.1, 0, 0], atol=1e-12)


@pytest.mark.parametrize("given_deg, between_deg", [(30, 30), (-30, 30), (200, 160), (360, 0)])
def test_an_angle_between_axes_has_no_sign(given_deg, between_deg):
    term = AxisToAxis(
        type="axis_to_axis",
        tool=("side", "head"),
        world=(0, 0, 2),
        angle_deg=given_deg,
        tolerance_deg=1,
    )
    at = condition(term, planning_problem())
    assert isinstance(at, AxisAtAngle)
    assert at.angle_deg == between_deg


def test_an_unknown_keypoint_is_named_with_the_known_ones():
    problem = planning_problem()
    wrong = {"type": "point_to_point", "tolerance_m": 0.01}
    with pytest.raises(
        UnknownNameError, match=r"keypoint of the tool: 'haed'. Did you mean 'head'"
    ):
        condition(PointToPoint(tool="haed", object="head", **wrong), problem)
    with pytest.raises(UnknownNameError, match=r"keypoint of the object: 'tail'.*base, head"):
        condition(PointToPoint(tool="head", object="tail", **wrong), problem)


def test_an_axis_between_coinciding_points_is_refused():
    term = AxisToAxis(type="axis_to_axis", tool=("head", "head"), world=(0, 0, 1), tolerance_deg=1)
    with pytest.raises(ConfigError, match="head->head"):
        condition(term, planning_problem())
