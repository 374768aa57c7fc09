"""Drake models of an arm: in the world's plant, and in the controller with a tool."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from pydrake.math import RigidTransform, RotationMatrix
from pydrake.multibody.parsing import Parser
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import (
    JointActuator,
    ModelInstanceIndex,
    RevoluteJoint,
    RigidBody,
    SpatialInertia,
)

from fleet_tools.config.distributions import Distribution, bounds
from fleet_tools.config.tasks import TaskConfig
from fleet_tools.errors import ConfigError, UnknownNameError, require_name
from fleet_tools.robot.arm import LIGHT, Arm
from fleet_tools.robot.limits import JointLimits
from fleet_tools.robot.osc import Dynamics, external_wrench
from fleet_tools.robot.serial_arm import SerialArm, equation_of_motion
from fleet_tools.utils.straight_line import pack, straight_line
from fleet_tools.utils.symbols import zeros

PARSER_ERRORS = (RuntimeError, ValueError, SystemExit)
"""Errors of Drake's parser; a failed assertion of Drake is a SystemExit."""


def add_arm(plant: MultibodyPlant, robot: Arm, visuals: str = LIGHT) -> ModelInstanceIndex:
    """Adds an arm, with its base fixed to the world.

    Args:
        plant: Plant that is not finalized yet.
        robot: The arm.
        visuals: Name of its visual meshes.

    Raises:
        UnknownNameError: It has no such meshes.
        ConfigError: The model is not of such an arm.
    """
    file = robot.model_file(visuals)
    try:
        instances = Parser(plant).AddModels(file)
    except PARSER_ERRORS as error:
        raise ConfigError(f"Drake cannot read {file}: {error}") from error
    if len(instances) != 1:
        raise ConfigError(f"{file} must hold exactly one model; it holds {len(instances)}.")
    (arm,) = instances
    _require_parts(plant, arm, robot, file.name)
    base = plant.GetFrameByName(robot.base_link, arm)
    plant.WeldFrames(plant.world_frame(), base, robot.base_pose.to_transform())
    for name, limit in robot.limits.items():
        joint = plant.GetJointByName(name, arm)
        if limit.position_rad is not None:
            joint.set_position_limits(*([bound] for bound in limit.position_rad))
        if limit.speed_rad_s is not None:
            joint.set_velocity_limits([-limit.speed_rad_s], [limit.speed_rad_s])
        if limit.torque_nm is not None:
            _actuators(plant, arm)[name].set_effort_limit(limit.torque_nm)
    return arm


def joint_limits(robot: Arm) -> JointLimits:
    """Returns the limits of an arm's joints.

    Raises:
        ConfigError: The model is not of such an arm, or has a joint without limits.
    """
    return _joint_limits(robot, robot.stamp())


@lru_cache(maxsize=8)
def _joint_limits(robot: Arm, _: int) -> JointLimits:
    return ArmModel(robot).limits


def require_positions(
    robot: Arm, given: Sequence[float] | Sequence[Distribution], source: str
) -> None:
    """Checks joint positions, or their distributions.

    Args:
        robot: The arm.
        given: Positions or distributions, rad.
        source: What gives them, such as "The scene".

    Raises:
        ConfigError: They are of another number of joints, or not within the limits.
    """
    robot.require_joints(len(given), source)
    limits = joint_limits(robot)
    for i, (drawn, low, high) in enumerate(zip(given, limits.lower, limits.upper, strict=True)):
        for number in bounds(drawn):
            if not low <= number <= high:
                raise ConfigError(
                    f"{source}: initial_joints_rad.{i}: expected a position from {low:.5g} to "
                    f"{high:.5g} rad, the limits of {robot.joints[i]}; given: {number:g}"
                )


def fitted_task(robot: Arm, task: TaskConfig) -> TaskConfig:
    """Returns a task with an arm's numbers where its file leaves them to the robot.

    Raises:
        UnknownNameError, ConfigError: See `Arm.fill` and `require_positions`.
    """
    fitted = robot.fill(task)
    drawn = fitted.randomization.initial_joints_rad
    assert not isinstance(drawn, str)
    require_positions(robot, drawn, f"The task {task.name!r}")
    return fitted


