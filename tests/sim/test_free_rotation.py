"""Steps of free bodies: equation, energy and limits, and the correction in worlds of tasks."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydrake.math import RigidTransform, RollPitchYaw
from pydrake.multibody.math import SpatialVelocity
from pydrake.multibody.plant import AddMultibodyPlantSceneGraph, MultibodyPlant
from pydrake.multibody.tree import RevoluteJoint, RigidBody, SpatialInertia
from pydrake.systems.analysis import Simulator
from pydrake.systems.framework import DiagramBuilder
from scipy.spatial.transform import Rotation

from fleet_tools.config.control import TIME_STEP
from fleet_tools.config.tasks import load_task, task_names
from fleet_tools.robot.arm import load_robot
from fleet_tools.sim.catalog import find_task_model, model_names
from fleet_tools.sim.free_rotation import (
    Bodies,
    add_gyroscopic_correction,
    conserving_forces,
    conserving_velocity,
    normalize_quaternions,
    rotated,
)
from fleet_tools.sim.scene import Scene, sample_scene
from fleet_tools.sim.simulation import Simulation
from fleet_tools.sim.world import World, build_world
from fleet_tools.sim.world_state import Snapshot

H = 0.004
AXES = st.tuples(*[st.floats(-1, 1)] * 3).filter(lambda v: 0.1 < np.linalg.norm(v) < 1)
SPEEDS = st.just(0.0) | st.floats(1e-6, 2000)
SEEDS = st.integers(0, 2**32 - 1)


def drawn_rotation(seed: int) -> Rotation:
    return Rotation.from_quat(np.random.default_rng(seed).normal(size=4))


def norm(v: np.ndarray) -> float:
    return float(np.linalg.norm(v))


def assert_close(value: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    np.testing.assert_allclose(value, expected, rtol=0, atol=tolerance)


@st.composite
def inertias(draw: st.DrawFn) -> np.ndarray:
    """The inertia of a box, (3, 3): from needles and plates to a cube, in any orientation."""
    a, b, c = (10 ** draw(st.floats(-2, 0)) for _ in range(3))
    R = drawn_rotation(draw(SEEDS)).as_matrix()
    return R @ np.diag([b**2 + c**2, a**2 + c**2, a**2 + b**2]) @ R.T


def velocity_after(G: np.ndarray, w: np.ndarray, h: float = H) -> np.ndarray:
    return np.array(conserving_velocity(as_tuples(G), tuple(w.tolist()), h))


def as_tuples(G: np.ndarray) -> tuple:
    return tuple(map(tuple, G.tolist()))


def turn_of_a_step(w: np.ndarray) -> Rotation:
    """The rotation from q to (1 + h/2 [0, w]) q."""
    return Rotation.from_quat(np.r_[H / 2 * w, 1.0])


def of_speed(axis: Sequence[float] | np.ndarray, speed: float) -> np.ndarray:
    return speed * np.array(axis) / np.linalg.norm(axis)


@given(inertias(), AXES, SPEEDS)
def test_the_angular_momentum_is_conserved_and_energy_does_not_grow(G, axis, speed):
    w = of_speed(axis, speed)
    w1 = velocity_after(G, w)
    R = turn_of_a_step(w1).as_matrix()
    L = G @ w
    assert_close(R @ G @ R.T @ w1, L, 1e-9 * norm(L))
    assert w1 @ R @ G @ R.T @ w1 <= w @ G @ w * (1 + 1e-9)


@given(inertias(), AXES, SPEEDS, SEEDS)
def test_the_step_is_the_same_in_every_frame(G, axis, speed, seed):
    w = of_speed(axis, speed)
    R = drawn_rotation(seed).as_matrix()
    turned = velocity_after(R @ G @ R.T, R @ w)
    assert_close(turned, R @ velocity_after(G, w), 1e-7 * speed)


@given(inertias(), AXES)
def test_small_steps_follow_eulers_equations(G, axis):
    w, h = of_speed(axis, 10.0), 1e-7
    alpha = (velocity_after(G, w, h) - w) / h
    expected = -np.linalg.solve(G, np.cross(w, G @ w))
    assert_close(alpha, expected, 1e-3 * norm(w) ** 2)


@given(inertias(), st.integers(0, 2), st.floats(-2000, 2000))
def test_a_spin_about_a_principal_axis_goes_on(G, k, speed):
    _, axes = np.linalg.eigh(G)
    w = speed * axes[:, k]
    assert_close(velocity_after(G, w), w, 1e-9 * abs(speed))


@pytest.mark.parametrize("G", [np.zeros((3, 3)), np.full((3, 3), np.nan)], ids=["zero", "nan"])
def test_without_a_solution_the_velocity_stays(G):
    w = np.array([1.0, 2.0, 3.0])
    assert velocity_after(G, w).tolist() == w.tolist()


@given(AXES, AXES, SPEEDS)
def test_points_turn_with_the_body(p, axis, speed):
    w = of_speed(axis, speed)
    turned = np.array(rotated(tuple(p), tuple(w.tolist()), H))
    assert_close(turned, turn_of_a_step(w).apply(p), 1e-12)


@given(inertias(), AXES, AXES, SPEEDS, SEEDS, st.floats(1e-3, 1e3))
def test_a_step_with_the_forces_conserves_both_momenta(G, c, axis, speed, seed, length):
    """Drake's step, M (v1 - v) / h + bias = forces, written out in the world frame."""
    m, w, v = 0.3, of_speed(axis, speed), np.array([0.1, -0.2, 0.3])
    rotation = drawn_rotation(seed)
    R, q = rotation.as_matrix(), length * rotation.as_quat()[[3, 0, 1, 2]]
    inertia = np.r_[m, 0.1 * np.array(c), G.ravel()][None]
    x = np.r_[9.0, q, [1.0, 2.0, 3.0], 8.0, w, v]  # a joint's q and v before the body's
    tau = conserving_forces(x, inertia, (Bodies((1,), (1,), 7, H),))
    assert tau[0] == 0.0
    I_W, c_W = m * R @ G @ R.T, R @ (0.1 * np.array(c))
    force = tau[4:]
    moment_cm = tau[1:4] - np.cross(c_W, force)
    w1 = w + H * np.linalg.solve(I_W, moment_cm - np.cross(w, I_W @ w))
    v_cm1_at_start = v + np.cross(w, c_W) - H * np.cross(w, np.cross(w, c_W)) + H * force / m
    v1 = v_cm1_at_start - np.cross(w1, c_W)
    turn = turn_of_a_step(w1)
    L = I_W @ w
    R1 = turn.as_matrix()
    scale = max(1.0, H * speed) ** 2
    assert_close(R1 @ I_W @ R1.T @ w1, L, 1e-7 * scale * norm(L))
    v_cm = v + np.cross(w, c_W)
    assert_close(v1 + np.cross(w1, turn.apply(c_W)), v_cm, 1e-9 * scale * (1 + speed))


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


