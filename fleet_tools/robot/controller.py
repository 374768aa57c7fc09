"""The operational-space controller as a Drake system."""

import weakref
from dataclasses import dataclass

import numpy as np
from pydrake.common.value import AbstractValue
from pydrake.math import RigidTransform
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import JacobianWrtVariable, JointActuatorIndex, SpatialInertia
from pydrake.systems.framework import BasicVector, Context, LeafSystem

from fleet_tools.motions import displace, rotation_vector
from fleet_tools.robot.osc import Dynamics, critically_damped, operational_space_torque
from fleet_tools.robot.panda import END_EFFECTOR, NUM_JOINTS, add_panda
from fleet_tools.tasks import ControllerGains


@dataclass(frozen=True)
class Reference:
    """Where the end effector shall go: from a pose, by a motion in its own frame, and in what time.

    Attributes:
        X_WE: The pose at the start.
        motion: (6,), translation (m), then rotation vector (rad), in the frame of the start.
        start: Time at the start, s.
        duration: Time it takes, s; the pose is held afterwards.
    """

    X_WE: RigidTransform
    motion: np.ndarray
    start: float
    duration: float

    def at(self, time: float) -> tuple[RigidTransform, np.ndarray]:
        """Returns the pose wanted at a time, and its spatial velocity V_WE, (6,)."""
        fraction = (time - self.start) / self.duration
        X_WE = displace(self.X_WE, self.motion, min(max(fraction, 0.0), 1.0))
        if not 0.0 <= fraction < 1.0:
            return X_WE, np.zeros(6)
        R_WE = self.X_WE.rotation()
        rate = self.motion / self.duration
        return X_WE, np.concatenate([R_WE @ rate[3:], R_WE @ rate[:3]])


class ArmModel:
    """The arm with a tool in its hand, as the controller knows it: a plant of its own."""

    def __init__(self) -> None:
        self.plant = MultibodyPlant(time_step=0.0)
        self.arm = add_panda(self.plant)
        self.end_effector = self.plant.GetFrameByName(END_EFFECTOR)
        self._payload = self.plant.AddRigidBody("payload", self.arm, SpatialInertia.Zero())
        self.plant.WeldFrames(self.end_effector, self._payload.body_frame())
        self.plant.Finalize()
        self.context = self.plant.CreateDefaultContext()
        actuators = [
            self.plant.get_joint_actuator(JointActuatorIndex(i)) for i in range(NUM_JOINTS)
        ]
        self.effort_limit = np.array([actuator.effort_limit() for actuator in actuators])

    def hold(self, M_E: SpatialInertia) -> None:
        """Tells the model what is in the hand: a spatial inertia about E, expressed in E."""
        self._payload.SetSpatialInertiaInBodyFrame(self.context, M_E)

    def set_state(self, q: np.ndarray, v: np.ndarray) -> None:
        """Sets joint positions and velocities, (7,) each."""
        self.plant.SetPositionsAndVelocities(self.context, np.concatenate([q, v]))

    def pose(self) -> RigidTransform:
        """Returns X_WE."""
        return self.end_effector.CalcPoseInWorld(self.context)

    def velocity(self) -> np.ndarray:
        """Returns V_WE, (6,)."""
        return self.end_effector.CalcSpatialVelocityInWorld(self.context).get_coeffs()

    def jacobian(self) -> np.ndarray:
        """Returns J with V_WE = J v, (6, 7)."""
        world = self.plant.world_frame()
        return self.plant.CalcJacobianSpatialVelocity(
            self.context, JacobianWrtVariable.kV, self.end_effector, np.zeros(3), world, world
        )

    def dynamics(self) -> Dynamics:
        """Returns the terms of the equation of motion at the present state."""
        world = self.plant.world_frame()
        Jdot_v = self.plant.CalcBiasSpatialAcceleration(
            self.context, JacobianWrtVariable.kV, self.end_effector, np.zeros(3), world, world
        )
        gravity = self.plant.CalcGravityGeneralizedForces(self.context)
        return Dynamics(
            M=self.plant.CalcMassMatrix(self.context),
            bias=self.plant.CalcBiasTerm(self.context) - gravity,
            J=self.jacobian(),
            Jdot_v=Jdot_v.get_coeffs(),
        )


class OperationalSpaceController(LeafSystem):
    """Drives the end effector along a reference; the elbow goes back to a posture meanwhile.

    Input ports: `arm_state` (q, v: 14), `reference` (a `Reference`), `posture` (q: 7).
    Output port: `arm_actuation` (7, N m).
    """

    def __init__(self, model: ArmModel, gains: ControllerGains) -> None:
        super().__init__()
        self._model = model
        self._frequency = np.repeat([gains.rotation_rad_s, gains.translation_rad_s], 3)
        self._posture_frequency = gains.posture_rad_s
        # A Python system that keeps its ports, or a bound method, is never freed; so it keeps
        # their indices.
        self._arm_state = self.DeclareVectorInputPort("arm_state", 2 * NUM_JOINTS).get_index()
        still = AbstractValue.Make(Reference(RigidTransform(), np.zeros(6), 0.0, 1.0))
        self._reference = self.DeclareAbstractInputPort("reference", still).get_index()
        self._posture = self.DeclareVectorInputPort("posture", NUM_JOINTS).get_index()
        calc = weakref.WeakMethod(self._calc_actuation)
        self.DeclareVectorOutputPort(
            "arm_actuation", NUM_JOINTS, lambda context, output: calc()(context, output)
        )

    def _calc_actuation(self, context: Context, output: BasicVector) -> None:
        model = self._model
        state = self.EvalVectorInput(context, self._arm_state).value()
        q, v = state[:NUM_JOINTS], state[NUM_JOINTS:]
        model.set_state(q, v)
        X_WE, V_WE = model.pose(), model.velocity()
        reference = self.EvalAbstractInput(context, self._reference).get_value()
        posture = self.EvalVectorInput(context, self._posture).value()
        X_WD, V_WD = reference.at(context.get_time())  # D: desired
        error = np.concatenate(
            [
                rotation_vector(X_WD.rotation() @ X_WE.rotation().inverse()),
                X_WD.translation() - X_WE.translation(),
            ]
        )
        A_WE = critically_damped(error, V_WD - V_WE, self._frequency)
        vdot_posture = critically_damped(posture - q, -v, self._posture_frequency)
        output.SetFromVector(
            operational_space_torque(model.dynamics(), A_WE, vdot_posture, model.effort_limit)
        )
