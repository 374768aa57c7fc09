"""Contact as Drake's solver finds it: who touches whom, how hard, and what that does to joints."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from pydrake.geometry import SceneGraph
from pydrake.multibody.math import SpatialForce
from pydrake.multibody.plant import MultibodyPlant
from pydrake.multibody.tree import Joint, ModelInstanceIndex, RigidBody
from pydrake.systems.framework import Context, DiagramBuilder
from pydrake.systems.primitives import DiscreteTimeIntegrator


@dataclass(frozen=True, eq=False)
class Touch:
    """Two bodies that touch in one place.

    Attributes:
        A, B: The bodies.
        p_WC: (3,), where: the centre of the contact surface, or the contact point, m.
        F_AC_W: Spatial force that B exerts on A at C, expressed in the world.
    """

    A: RigidBody
    B: RigidBody
    p_WC: np.ndarray
    F_AC_W: SpatialForce


def find_touches(plant: MultibodyPlant, scene_graph: SceneGraph, context: Context) -> list[Touch]:
    """Returns all contact of a plant's context.

    Raises:
        RuntimeError: The solver finds no contact forces.
    """
    inspector = scene_graph.model_inspector()
    results = plant.get_contact_results_output_port().Eval(context)
    touches = []
    for k in range(results.num_hydroelastic_contacts()):
        info = results.hydroelastic_contact_info(k)
        surface = info.contact_surface()
        A, B = (
            plant.GetBodyFromFrameId(inspector.GetFrameId(shape))
            for shape in (surface.id_M(), surface.id_N())
        )
        touches.append(Touch(A, B, surface.centroid(), info.F_Ac_W()))
    for k in range(results.num_point_pair_contacts()):
        point = results.point_pair_contact_info(k)
        A, B = (plant.get_body(index) for index in (point.bodyA_index(), point.bodyB_index()))
        F_AC_W = SpatialForce(np.zeros(3), -point.contact_force())  # Drake's is the one on B
        touches.append(Touch(A, B, point.contact_point(), F_AC_W))
    return touches


def total_wrench(
    touches: Iterable[Touch], on: ModelInstanceIndex, by: ModelInstanceIndex, p_WQ: np.ndarray
) -> np.ndarray:
    """Returns what one model exerts on another by contact, in the world.

    Args:
        touches: All contact.
        on, by: The model that feels it, and the one that causes it.
        p_WQ: (3,), the point about which moments are taken, m.

    Returns:
        (6,), moment (N m), then force (N).
    """
    F_Q_W = SpatialForce.Zero()
    for touch in touches:
        F = touch.F_AC_W.Shift(p_WQ - touch.p_WC)
        parties = (touch.A.model_instance(), touch.B.model_instance())
        if parties == (on, by):
            F_Q_W += F
        elif parties == (by, on):
            F_Q_W -= F
    return F_Q_W.get_coeffs()


def add_impulse_meter(
    builder: DiagramBuilder, plant: MultibodyPlant, instance: ModelInstanceIndex
) -> DiscreteTimeIntegrator | None:
    """Adds the integral of the contact forces on a model's joints, or None if it has no joints.

    It is updated together with the plant's state, x[n+1] = x[n] + h f[n], by the f that the plant
    applies in that step: the very impulse, which costs no more than the sum.
    """
    forces = plant.get_generalized_contact_forces_output_port(instance)
    if not forces.size():
        return None
    meter = builder.AddSystem(DiscreteTimeIntegrator(forces.size(), plant.time_step()))
    builder.Connect(forces, meter.get_input_port())
    return meter


class JointContact:
    """What contact does to those joints of a model that have one degree of freedom."""

    def __init__(
        self,
        plant: MultibodyPlant,
        instance: ModelInstanceIndex,
        joints: Iterable[Joint],
        meter: DiscreteTimeIntegrator | None,
        root: Context,
    ) -> None:
        velocities = list(plant.GetVelocitiesFromArray(instance, np.arange(plant.num_velocities())))
        self._places = {joint.name(): velocities.index(joint.velocity_start()) for joint in joints}
        self._port = plant.get_generalized_contact_forces_output_port(instance)
        self._context = plant.GetMyContextFromRoot(root)
        self._meter = meter
        self._meter_context = meter.GetMyMutableContextFromRoot(root) if meter else None

    def forces(self) -> dict[str, float]:
        """Returns the generalized forces now, by the joint's name, N or N m."""
        return self._by_name(self._port.Eval(self._context))

    def impulses(self) -> dict[str, float]:
        """Returns the impulses since they were set to zero, by the joint's name, N s or N m s."""
        return self._by_name(self.impulse)

    @property
    def impulse(self) -> np.ndarray:
        """The impulse on every degree of freedom of the model."""
        if self._meter is None:
            return np.zeros(0)
        return self._meter_context.get_discrete_state_vector().CopyToVector()

    @impulse.setter
    def impulse(self, value: np.ndarray | float) -> None:
        if self._meter is not None:
            value = np.broadcast_to(value, self._port.size())
            self._meter.set_integral_value(self._meter_context, value)

    def _by_name(self, values: np.ndarray) -> dict[str, float]:
        return {name: float(values[place]) for name, place in self._places.items()}
