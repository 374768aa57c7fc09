"""What moves frame E: the arm's seven joints, or nothing but its own six degrees of freedom."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from pydrake.math import RigidTransform
from pydrake.multibody.inverse_kinematics import AddUnitQuaternionConstraintOnPlant
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import Frame, JacobianWrtVariable, SpatialInertia
from pydrake.solvers import MathematicalProgram
from pydrake.systems.framework import Context

from fleet_tools.robot.panda import END_EFFECTOR, add_panda
from fleet_tools.robot.pose_delta import rotation_vector
from fleet_tools.sim.simulation import CONTROL_RATE

DAMPING = 0.01
"""Of Newton's steps; only directions in which the arm is near-singular feel it."""


@dataclass(frozen=True, eq=False)
class Kinematics:
    """A plant that carries frame E; its context is scratch space, so one thread at a time."""

    plant: MultibodyPlant
    context: Context
    E: Frame

    @property
    def lower(self) -> np.ndarray:
        """(n,), the least positions."""
        return self.plant.GetPositionLowerLimits()

    @property
    def upper(self) -> np.ndarray:
        """(n,), the greatest positions."""
        return self.plant.GetPositionUpperLimits()

    @property
    def step_limit(self) -> np.ndarray:
        """(n,), the farthest that positions go in one control step, at the joints' full speed."""
        return self.plant.GetVelocityUpperLimits() / CONTROL_RATE

    def forward(self, q: np.ndarray) -> RigidTransform:
        """Returns X_WE at positions q, (n,)."""
        self.plant.SetPositions(self.context, q)
        return self.E.CalcPoseInWorld(self.context)

    def add_positions(self, prog: MathematicalProgram, name: str = "q") -> np.ndarray:
        """Adds decision variables for positions, (n,), and what holds of any positions."""
        q = prog.NewContinuousVariables(self.plant.num_positions(), name)
        prog.AddBoundingBoxConstraint(self.lower, self.upper, q)
        AddUnitQuaternionConstraintOnPlant(self.plant, q, prog)
        return q

    def approach(self, q: np.ndarray, X_WF: RigidTransform, iterations: int = 3) -> np.ndarray:
        """Returns positions near q that bring E to a pose F, or towards it: damped Newton steps.

        Each is the least step that closes the gap to first order, so redundant joints stay put;
        then the limits are kept. Only a guess: nothing says how near E has come.

        Args:
            q: (n,), where to start; no quaternions.
            X_WF: The pose to reach.
            iterations: How many steps.
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


def arm() -> Kinematics:
    """The Panda; positions are its joints', rad."""
    plant = _arm_plant()
    return Kinematics(plant, plant.CreateDefaultContext(), plant.GetFrameByName(END_EFFECTOR))


def free_body() -> Kinematics:
    """An end effector without an arm; positions are a unit quaternion (w, x, y, z) and p_WE, m."""
    plant = _free_body_plant()
    return Kinematics(plant, plant.CreateDefaultContext(), plant.GetFrameByName("E"))


@cache
def _arm_plant() -> MultibodyPlant:
    plant = MultibodyPlant(time_step=0.0)
    add_panda(plant)
    plant.Finalize()
    return plant


@cache
def _free_body_plant() -> MultibodyPlant:
    plant = MultibodyPlant(time_step=0.0)
    plant.AddRigidBody("E", SpatialInertia.SolidSphereWithMass(1.0, 0.1))
    plant.Finalize()
    return plant