class ArmModel:
    """Kinematics and dynamics of the arm with the tool in its hand.

    They are read from the model file through a plant of Drake's, and computed by
    `fleet_tools.robot.serial_arm`. The controller asks for them in every simulation step, where the
    calls of the plant alone took a fifth of a step.

    Args:
        robot: The arm.

    Attributes:
        plant: Plant of the arm and its payload.
        context: Its context, whose state nothing depends on.
        limits: Limits of the joints.
        serial_arm: The arm with what its hand holds.
        packed: `serial_arm` and the limits, for compiled functions.

    Raises:
        ConfigError: The model is not of such an arm, or has a joint without limits.
    """

    def __init__(self, robot: Arm) -> None:
        self.plant = MultibodyPlant(time_step=0.0)
        arm = add_arm(self.plant, robot)
        self._robot, self._arm = robot, arm
        self._end_effector = self.plant.GetFrameByName(robot.end_effector, arm)
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
        for name, *numbers in zip(robot.joints, *self.limits, strict=True):
            if not np.isfinite(numbers).all():
                raise ConfigError(
                    f"The joint {name} of the robot {robot.name!r} needs limits of position, speed "
                    f"and torque, in {robot.model_file()} or under `limits` in {robot.file}."
                )
        self._pack()

    @property
    def num_joints(self) -> int:
        """Number of joints, n."""
        return self._robot.num_joints

    def set_payload(self, M_E: SpatialInertia) -> None:
        """Sets the spatial inertia of the tool in the hand, about E, expressed in E."""
        self._payload.SetSpatialInertiaInBodyFrame(self.context, M_E)
        self._pack()

    def dynamics(self, q: np.ndarray, v: np.ndarray) -> tuple[Dynamics, np.ndarray]:
        """Returns the terms of the equation of motion, and X_WE as a (3, 4) matrix.

        Args:
            q: (n,), joint positions, rad.
            v: (n,), joint velocities, rad/s.
        """
        M, bias, J, Jdot_v, X_WE = _equation_of_motion(self.packed, q, v)
        return Dynamics(M, bias, J, Jdot_v), X_WE

    def external_wrench(self, q: np.ndarray, tau_external: np.ndarray) -> np.ndarray:
        """Returns `osc.external_wrench` at joint positions q, (6,), about E, expressed in W."""
        return _external_wrench(self.packed, q, tau_external)

    def _pack(self) -> None:
        self.serial_arm = self._read()
        self.packed = pack(self.serial_arm, self.limits)

    def _read(self) -> SerialArm:
        """Reads the arm from the plant; what is welded to a link belongs to it."""
        plant, context = self.plant, self.context
        joints = [self._joint(name) for name in self._robot.joints]
        links = [joint.child_body() for joint in joints]
        X_DL = [_axis_frame(joint) for joint in joints]  # D: Drake's frame of the link
        placements = [self._placement(joint) for joint in joints]
        for i, X in enumerate(X_DL):
            placements[i] = _product(placements[i], X)
            if i > 0:
                placements[i] = _product(X_DL[i - 1].inverse(), placements[i])
        inertias = [
            _moved(self._inertia_with_welded(link), X) for link, X in zip(links, X_DL, strict=True)
        ]
        coms = [M_L.get_com() for M_L in inertias]
        central = [M_L.Shift(com) for M_L, com in zip(inertias, coms, strict=True)]
        at_zero = plant.CreateDefaultContext()
        X_DE = self._end_effector.CalcPose(at_zero, links[-1].body_frame())
        X_LE = _product(X_DL[-1].inverse(), X_DE)
        actuators = _actuators(plant, self._arm)
        return SerialArm(
            R=np.array([X.rotation().matrix() for X in placements]),
            p=np.array([X.translation() for X in placements]),
            mass=np.array([M_L.get_mass() for M_L in inertias]),
            com=np.array(coms),
            inertia=np.array([M.CalcRotationalInertia().CopyToFullMatrix3() for M in central]),
            rotor_inertia=np.array(
                [actuators[j.name()].calc_reflected_inertia(context) for j in joints]
            ),
            R_LE=np.ascontiguousarray(X_LE.rotation().matrix()),
            p_LE=np.array(X_LE.translation()),
            gravity=-plant.gravity_field().gravity_vector()[2],
        )

    def _joint(self, name: str) -> RevoluteJoint:
        joint = self.plant.GetJointByName(name, self._arm)
        assert isinstance(joint, RevoluteJoint)  # see `_require_parts`
        return joint

    def _placement(self, joint: RevoluteJoint) -> RigidTransform:
        """Returns the pose of a joint's frame in the link before it, or in the world.

        Raises:
            ConfigError: The joint is not in the row of the arm's joints.
        """
        names = self._robot.joints
        k = names.index(joint.name())
        before = self.plant.world_body()
        if k > 0:
            before = self._joint(names[k - 1]).child_body()
        parent = joint.parent_body()
        if parent.index() not in {body.index() for body in self.plant.GetBodiesWeldedTo(before)}:
            raise ConfigError(
                f"The joints of {self._robot.file} must form one chain from the base to the hand: "
                f"{joint.name()} does not follow {names[k - 1] if k else 'the base'}."
            )
        at_zero = self.plant.CreateDefaultContext()
        X_PB = parent.body_frame().CalcPose(at_zero, before.body_frame())
        return _product(X_PB, joint.frame_on_parent().GetFixedPoseInBodyFrame())

    def _inertia_with_welded(self, link: RigidBody) -> SpatialInertia:
        welded = [body.index() for body in self.plant.GetBodiesWeldedTo(link)]
        return self.plant.CalcSpatialInertia(self.context, link.body_frame(), welded)


