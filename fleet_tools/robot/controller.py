"""The operational-space controller as a Drake system."""

import weakref

import numpy as np
from pydrake.common.value import AbstractValue
from pydrake.math import RigidTransform
from pydrake.systems.framework import BasicVector, Context, LeafSystem

from fleet_tools.config.tasks import ControllerGains
from fleet_tools.robot.arm_model import ArmModel
from fleet_tools.robot.osc import critically_damped, operational_space_torque, orientation_error
from fleet_tools.robot.panda import NUM_JOINTS
from fleet_tools.robot.reference import Reference


class OperationalSpaceController(LeafSystem):
    """Drives the arm along a reference.

    Input ports: `arm_state` (q and v, 14 entries) and `reference` (a `Reference`).
    Output port: `arm_actuation` (7 joint torques, N m).

    Args:
        model: Model of the arm, whose state is scratch space.
        gains: Gains from the task file.
    """

    def __init__(self, model: ArmModel, gains: ControllerGains) -> None:
        super().__init__()
        self._model = model
        self._frequency = np.repeat([gains.rotation_rad_s, gains.translation_rad_s], 3)
        self._posture_frequency = gains.posture_rad_s
        # A Python system that keeps its ports, or a bound method, is never freed; so it keeps
        # their indices.
        arm_state = self.DeclareVectorInputPort("arm_state", 2 * NUM_JOINTS)
        at_rest = Reference(RigidTransform(), np.zeros(6), 0.0, 1.0, np.zeros(NUM_JOINTS))
        reference = self.DeclareAbstractInputPort("reference", AbstractValue.Make(at_rest))
        self._arm_state, self._reference = int(arm_state.get_index()), int(reference.get_index())
        this = weakref.ref(self)

        def calc(context: Context, output: BasicVector) -> None:
            system = this()
            assert system is not None  # Drake calls it only while the diagram lives
            system._calc_actuation(context, output)

        self.DeclareVectorOutputPort("arm_actuation", NUM_JOINTS, calc)

    def _calc_actuation(self, context: Context, output: BasicVector) -> None:
        model = self._model
        state = self.EvalVectorInput(context, self._arm_state).value()
        q, v = state[:NUM_JOINTS], state[NUM_JOINTS:]
        model.set_state(state)
        X_WE, dynamics = model.pose().GetAsMatrix34(), model.dynamics()
        reference: Reference = self.EvalAbstractInput(context, self._reference).get_value()
        p_WD, R_WD, V_WD = reference.at(context.get_time())  # D: desired
        error = np.empty(6)
        error[:3] = orientation_error(R_WD, X_WE[:, :3])
        error[3:] = p_WD - X_WE[:, 3]
        A_WE = critically_damped(error, V_WD - dynamics.J @ v, self._frequency)
        vdot_posture = critically_damped(reference.posture - q, -v, self._posture_frequency)
        output.SetFromVector(
            operational_space_torque(dynamics, A_WE, vdot_posture, model.effort_limit)
        )
