"""The controller's model of the arm with a tool in its hand: a plant of its own."""

import numpy as np
from pydrake.math import RigidTransform
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import (
    JacobianWrtVariable,
    MultibodyForces,
    SpatialInertia,
)

from fleet_tools.robot.limits import JointLimits
from fleet_tools.robot.osc import Dynamics
from fleet_tools.robot.panda import END_EFFECTOR, NUM_JOINTS, add_panda


class ArmModel:
    """Kinematics and dynamics of the arm at the state that was set last.

    Attributes:
        limits: Limits of the joints, as the model file declares them.
    """

    def __init__(self) -> None:
        self.plant = MultibodyPlant(time_step=0.0)
        arm = add_panda(self.plant)
        self._world = self.plant.world_frame()
        self._end_effector = self.plant.GetFrameByName(END_EFFECTOR)
        self._payload = self.plant.AddRigidBody("payload", arm, SpatialInertia.Zero())
        self.plant.WeldFrames(self._end_effector, self._payload.body_frame())
        self.plant.Finalize()
        self.context = self.plant.CreateDefaultContext()
        self._forces = MultibodyForces(self.plant)
        self.limits = JointLimits(
            lower=self.plant.GetPositionLowerLimits(),
            upper=self.plant.GetPositionUpperLimits(),
            speed=self.plant.GetVelocityUpperLimits(),
            effort=self.plant.GetEffortUpperLimits(),
        )

    def set_payload(self, M_E: SpatialInertia) -> None:
        """Sets the spatial inertia of what the hand holds, about E, expressed in E."""
        self._payload.SetSpatialInertiaInBodyFrame(self.context, M_E)

    def set_state(self, x: np.ndarray) -> None:
        """Sets joint positions and velocities, (14,)."""
        self.plant.SetPositionsAndVelocities(self.context, x)

    def pose(self) -> RigidTransform:
        """Returns X_WE."""
        return self._end_effector.CalcPoseInWorld(self.context)

    def jacobian(self) -> np.ndarray:
        """Returns J with V_WE = J v, (6, 7)."""
        return self.plant.CalcJacobianSpatialVelocity(
            self.context,
            JacobianWrtVariable.kV,
            self._end_effector,
            _ORIGIN,
            self._world,
            self._world,
        )

    def mass_matrix(self) -> np.ndarray:
        """Returns M, (7, 7), kg m^2."""
        return self.plant.CalcMassMatrix(self.context)

    def dynamics(self) -> Dynamics:
        """Returns the terms of the equation of motion at the present state."""
        plant, context = self.plant, self.context
        Jdot_v = plant.CalcBiasSpatialAcceleration(
            context, JacobianWrtVariable.kV, self._end_effector, _ORIGIN, self._world, self._world
        )
        plant.CalcForceElementsContribution(context, self._forces)  # gravity
        return Dynamics(
            M=self.mass_matrix(),
            bias=plant.CalcInverseDynamics(context, _NO_ACCELERATION, self._forces),
            J=self.jacobian(),
            Jdot_v=Jdot_v.get_coeffs(),
        )


_ORIGIN = np.zeros(3)
_NO_ACCELERATION = np.zeros(NUM_JOINTS)
