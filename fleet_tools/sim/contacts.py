"""Contacts from Drake's solver: pairs, their forces, and the forces on joints."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from pydrake.geometry import GeometryId, SceneGraph
from pydrake.multibody.math import SpatialForce
from pydrake.multibody.plant import ContactResults, MultibodyPlant
from pydrake.multibody.tree import Joint, ModelInstanceIndex, RigidBody
from pydrake.systems.framework import Context, DiagramBuilder
from pydrake.systems.primitives import DiscreteTimeIntegrator


@dataclass(frozen=True, eq=False)
class ContactPair:
    """Two bodies in contact.

    Attributes:
        A, B: The bodies.
        p_WC: (3,), centre of the contact surface, or the contact point, m.
        F_AC_W: Spatial force on A from B at C, expressed in the world.
    """

    A: RigidBody
    B: RigidBody
    p_WC: np.ndarray
    F_AC_W: SpatialForce


def find_contacts(
    plant: MultibodyPlant, scene_graph: SceneGraph, context: Context
) -> list[ContactPair]:
    """Returns all contact pairs of a plant's context.

    Raises:
        RuntimeError: The solver finds no contact forces.
    """
    inspector = scene_graph.model_inspector()

    def body(shape: GeometryId) -> RigidBody:
        body = plant.GetBodyFromFrameId(inspector.GetFrameId(shape))
        assert body is not None  # a collision shape of the plant
        return body

    results = plant.get_contact_results_output_port().Eval(context)
    return [ContactPair(body(A), body(B), *contact()) for A, B, contact in contacts(results)]


Contact = Callable[[], tuple[np.ndarray, SpatialForce]]
"""Returns p_WC and F_AC_W; see `ContactPair`."""


def contacts(results: ContactResults) -> Iterator[tuple[GeometryId, GeometryId, Contact]]:
    """Yields the shapes A and B of each contact, and a function that reads the contact."""
    for k in range(results.num_hydroelastic_contacts()):
        info = results.hydroelastic_contact_info(k)
        surface = info.contact_surface()
        yield (
            surface.id_M(),
            surface.id_N(),
            lambda info=info, surface=surface: (surface.centroid(), info.F_Ac_W()),
        )
    for k in range(results.num_point_pair_contacts()):
        point = results.point_pair_contact_info(k)
        shapes = point.point_pair()
        yield (
            shapes.id_A,
            shapes.id_B,
            lambda point=point: (
                point.contact_point(),
                SpatialForce(np.zeros(3), -point.contact_force()),  # Drake's is the one on B
            ),
        )


def total_wrench(
    pairs: Iterable[ContactPair], on: ModelInstanceIndex, by: ModelInstanceIndex, p_WQ: np.ndarray
) -> np.ndarray:
    """Returns the contact wrench of one model on another, expressed in the world.

    Args:
        pairs: All contact pairs.
        on: Model on which the wrench acts.
        by: Model that causes it.
        p_WQ: (3,), point about which moments are taken, m.

    Returns:
        (6,), moment (N m), then force (N).
    """
    F_Q_W = SpatialForce.Zero()
    for pair in pairs:
        F = pair.F_AC_W.Shift(p_WQ - pair.p_WC)
        instances = (pair.A.model_instance(), pair.B.model_instance())
        if instances == (on, by):
            F_Q_W += F
        elif instances == (by, on):
            F_Q_W -= F
    return F_Q_W.get_coeffs()


def add_impulse_meter(
    builder: DiagramBuilder, plant: MultibodyPlant, instance: ModelInstanceIndex
) -> DiscreteTimeIntegrator | None:
    """Adds the time integral of the contact forces on a model's joints.

    It is updated together with the plant's state, x[n+1] = x[n] + h f[n], with the f that the
    plant applies in that step, so that it is exact.

    Returns:
        None if the model has no joints.
    """
    forces = plant.get_generalized_contact_forces_output_port(instance)
    if not forces.size():
        return None
    meter = builder.AddSystem(DiscreteTimeIntegrator(forces.size(), plant.time_step()))
    builder.Connect(forces, meter.get_input_port())
    return meter


class JointContact:
    """Contact forces and impulses on those joints of a model that have one degree of freedom.

    Args:
        plant: Plant with the model.
        instance: Instance of the model.
        joints: The joints.
        meter: The model's impulse meter; None without joints.
        root: Context of the diagram.
    """

    def __init__(
        self,
        plant: MultibodyPlant,
        instance: ModelInstanceIndex,
        joints: Iterable[Joint],
        meter: DiscreteTimeIntegrator | None,
        root: Context,
    ) -> None:
        velocities = list(plant.GetVelocitiesFromArray(instance, np.arange(plant.num_velocities())))
        self._indices = {joint.name(): velocities.index(joint.velocity_start()) for joint in joints}
        self._port = plant.get_generalized_contact_forces_output_port(instance)
        self._context = plant.GetMyContextFromRoot(root)
        self._meter = None
        if meter is not None:
            self._meter = meter, meter.GetMyMutableContextFromRoot(root)

    def forces(self) -> dict[str, float]:
        """Returns the present generalized forces by joint name, N or N m."""
        return self._by_name(self._port.Eval(self._context))

    def impulses(self) -> dict[str, float]:
        """Returns the impulses since the last reset by joint name, N s or N m s."""
        return self._by_name(self.impulse())

    def impulse(self) -> np.ndarray:
        """Returns the impulse on every degree of freedom of the model."""
        if self._meter is None:
            return np.zeros(0)
        _, context = self._meter
        return context.get_discrete_state_vector().CopyToVector()

    def set_impulse(self, value: np.ndarray | float) -> None:
        """Sets the impulse on every degree of freedom of the model."""
        if self._meter is not None:
            meter, context = self._meter
            meter.set_integral_value(context, np.broadcast_to(value, self._port.size()))

    def _by_name(self, values: np.ndarray) -> dict[str, float]:
        return {name: float(values[index]) for name, index in self._indices.items()}
