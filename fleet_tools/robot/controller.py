"""The operational-space controller as a Drake system, with its reference trajectory."""

import math
import weakref
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from pydrake.common.value import AbstractValue
from pydrake.math import RigidTransform
from pydrake.systems.framework import BasicVector, Context, DiscreteValues, LeafSystem

from fleet_tools.config.control import TIME_STEP
from fleet_tools.robot.arm import ControllerGains
from fleet_tools.robot.arm_model import ArmModel
from fleet_tools.robot.limits import JointLimits, limited_torque, motion_scale
from fleet_tools.robot.osc import (
    Dynamics,
    Gains,
    Path,
    operational_space_acceleration,
    tracking_acceleration,
    turning,
)
from fleet_tools.robot.pose_delta import displace, displacement
from fleet_tools.robot.serial_arm import SerialArm, equation_of_motion
from fleet_tools.utils.straight_line import pack, straight_line
from fleet_tools.utils.symbols import zeros

_AT_REST = np.zeros(6)
_AT_THE_END = 1.0 + 1e-9  # as far as rounding of times goes
_ROUNDING = 1e-6  # of times, in periods

NEAR_M, NEAR_RAD = 6e-4, 3e-3
"""Distance and angle up to which the hand counts as being where it was commanded to be. A load that
the controller does not know, such as a slab on the blade, deflects the hand by less; contact with
what does not yield deflects it by more."""


@dataclass(frozen=True, eq=False)
class Reference:
    """A motion of the end effector in its own frame, and a posture of the arm.

    Attributes:
        X_WE: Initial pose of the end effector.
        delta: (6,), translation (m), then rotation vector (rad), in the initial frame.
        start: Start time, s.
        duration: Duration, s; the final pose is held afterwards.
        posture: (n,), joint positions to which the arm returns in the null space, rad.
        scale: Part of the motion that is made, at most 1; less where joint limits ask for it.
    """

    X_WE: RigidTransform
    delta: np.ndarray
    start: float
    duration: float
    posture: np.ndarray
    scale: float = 1.0

    def __deepcopy__(self, _: Any) -> "Reference":
        """Returns itself: it is a value, which Drake would copy for each port."""
        return self

    @property
    def end(self) -> RigidTransform:
        """Its final pose, X_WE."""
        return displace(self.X_WE, self.scale * self.delta)

    def continued_from(self, X_WE: RigidTransform) -> RigidTransform:
        """Returns where the next motion starts: at this one's end, if the end effector is near it.

        A start at the present pose would let a loaded hand sink a little in every control step. A
        start at the end, wherever the hand is, would let the force on an obstacle grow.

        Args:
            X_WE: Present pose of the end effector.
        """
        end = self.end
        gap = displacement(X_WE, end)
        near = math.hypot(*gap[:3]) <= NEAR_M and math.hypot(*gap[3:]) <= NEAR_RAD
        return end if near else X_WE

    @cached_property
    def path(self) -> Path:
        """Its path: `fleet_tools.robot.pose_delta.displace(X_WE, delta, scale * fraction)`."""
        R_WE = self.X_WE.rotation()
        dp, rotation = self._displacements
        angle = math.hypot(*rotation)
        axis = rotation / angle if angle > 1e-100 else np.zeros(3)
        R = np.ascontiguousarray(R_WE.matrix())
        KR, KKR = turning(axis, R)  # and not by `@`, whose rounding depends on the processor
        return Path(self.X_WE.translation(), dp, R, KR, KKR, angle)

    @cached_property
    def packed(self) -> tuple[Path, np.ndarray]:
        """The path and the posture, for compiled functions."""
        return pack(self.path, self.posture)

    def at(self, time: float) -> tuple[float, np.ndarray]:
        """Returns the fraction of the path, and the spatial velocity (6,) of E in W.

        The velocity stays constant up to the very end, where contact is measured: with zero
        velocity there, braking would act like a force.
        """
        fraction = (time - self.start) / self.duration
        if 0.0 <= fraction <= 1.0:
            return fraction, self._velocity
        V = self._velocity if 0.0 <= fraction <= _AT_THE_END else _AT_REST
        return float(fraction > 0.0), V

    @cached_property
    def _velocity(self) -> np.ndarray:
        dp, rotation = self._displacements
        return np.concatenate([rotation, dp]) / self.duration

    @cached_property
    def _displacements(self) -> tuple[np.ndarray, np.ndarray]:
        """Translation (m) and rotation vector (rad) of the whole path, in the world."""
        R_WE, motion = self.X_WE.rotation(), self.scale * self.delta
        return R_WE @ motion[:3], R_WE @ motion[3:]


