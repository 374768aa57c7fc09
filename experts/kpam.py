"""Keypoint optimization (kPAM): the pose of the end effector in which the tool acts.

Both methods of the paper satisfy the same conditions with the smallest motion of the tool's
keypoints: over the joints (Joint-Space-kPAM-Opt), or over the pose alone, followed by inverse
kinematics.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from pydrake.common.eigen_geometry import Quaternion
from pydrake.math import RigidTransform, RotationMatrix
from pydrake.multibody.inverse_kinematics import PositionCost
from pydrake.solvers import MathematicalProgram

from fleet_tools.experts.conditions import AtPose, PoseCondition, condition, feasible, violations
from fleet_tools.experts.kinematics import Kinematics, free_body
from fleet_tools.experts.problem import ActuationPose, PlanningProblem

RESTARTS = 8
"""Number of initial guesses after the first."""

MARGIN = 0.1
"""Distance of the actuation pose from the joint limits, rad, for the motions around it."""


def solve_joint_space(problem: PlanningProblem, arm: Kinematics) -> Iterator[ActuationPose]:
    """Yields joint positions that satisfy the terms with the least motion (the paper, eq. obj_q).

    They are local minima: from the present joint positions first, then from farther guesses.

    Raises:
        InfeasibleError: No joint positions were found; it names the violated terms.
        UnknownNameError, ConfigError: A term does not fit the keypoints.
    """
    conditions = [condition(term, problem) for term in problem.expert.actuation.constraints]
    prog = MathematicalProgram()
    q = arm.add_positions(prog)
    _add_keypoint_motion_cost(prog, q, arm, problem, arm.forward(problem.q0))
    for q_star in _solve_for_joints(
        prog, q, arm, problem, conditions, "The tool cannot act there."
    ):
        yield ActuationPose(arm.forward(q_star), q_star)


def solve_pose_space(problem: PlanningProblem, arm: Kinematics) -> Iterator[ActuationPose]:
    """Yields joint positions of the optimal pose, which is found first (the paper, eq. obj).

    They are local minima: from the present joint positions first, then from farther guesses.

    Raises:
        InfeasibleError: No pose satisfies the terms, or no joint positions reach the one found;
            it names the violated terms, or `actuation pose`.
        UnknownNameError, ConfigError: A term does not fit the keypoints.
    """
    conditions = [condition(term, problem) for term in problem.expert.actuation.constraints]
    X_WE_now = arm.forward(problem.q0)
    body = free_body()
    prog = MathematicalProgram()
    x = body.add_positions(prog, "x")
    _add_keypoint_motion_cost(prog, x, body, problem, X_WE_now)
    for one in conditions:
        one.add_to(prog, x, body)
    minima = feasible(
        prog,
        x,
        _initial_poses(X_WE_now),
        lambda x: violations(body, x, conditions),
        "No pose of the end effector lets the tool act.",
    )
    x_star = next(minima)
    X_WE = body.forward(x_star)

    prog = MathematicalProgram()
    q = arm.add_positions(prog)
    pose = AtPose("actuation pose", X_WE)
    failure = "The arm cannot reach the pose."
    for q_star in _solve_for_joints(prog, q, arm, problem, [pose], failure):
        yield ActuationPose(X_WE, q_star)


def _add_keypoint_motion_cost(
    prog: MathematicalProgram,
    q: np.ndarray,
    kinematics: Kinematics,
    problem: PlanningProblem,
    X_WE_now: RigidTransform,
) -> None:
    W, weight = kinematics.plant.world_frame(), problem.expert.actuation.keypoint_motion_cost
    for p_EP in problem.p_E_tool.values():
        cost = PositionCost(
            kinematics.plant,
            W,
            X_WE_now @ p_EP,
            kinematics.E,
            p_EP,
            weight * np.eye(3),
            plant_context=kinematics.context,
        )
        prog.AddCost(cost, q)


def _solve_for_joints(
    prog: MathematicalProgram,
    q: np.ndarray,
    arm: Kinematics,
    problem: PlanningProblem,
    conditions: Sequence[PoseCondition],
    failure: str,
) -> Iterator[np.ndarray]:
    """Adds the conditions and the cost of joint motion, and solves."""
    prog.AddBoundingBoxConstraint(arm.lower + MARGIN, arm.upper - MARGIN, q)
    weight = problem.expert.actuation.joint_motion_cost
    prog.AddQuadraticErrorCost(weight * np.eye(len(q)), problem.q0, q)
    for one in conditions:
        one.add_to(prog, q, arm)
    return feasible(
        prog,
        q,
        _initial_joints(problem.q0, arm),
        lambda q: violations(arm, q, conditions),
        failure,
    )


def _initial_joints(q0: np.ndarray, arm: Kinematics) -> Iterator[np.ndarray]:
    """Yields the present joint positions, then random ones at increasing distances from them."""
    generator = np.random.default_rng(0)  # plans are deterministic
    for k in range(RESTARTS + 1):
        yield q0 + k / RESTARTS * (generator.uniform(arm.lower, arm.upper) - q0)


def _initial_poses(X_WE: RigidTransform) -> Iterator[np.ndarray]:
    """Yields the present pose, then random rotations at the same origin, as positions."""
    generator = np.random.default_rng(0)
    yield _floating_positions(X_WE)
    for _ in range(RESTARTS):
        turn = RotationMatrix(Quaternion(_unit(generator.normal(size=4))))
        yield _floating_positions(X_WE @ RigidTransform(turn, np.zeros(3)))


def _floating_positions(X_WE: RigidTransform) -> np.ndarray:
    return np.r_[X_WE.rotation().ToQuaternion().wxyz(), X_WE.translation()]


def _unit(v: np.ndarray) -> np.ndarray:
    return v / np.linalg.norm(v)
