"""The controller's model of the arm with a tool in its hand."""

import numpy as np
from pydrake.math import RigidTransform
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import RevoluteJoint, RigidBody, SpatialInertia

from fleet_tools.robot.limits import JointLimits
from fleet_tools.robot.osc import Dynamics
from fleet_tools.robot.panda import END_EFFECTOR, NUM_JOINTS, add_panda
from fleet_tools.robot.serial_arm import SerialArm, equation_of_motion
from fleet_tools.utils.straight_line import pack, straight_line


class ArmModel:
    """Kinematics and dynamics of the arm with what its hand holds.

    They are read from the model file through a plant of Drake's and computed by
    `fleet_tools.robot.serial_arm`: in the controller, which asks for them in every simulation step,
    the calls of the plant alone took a fifth of a step.

    Attributes:
        plant: Plant of the arm and its payload.
        context: Its context, whose state nothing depends on.
        limits: Limits of the joints, as the model file declares them.
        serial_arm: The arm with what its hand holds.
        packed: `serial_arm` and the limits, for compiled functions.
    """

    def __init__(self) -> None:
        self.plant = MultibodyPlant(time_step=0.0)
        arm = add_panda(self.plant)
        self._end_effector = self.plant.GetFrameByName(END_EFFECTOR)
        self._payload = self.plant.AddRigidBody("payload", arm, SpatialInertia.Zero())
        self.plant.WeldFrames(self._end_effector, self._payload.body_frame())
        self.plant.Finalize()
        self.context = self.plant.CreateDefaultContext()
        self.limits = JointLimits(
            lower=self.plant.GetPositionLowerLimits(),
            upper=self.plant.GetPositionUpperLimits(),
            speed=self.plant.GetVelocityUpperLimits(),
            effort=self.plant.GetEffortUpperLimits(),
        )
        self._pack()

    def set_payload(self, M_E: SpatialInertia) -> None:
        """Sets the spatial inertia of what the hand holds, about E, expressed in E."""
        self._payload.SetSpatialInertiaInBodyFrame(self.context, M_E)
        self._pack()

    def dynamics(self, q: np.ndarray, v: np.ndarray) -> tuple[Dynamics, np.ndarray]:
        """Returns the terms of the equation of motion, and X_WE as a (3, 4) matrix.

        Args:
            q: (7,), joint positions, rad.
            v: (7,), joint velocities, rad/s.
        """
        M, bias, J, Jdot_v, X_WE = _equation_of_motion(self.packed, q, v)
        return Dynamics(M, bias, J, Jdot_v), X_WE

    def _pack(self) -> None:
        self.serial_arm = self._read()
        self.packed = pack(self.serial_arm, self.limits)

    def _read(self) -> SerialArm:
        """Reads the arm from the plant; what is welded to a link belongs to it."""
        plant, context = self.plant, self.context
        joints = [plant.GetJointByName(f"panda_joint{i + 1}") for i in range(NUM_JOINTS)]
        assert all(isinstance(j, RevoluteJoint) and j.revolute_axis()[2] == 1.0 for j in joints)
        placements = [joint.frame_on_parent().GetFixedPoseInBodyFrame() for joint in joints]
        links = [joint.child_body() for joint in joints]
        inertias = [self._inertia_with_welded(link) for link in links]
        coms = [M_L.get_com() for M_L in inertias]
        central = [M_L.Shift(com) for M_L, com in zip(inertias, coms, strict=True)]
        at_zero = plant.CreateDefaultContext()
        X_LE: RigidTransform = self._end_effector.CalcPose(at_zero, links[-1].body_frame())
        actuators = map(plant.get_joint_actuator, plant.GetJointActuatorIndices())
        return SerialArm(
            R=np.array([X.rotation().matrix() for X in placements]),
            p=np.array([X.translation() for X in placements]),
            mass=np.array([M_L.get_mass() for M_L in inertias]),
            com=np.array(coms),
            inertia=np.array([M.CalcRotationalInertia().CopyToFullMatrix3() for M in central]),
            rotor_inertia=np.array([a.calc_reflected_inertia(context) for a in actuators]),
            R_LE=np.ascontiguousarray(X_LE.rotation().matrix()),
            p_LE=np.array(X_LE.translation()),
            gravity=-plant.gravity_field().gravity_vector()[2],
        )

    def _inertia_with_welded(self, link: RigidBody) -> SpatialInertia:
        welded = [body.index() for body in self.plant.GetBodiesWeldedTo(link)]
        return self.plant.CalcSpatialInertia(self.context, link.body_frame(), welded)


@straight_line
def _equation_of_motion(model: tuple[SerialArm, JointLimits], q: np.ndarray, v: np.ndarray):
    return equation_of_motion(model[0], q, v)