class OperationalSpaceController(LeafSystem):
    """Drives the arm along a reference.

    Input ports: `arm_state` (q and v of n joints) and `reference` (a `Reference`).
    Output port: `torques_and_binding`, the result of `limited_torque` (4 n entries); one port for
    both, since what Drake computes for a port in Python costs much of a simulation step.

    Args:
        model: Model of the arm.
        gains: Gains of the arm.
        time_step: Time step of the dynamics, s; torques are held for those in a `TIME_STEP`.
    """

    def __init__(
        self, model: ArmModel, gains: ControllerGains, *, time_step: float = TIME_STEP
    ) -> None:
        super().__init__()
        self._model, self._held = model, time_step < TIME_STEP
        packed = pack(Gains(gains.rotation_rad_s, gains.translation_rad_s, gains.posture_rad_s))
        # A Python system that keeps its ports, or a bound method, is never freed; so it keeps
        # their indices.
        n = model.num_joints
        arm_state = self.DeclareVectorInputPort("arm_state", 2 * n)
        at_rest = Reference(RigidTransform(), np.zeros(6), 0.0, 1.0, np.zeros(n))
        self._law = _control_law.bind(
            model.packed, packed, np.zeros(2 * n), at_rest.packed, 0.0, _AT_REST
        )
        reference = self.DeclareAbstractInputPort("reference", AbstractValue.Make(at_rest))
        self._arm_state, self._reference = int(arm_state.get_index()), int(reference.get_index())
        this = weakref.ref(self)

        def calc(context: Context, output: BasicVector) -> None:
            system = this()
            assert system is not None  # Drake calls it only while the diagram lives
            system._calc_actuation(context, output)

        port = int(self.DeclareVectorOutputPort("torques_and_binding", 4 * n, calc).get_index())

        def update(context: Context, values: DiscreteValues) -> None:
            system = this()
            assert system is not None
            torques = system.get_output_port(port).Eval(context)
            values.get_mutable_vector().SetFromVector(torques)

        self.update_callback = update  # nothing else keeps it alive, after `release_cycles`
        if self._held:
            # No zero-order hold of Drake, which would add a period of delay.
            self.DeclareDiscreteState(4 * n)
            self.DeclarePeriodicDiscreteUpdateEvent(time_step, 0.0, update)

    def _calc_actuation(self, context: Context, output: BasicVector) -> None:
        time = context.get_time()
        if self._held and abs(time / TIME_STEP - round(time / TIME_STEP)) > _ROUNDING:
            output.SetFrom(context.get_discrete_state_vector())
            return
        reference: Reference = self.EvalAbstractInput(context, self._reference).get_value()
        law = self._law
        _, _, state, _, fraction, V_WD = law.inputs  # D: desired
        law.put(0, self._model.packed)
        law.put(3, reference.packed)
        state[:] = self.EvalVectorInput(context, self._arm_state).value()
        fraction[()], V_WD[:] = reference.at(time)
        output.SetFromVector(law())


@straight_line
def _control_law(
    model: tuple[SerialArm, JointLimits],
    gains: tuple[Gains],
    state: np.ndarray,
    motion: tuple[Path, np.ndarray],
    fraction: float,
    V_WD: np.ndarray,
) -> np.ndarray:
    """Returns the result of `limited_torque` for the acceleration of `tracking_acceleration`.

    Args:
        model: The arm, and the limits of its joints.
        gains: Natural frequencies of the errors.
        state: (2 n,), joint positions and velocities, rad and rad/s.
        motion: Path of the desired pose, and posture.
        fraction: Fraction of the path, at which the desired pose is.
        V_WD: (6,), desired spatial velocity, rad/s and m/s.
    """
    (arm, limits), (path, posture), n = model, motion, state.size // 2
    q, v = state[:n], state[n:]
    M, bias, J, Jdot_v, X_WE = equation_of_motion(arm, q, v)
    dynamics = Dynamics(M, bias, J, Jdot_v)
    vdot = tracking_acceleration(dynamics, *gains, q, v, X_WE, path, fraction, V_WD, posture)
    return limited_torque(vdot, M, bias, q, v, limits)


def within_limits(reference: Reference, model: ArmModel, q: np.ndarray) -> Reference:
    """Returns a reference with as much of its motion as the joints' limits allow in its duration.

    Args:
        reference: The whole motion, which begins near the arm's present pose.
        model: Model of the arm.
        q: (n,), joint positions, rad.
    """
    _, V_WE = reference.at(reference.start)
    return replace(reference, scale=_scale(model.packed, q, V_WE))


@straight_line
def _scale(model: tuple[SerialArm, JointLimits], q: np.ndarray, V_WE: np.ndarray) -> float:
    """Returns the `motion_scale` of a motion.

    Args:
        model: The arm, and the limits of its joints.
        q: (n,), joint positions, rad.
        V_WE: (6,), spatial velocity of the motion, rad/s and m/s.
    """
    (arm, limits), at_rest = model, zeros(q.size)
    M, _, J, _, _ = equation_of_motion(arm, q, at_rest)
    return motion_scale(operational_space_acceleration(M, J, V_WE, at_rest), q, limits)
