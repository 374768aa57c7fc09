"""Contact of a model with a free base and two joints, compared with Drake's generalized forces."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from pydrake.geometry import AddCompliantHydroelasticProperties, Box, ProximityProperties
from pydrake.math import RigidTransform
from pydrake.multibody.plant import (
    AddMultibodyPlant,
    CoulombFriction,
    MultibodyPlant,
    MultibodyPlantConfig,
)
from pydrake.multibody.tree import (
    FixedOffsetFrame,
    JacobianWrtVariable,
    ModelInstanceIndex,
    PrismaticJoint,
    RevoluteJoint,
    SpatialInertia,
    world_model_instance,
)
from pydrake.systems.analysis import Simulator
from pydrake.systems.framework import Context, DiagramBuilder

from fleet_tools.sim.contacts import (
    ContactPair,
    JointContact,
    add_impulse_meter,
    find_contacts,
    total_wrench,
)

GROUND = world_model_instance()
LINKS = ("base", "turner", "slider")
SIDE = 0.1
TIME_STEP = 0.004


@dataclass(frozen=True, eq=False)
class MovingModel:
    """A plant with the model and another body, and what measures the model's contact."""

    plant: MultibodyPlant
    context: Context
    other: ModelInstanceIndex
    model: ModelInstanceIndex
    joint_contact: JointContact
    find_contacts: Callable[[], list[ContactPair]]
    simulator: Simulator


@pytest.fixture(name="scene", params=["point", "hydroelastic"])
def _scene(request):
    """The model stands on the ground with all its links, and moves; another body flies."""
    builder = DiagramBuilder()
    config = MultibodyPlantConfig(
        time_step=TIME_STEP, contact_model=request.param, use_sampled_output_ports=False
    )
    plant, scene_graph = AddMultibodyPlant(config, builder)
    inertia = SpatialInertia.SolidCubeWithDensity(1000.0, SIDE)
    other, model = map(plant.AddModelInstance, ("other", "model"))
    flier = plant.AddRigidBody("flier", other, inertia)  # its velocities come first
    base, turner, slider = (plant.AddRigidBody(name, model, inertia) for name in LINKS)
    left, right = (
        plant.AddFrame(FixedOffsetFrame(name, base, RigidTransform([0.0, y, 0.0])))
        for name, y in (("left", 0.2), ("right", -0.2))
    )
    turn = RevoluteJoint("turn", left, turner.body_frame(), [1.0, 0.0, 0.3])
    slide = PrismaticJoint("slide", right, slider.body_frame(), [0.0, 0.6, -0.8])
    joints = [plant.AddJoint(joint) for joint in (turn, slide)]
    shapes = [(body, Box(SIDE, SIDE, SIDE)) for body in (flier, base, turner, slider)]
    for body, shape in [*shapes, (plant.world_body(), Box(2.0, 2.0, SIDE))]:
        properties = ProximityProperties()
        AddCompliantHydroelasticProperties(SIDE, 1e6, properties)
        properties.AddProperty("material", "coulomb_friction", CoulombFriction(0.5, 0.5))
        plant.RegisterCollisionGeometry(body, RigidTransform(), shape, "shape", properties)
    plant.Finalize()
    meter = add_impulse_meter(builder, plant, model)
    diagram = builder.Build()
    root = diagram.CreateDefaultContext()
    context = plant.GetMyMutableContextFromRoot(root)
    plant.SetFreeBodyPose(context, flier, RigidTransform([0.0, 0.0, 5.0]))
    plant.SetFreeBodyPose(context, base, RigidTransform([0.1, 0.2, SIDE - 1e-3]))
    plant.SetVelocities(context, np.linspace(-0.3, 0.3, plant.num_velocities()))
    return MovingModel(
        plant=plant,
        context=context,
        other=other,
        model=model,
        joint_contact=JointContact(plant, model, joints, meter, root),
        find_contacts=lambda: find_contacts(plant, scene_graph, context),
        simulator=Simulator(diagram, root),
    )