def _require_parts(plant: MultibodyPlant, arm: ModelInstanceIndex, robot: Arm, file: str) -> None:
    """Checks that a model has what the arm's file names, and nothing else that moves.

    Raises:
        UnknownNameError: It lacks a link, a frame or a joint.
        ConfigError: It has other joints, or its motors are not the joints' in order.
    """
    links = [plant.get_body(i).name() for i in plant.GetBodyIndices(arm)]
    require_name(f"link in {file}", robot.base_link, links)
    if not plant.HasFrameNamed(robot.end_effector, arm):
        frames = [plant.get_frame(i).name() for i in plant.GetFrameIndices(arm)]
        raise UnknownNameError(f"frame in {file}", robot.end_effector, frames)
    joints = [plant.get_joint(i) for i in plant.GetJointIndices(arm)]
    for name in robot.joints:
        require_name(f"joint in {file}", name, [joint.name() for joint in joints])
    for joint in joints:
        if joint.num_velocities() and not (
            joint.name() in robot.joints and isinstance(joint, RevoluteJoint)
        ):
            raise ConfigError(
                f"{file}: the joint {joint.name()} can move, but it is not among the joints that "
                f"{robot.file} names. Make it a fixed joint, such as those of fingers around a "
                "tool."
            )
    driven = list(_actuators(plant, arm))
    if driven != list(robot.joints):
        raise ConfigError(
            f"{file} must have one actuator for each of the joints that {robot.file} names, in "
            f"their order; it has actuators for {', '.join(driven) or 'none'}."
        )


def _actuators(plant: MultibodyPlant, arm: ModelInstanceIndex) -> dict[str, JointActuator]:
    """Returns the actuators by the names of their joints."""
    found = map(plant.get_joint_actuator, plant.GetJointActuatorIndices())
    return {a.joint().name(): a for a in found if a.model_instance() == arm}


def _axis_frame(joint: RevoluteJoint) -> RigidTransform:
    """Returns the pose, in a joint's child, of the frame about whose z axis it turns."""
    X_DM = joint.frame_on_child().GetFixedPoseInBodyFrame()
    axis = joint.revolute_axis()
    if axis[2] == 1.0:
        return X_DM
    return X_DM @ RigidTransform(RotationMatrix.MakeFromOneVector(axis, 2))


def _product(X_AB: RigidTransform, X_BC: RigidTransform) -> RigidTransform:
    """Returns X_AC; without an identity's arithmetic, which loses the signs of zeros."""
    if X_AB.IsExactlyIdentity():
        return X_BC
    return X_AB if X_BC.IsExactlyIdentity() else X_AB @ X_BC


def _moved(M_D: SpatialInertia, X_DL: RigidTransform) -> SpatialInertia:
    """Returns a spatial inertia about and in another frame."""
    if X_DL.IsExactlyIdentity():
        return M_D
    return M_D.Shift(X_DL.translation()).ReExpress(X_DL.rotation().inverse())


@straight_line
def _equation_of_motion(model: tuple[SerialArm, JointLimits], q: np.ndarray, v: np.ndarray):
    return equation_of_motion(model[0], q, v)


@straight_line
def _external_wrench(model: tuple[SerialArm, JointLimits], q: np.ndarray, tau: np.ndarray):
    _, _, J, _, _ = equation_of_motion(model[0], q, zeros(q.size))
    return external_wrench(J, tau)
