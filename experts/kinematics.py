"""Kinematics of the end effector: on the arm's joints, or as a free body."""

from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from pydrake.math import RigidTransform
from pydrake.multibody.inverse_kinematics import AddUnitQuaternionConstraintOnPlant
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import Frame, JacobianWrtVariable, SpatialInertia
from pydrake.solvers import MathematicalProgram
from pydrake.systems.framework import Context

from fleet_tools.robot.arm import Arm
from fleet_tools.robot.arm_model import add_arm
from fleet_tools.robot.pose_delta import rotation_vector
from fleet_tools.sim.simulation import CONTROL_RATE

DAMPING = 0.01
"""Damping of Newton steps; it matters only in directions in which the arm is near-singular."""


@dataclass(frozen=True, eq=False)
class Kinematics:
    """A plant with frame E. Its context is scratch memory, so it serves one thread at a time.

    Attributes:
        plant: The plant, with n positions.
        context: Scratch context of the plant.
        E: Frame of the end effector.
    """

    plant: MultibodyPlant
    context: Context
    E: Frame

    @property
    def lower(self) -> np.ndarray:
        """Lower position limits, (n,)."""
        return self.plant.GetPositionLowerLimits()

    @property
    def upper(self) -> np.ndarray:
        """Upper position limits, (n,)."""
        return self.plant.GetPositionUpperLimits()

    @property
    def step_limit(self) -> np.ndarray:
        """Largest change of positions in one control step, at the velocity limits, (n,)."""
        return self.plant.GetVelocityUpperLimits() / CONTROL_RATE

    def forward(self, q: np.ndarray) -> RigidTransform:
        """Returns X_WE at positions q, (n,)."""
        self.plant.SetPositions(self.context, q)
        return self.E.CalcPoseInWorld(self.context)

    def add_positions(self, prog: MathematicalProgram, name: str = "q") -> np.ndarray:
        """Adds decision variables for positions, (n,), with the constraints of all positions."""
        q = prog.NewContinuousVariables(self.plant.num_positions(), name)
        prog.AddBoundingBoxConstraint(self.lower, self.upper, q)
        AddUnitQuaternionConstraintOnPlant(self.plant, q, prog)
        return q

    def approach(self, q: np.ndarray, X_WF: RigidTransform, iterations: int = 3) -> np.ndarray:
        """Returns positions near q that bring E towards a pose F, by damped Newton steps.

        Each is the smallest step that closes the gap to first order, clipped to the position
        limits. The result is an initial guess: the remaining gap is not checked.

        Args:
            q: (n,), initial positions, without quaternions.
            X_WF: Target pose.
            iterations: Number of steps.
        """
        W = self.plant.world_frame()
        for _ in range(iterations):
            X_WE = self.forward(q)
            turn = rotation_vector(X_WF.rotation() @ X_WE.rotation().inverse())
            gap = np.concatenate([turn, X_WF.translation() - X_WE.translation()])  # (6,), rad, m
            J = self.plant.CalcJacobianSpatialVelocity(
                self.context, JacobianWrtVariable.kQDot, self.E, np.zeros(3), W, W
            )  # (6, n)
            step = J.T @ np.linalg.solve(J @ J.T + DAMPING**2 * np.eye(6), gap)
            q = np.clip(q + step, self.lower, self.upper)
        return q


def arm_kinematics(robot: Arm) -> Kinematics:
    """Returns an arm's kinematics; positions are joint angles, rad, within its planned ranges."""
    plant = _arm_plant(robot, robot.stamp())
    E = plant.GetFrameByName(robot.end_effector)
    return Kinematics(plant, plant.CreateDefaultContext(), E)


def free_body() -> Kinematics:
    """Returns a free body's; positions are a unit quaternion (w, x, y, z), then p_WE, m."""
    plant = _free_body_plant()
    return Kinematics(plant, plant.CreateDefaultContext(), plant.GetFrameByName("E"))


@lru_cache(maxsize=8)
def _arm_plant(robot: Arm, _: int) -> MultibodyPlant:
    plant = MultibodyPlant(time_step=0.0)
    add_arm(plant, robot)
    for name, (low, high) in robot.planned_rad.items():
        joint = plant.GetJointByName(name)
        lower, upper = joint.position_lower_limits(), joint.position_upper_limits()
        joint.set_position_limits(np.maximum(lower, low), np.minimum(upper, high))
    plant.Finalize()
    return plant


@cache
def _free_body_plant() -> MultibodyPlant:
    plant = MultibodyPlant(time_step=0.0)
    plant.AddRigidBody("E", SpatialInertia.SolidSphereWithMass(1.0, 0.1))
    plant.Finalize()
    return plant
