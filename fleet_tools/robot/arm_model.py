"""The controller's model of the arm with a tool in its hand: a plant of its own."""

import numpy as np
from pydrake.math import RigidTransform
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import (
    JacobianWrtVariable,
    JointActuatorIndex,
    MultibodyForces,
    SpatialInertia,
)

from fleet_tools.robot.osc import Dynamics
from fleet_tools.robot.panda import END_EFFECTOR, NUM_JOINTS, add_panda


class ArmModel:
    """Kinematics and dynamics of the arm at the state that was set last.

    Attributes:
        effort_limit: (7,), torque limits of the joints, N m.
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
        actuators = map(self.plant.get_joint_actuator, map(JointActuatorIndex, range(NUM_JOINTS)))
        self.effort_limit = np.array([actuator.effort_limit() for actuator in actuators])

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

    def dynamics(self) -> Dynamics:
        """Returns the terms of the equation of motion at the present state."""
        plant, context = self.plant, self.context
        Jdot_v = plant.CalcBiasSpatialAcceleration(
            context, JacobianWrtVariable.kV, self._end_effector, _ORIGIN, self._world, self._world
        )
        plant.CalcForceElementsContribution(context, self._forces)  # gravity
        return Dynamics(
            M=plant.CalcMassMatrix(context),
            bias=plant.CalcInverseDynamics(context, _NO_ACCELERATION, self._forces),
            J=self.jacobian(),
            Jdot_v=Jdot_v.get_coeffs(),
        )


_ORIGIN = np.zeros(3)
_NO_ACCELERATION = np.zeros(NUM_JOINTS)