def momentum(simulation: Simulation, body: RigidBody | None = None) -> tuple[np.ndarray, float]:
    """Returns a body's angular momentum about its centre of mass, and its energy of rotation."""
    world, context = simulation.world, simulation._context
    body = body or next(iter(world.bodies(world.object)))
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


FREE = [
    (task.name, name)
    for task in map(load_task, task_names())
    if task.object_mount == "free"
    for name in model_names("object", task.object_family)
]


@pytest.mark.slow  # of a patty: test_momentum_is_conserved_whatever_the_scenes_mass
@pytest.mark.parametrize(("task", "name"), FREE)
def test_every_free_object_keeps_its_momentum_and_gains_no_energy_in_falls(task, name):
    config = load_task(task)
    tool = model_names("tool", config.tool_family)[0]
    models = find_task_model(config, "tool", tool), find_task_model(config, "object", name)
    world = build_world(config, load_robot(), *models)
    scene = sample_scene(config, 0, tool=tool, object=name)
    simulation = Simulation(world, *models, scene)
    body = next(iter(world.bodies(world.object)))
    plant, context, generator = world.plant, simulation._context, np.random.default_rng(0)

    def place(p_W: Sequence[float], speed: float) -> None:
        simulation.reset(scene)
        X_WB = RigidTransform(RollPitchYaw(generator.uniform(-np.pi, np.pi, 3)), p_W)
        plant.SetFreeBodyPose(context, body, X_WB)
        spin = SpatialVelocity(of_speed(generator.normal(size=3), speed), np.zeros(3))
        plant.SetFreeBodySpatialVelocity(context, body, spin)
        simulation._simulator.Initialize()

    def energy() -> float:
        v = body.CalcCenterOfMassTranslationalVelocityInWorld(context)
        height = (body.EvalPoseInWorld(context) @ body.default_com())[2]
        m = body.get_mass(context)
        return momentum(simulation, body)[1] + m * (v @ v / 2 + 9.81 * height)

    for speed in (15.0, 30.0, 60.0):
        place([0.0, 0.0, 500.0], speed)
        L0, T0 = momentum(simulation, body)
        for _ in range(24):
            simulation.step(STILL)
            L, T = momentum(simulation, body)
            assert norm(L - L0) < 1e-9 * norm(L0)
            assert T <= T0 * (1 + 1e-12)
        place([0.3, 0.55, 0.3], speed)
        start = energy()
        for _ in range(12):
            simulation.step(STILL)
            assert energy() < 1.01 * start
