"""The correction of Drake's step in the worlds of tasks, and for every free object."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydrake.math import RigidTransform, RollPitchYaw
from pydrake.multibody.math import SpatialVelocity
from pydrake.multibody.plant import AddMultibodyPlantSceneGraph, MultibodyPlant
from pydrake.multibody.tree import RevoluteJoint, SpatialInertia
from pydrake.systems.analysis import Simulator
from pydrake.systems.framework import DiagramBuilder
from support.processes import run_program

from fleet_tools.config.control import TIME_STEP
from fleet_tools.config.tasks import load_task
from fleet_tools.robot.arm import load_robot
from fleet_tools.sim.catalog import find_task_model
from fleet_tools.sim.free_rotation import add_gyroscopic_correction, normalize_quaternions
from fleet_tools.sim.scene import Scene, sample_scene
from fleet_tools.sim.simulation import Simulation
from fleet_tools.sim.world import World, build_world
from fleet_tools.sim.world_state import Snapshot

SPATULA = load_task("spatula")
STILL = np.zeros(6)
Q, V = 7, 14 + 7  # places of the patty's quaternion and angular velocity in the state
PATTY: Any = {"tool": "turner", "object": "patty"}


def scene_of(**changes: object) -> Scene:
    return sample_scene(SPATULA, 0, **PATTY).model_copy(update=changes)


@pytest.fixture(scope="module", name="simulation")
def _simulation() -> Simulation:
    models = find_task_model(SPATULA, "tool", "turner"), find_task_model(SPATULA, "object", "patty")
    return Simulation(build_world(SPATULA, load_robot(), *models), *models, scene_of())


def spinning(simulation: Simulation, speed: float) -> Snapshot:
    """Returns a snapshot with the object far above the table, spinning."""
    snapshot = simulation.snapshot()
    x = snapshot.x.copy()
    x[Q : Q + 7] = [0.5, 0.5, -0.5, 0.5, 0.5, 0.0, 500.0]
    x[V : V + 6] = [0.6 * speed, 0.0, 0.8 * speed, 0.0, 0.0, 0.0]
    return replace(snapshot, x=x)


def momentum(simulation: Simulation) -> tuple[np.ndarray, float]:
    """Returns the object's angular momentum about its centre of mass, and its kinetic energy."""
    world, context = simulation.world, simulation._context
    (body,) = world.bodies(world.object)
    X_WB = body.EvalPoseInWorld(context)
    V_WB = body.EvalSpatialVelocityInWorld(context)
    M_BBo_W = body.CalcSpatialInertiaInBodyFrame(context).ReExpress(X_WB.rotation())
    I_W = M_BBo_W.Shift(M_BBo_W.get_com()).CopyToFullMatrix6()[:3, :3]
    w = V_WB.rotational()
    return I_W @ w, float(w @ I_W @ w / 2)


@pytest.mark.parametrize("mass_scale", [0.8, 1.2])
def test_momentum_is_conserved_whatever_the_scenes_mass(simulation: Simulation, mass_scale: float):
    simulation.reset(scene_of(object_mass_scale=mass_scale))
    simulation.restore(spinning(simulation, 60.0))
    L0, T0 = momentum(simulation)
    for _ in range(12):
        simulation.step(STILL)
        L, T = momentum(simulation)
        assert np.linalg.norm(L - L0) < 1e-9 * np.linalg.norm(L0)
        assert T <= T0 * (1 + 1e-12)
        T0 = T


def test_a_fast_spin_stays_finite_for_an_episode(simulation: Simulation):
    simulation.reset(scene_of())
    simulation.restore(spinning(simulation, 1000.0))
    for _ in range(SPATULA.max_episode_steps):
        simulation.step(STILL)
    x = simulation.snapshot().x
    assert np.isfinite(x).all()
    assert np.linalg.norm(x[V : V + 3]) < 1000


def test_a_spin_continues_from_a_snapshot_bit_for_bit(simulation: Simulation):
    simulation.reset(scene_of())
    simulation.restore(spinning(simulation, 400.0))
    simulation.step(STILL)
    middle = simulation.snapshot()
    simulation.step(STILL)
    end = simulation.snapshot().digest()
    simulation.reset(scene_of())
    simulation.restore(middle)
    simulation.step(STILL)
    assert simulation.snapshot().digest() == end