def generalized_force(scene: MovingModel) -> np.ndarray:
    """Returns the generalized force of all contact from its points: the sum of J^T F."""
    plant, context, world = scene.plant, scene.context, scene.plant.world_frame()
    total = np.zeros(plant.num_velocities())
    for pair in scene.find_contacts():
        for body, sign in ((pair.A, 1.0), (pair.B, -1.0)):
            p_BC = body.EvalPoseInWorld(context).inverse() @ pair.p_WC
            J = plant.CalcJacobianSpatialVelocity(
                context, JacobianWrtVariable.kV, body.body_frame(), p_BC, world, world
            )
            total += sign * J.T @ pair.F_AC_W.get_coeffs()
    return total


def test_every_link_on_the_ground_is_found(scene):
    pairs = {frozenset({pair.A.name(), pair.B.name()}) for pair in scene.find_contacts()}
    assert pairs == {frozenset({"world", link}) for link in LINKS}


def test_joint_forces_follow_from_the_points_of_contact(scene):
    expected, forces = generalized_force(scene), scene.joint_contact.forces()
    assert set(forces) == {"turn", "slide"}
    for name, force in forces.items():
        index = scene.plant.GetJointByName(name).velocity_start()
        assert abs(force) > 0.1
        assert force == pytest.approx(expected[index], rel=1e-9)


def test_the_wrench_of_all_contact_moves_the_free_base(scene):
    p_WB = scene.plant.GetBodyByName("base").EvalPoseInWorld(scene.context).translation()
    port = scene.plant.get_generalized_contact_forces_output_port(scene.model)
    F = total_wrench(scene.find_contacts(), scene.model, GROUND, p_WB)
    assert F[5] > 10.0  # N, upwards
    np.testing.assert_allclose(F, port.Eval(scene.context)[:6], rtol=1e-9, atol=1e-9)


def test_action_is_reaction_and_moments_shift_with_the_point(scene):
    pairs, p_WP, p_WQ = scene.find_contacts(), np.array([0.3, -0.2, 0.5]), np.array([-1, 0.4, 0.1])
    F_P, F_Q = (total_wrench(pairs, scene.model, GROUND, p) for p in (p_WP, p_WQ))
    np.testing.assert_allclose(total_wrench(pairs, GROUND, scene.model, p_WP), -F_P, rtol=1e-12)
    np.testing.assert_allclose(F_Q[3:], F_P[3:], rtol=1e-12)
    np.testing.assert_allclose(F_Q[:3], F_P[:3] + np.cross(p_WP - p_WQ, F_P[3:]), atol=1e-9)
    assert not total_wrench(pairs, scene.other, GROUND, p_WP).any()


def test_impulses_are_the_sums_of_forces_until_they_are_set(scene):
    contact, simulator, forces = scene.joint_contact, scene.simulator, []
    simulator.set_monitor(lambda _: forces.append(list(contact.forces().values())))
    simulator.Initialize()  # it calls the monitor, too
    for k in range(1, 21):
        simulator.AdvanceTo(k * TIME_STEP)
        expected = TIME_STEP * np.sum(forces[:-1], axis=0)
        np.testing.assert_allclose(list(contact.impulses().values()), expected, rtol=1e-9)
        if k == 10:
            contact.set_impulse(0.0)
            del forces[:-1]
    assert len(forces) == 11
    contact.set_impulse(np.arange(8.0))
    assert contact.impulses() == {"turn": 6.0, "slide": 7.0}


def test_a_model_without_joints_has_no_impulse():
    builder = DiagramBuilder()
    plant, _ = AddMultibodyPlant(MultibodyPlantConfig(time_step=TIME_STEP), builder)
    plant.Finalize()
    assert add_impulse_meter(builder, plant, GROUND) is None
    contact = JointContact(plant, GROUND, [], None, builder.Build().CreateDefaultContext())
    contact.set_impulse(0.0)
    assert contact.impulse().shape == (0,) and contact.impulses() == contact.forces() == {}