def test_long_quaternions_are_normalized_and_others_left_as_they_are(simulation: Simulation):
    plant, context = simulation.world.plant, simulation._context
    simulation.reset(scene_of())
    x = spinning(simulation, 1.0).x
    for length in (1e-30, 1.1, 1e100):
        x[Q : Q + 4] = length * np.array([0.1, -0.7, 0.5, 0.5])
        plant.SetPositionsAndVelocities(context, x)
        (body,) = simulation.world.bodies(simulation.world.object)
        X_WB = body.EvalPoseInWorld(context)
        normalize_quaternions(plant, context)
        q = plant.GetPositions(context)[Q : Q + 4]
        assert (q.tolist() == x[Q : Q + 4].tolist()) is (length == 1.1)
        assert length == 1.1 or np.linalg.norm(q) == pytest.approx(1, abs=1e-12)
        assert X_WB.IsNearlyEqualTo(body.EvalPoseInWorld(context), 1e-12)


def test_a_world_without_free_bodies_has_no_correction():
    task = load_task("wrench")
    models = find_task_model(task, "tool", "rod"), find_task_model(task, "object", "hex_nut")
    world: World = build_world(task, load_robot(), *models)
    assert world.adjustable.gyroscopic is None


def test_welded_bodies_move_as_one_and_bases_with_joints_are_left_alone():
    plant = MultibodyPlant(TIME_STEP)
    box = SpatialInertia.SolidBoxWithDensity(1000, 0.1, 0.05, 0.02)
    one, two, base, arm = (plant.AddRigidBody(name, box) for name in ("1", "2", "base", "arm"))
    offset = RigidTransform([0.2, 0.1, 0.0])
    plant.WeldFrames(one.body_frame(), two.body_frame(), offset)
    plant.AddJoint(RevoluteJoint("hinge", base.body_frame(), arm.body_frame(), [0.0, 0.0, 1.0]))
    plant.Finalize()
    builder = DiagramBuilder()
    builder.AddSystem(plant)
    correction = add_gyroscopic_correction(builder, plant)
    assert correction is not None
    parameters = correction.CreateDefaultContext().get_numeric_parameter(0).value()
    assert parameters.shape == (13,)  # one body
    assert parameters[0] == pytest.approx(2 * box.get_mass())
    assert parameters[1:4] == pytest.approx([0.1, 0.05, 0.0])


def test_welded_bodies_keep_their_momentum():
    builder = DiagramBuilder()
    plant, _ = AddMultibodyPlantSceneGraph(builder, TIME_STEP)
    box = SpatialInertia.SolidBoxWithDensity(1000, 0.1, 0.05, 0.02)
    one, two = (plant.AddRigidBody(name, box) for name in ("1", "2"))
    offset = RigidTransform(RollPitchYaw(0.3, 0.2, 0.1), [0.2, 0.1, 0.0])
    plant.WeldFrames(one.body_frame(), two.body_frame(), offset)
    plant.Finalize()
    add_gyroscopic_correction(builder, plant)
    simulator = Simulator(builder.Build())
    context = plant.GetMyMutableContextFromRoot(simulator.get_mutable_context())
    plant.SetFreeBodySpatialVelocity(
        context, one, SpatialVelocity(np.array([20.0, 30.0, 40.0]), np.zeros(3))
    )

    def about_centre() -> np.ndarray:
        p_WScm = plant.CalcCenterOfMassPositionInWorld(context)
        return plant.CalcSpatialMomentumInWorldAboutPoint(context, p_WScm).rotational()

    before = about_centre()
    simulator.AdvanceTo(1.0)
    np.testing.assert_allclose(about_centre(), before, rtol=0, atol=1e-9 * float(max(before)))


@pytest.mark.parametrize(
    ("speeds", "seconds", "drops"),
    [(["60"], 1, 0), pytest.param(["15", "30", "60"], 4, 3, marks=pytest.mark.slow)],
    ids=["quick", "slow"],
)
def test_every_free_object_keeps_its_momentum_and_gains_no_energy(
    speeds: list[str], seconds: int, drops: int
):
    """As the benchmark measures and prints it."""
    options = ["--speeds", *speeds, "--seconds", str(seconds), "--drops", str(drops), "--json"]
    measured = run_program("benchmarks/tumbling.py", *options)
    flights = [flight for flight in measured["flights"] if flight["corrected"]]
    assert len(flights) == len(speeds) * (15 + 2)
    for flight in flights:
        assert max(flight["angular_error"], flight["velocity_error"]) < 1e-9, flight
        assert flight["energy_end"] <= flight["energy_most"] <= 1 + 1e-12, flight
    for drop in measured["drops"]:
        assert drop["energy_most"] < 1.01 or not drop["corrected"], drop
