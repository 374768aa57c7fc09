"""The simulation: control steps, resets, snapshots, and the brake of the nail."""

import copy
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydrake.common.value import AbstractValue
from pydrake.multibody.tree import Joint
from pydrake.systems.analysis import Simulator
from support.environments import bits, press, press_until_sliding
from support.shares import few

from fleet_tools.config.control import TIME_STEP
from fleet_tools.config.tasks import load_task
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.robot.arm import load_robot
from fleet_tools.robot.controller import Reference
from fleet_tools.sim.catalog import find_model
from fleet_tools.sim.scene import Push, Scene, sample_scene
from fleet_tools.sim.simulation import Simulation
from fleet_tools.sim.world import World, build_world

HAMMER = load_task("hammer")
STILL = np.zeros(6)


def scene_of(seed: int, **changes: Any) -> Scene:
    scene = sample_scene(HAMMER, seed, tool="claw", object="round_nail")
    return scene.model_copy(update=changes)


@pytest.fixture(scope="module", name="world")
def _world():
    models = find_model("tool", "hammer", "claw"), find_model("object", "nail", "round_nail")
    return build_world(HAMMER, load_robot(), *models)


@pytest.fixture(scope="module", name="simulation")
def _simulation(world):
    tool, object = find_model("tool", "hammer", "claw"), find_model("object", "nail", "round_nail")
    return Simulation(world, tool, object, scene_of(0))


# --- Time -----------------------------------------------------------------------------------


def test_control_steps_are_exactly_a_sixth_of_a_second(simulation):
    simulation.reset(scene_of(0))
    simulator = simulation._simulator
    counts = [simulator.get_num_discrete_updates()]
    for k in range(1, 26):
        simulation.step(STILL)
        counts.append(simulator.get_num_discrete_updates())
        assert simulation.world_state().time == k / 6
    updates = np.diff(counts)
    assert set(updates) == {41, 42}
    assert abs(updates.sum() * TIME_STEP - 25 / 6) <= TIME_STEP


# --- Resets ---------------------------------------------------------------------------------


def frictions(world: World, instance: Any, inspector: Any) -> np.ndarray:
    """Returns the coefficients of the shapes of a model."""
    return np.array(
        [
            inspector.GetProximityProperties(geometry)
            .GetProperty("material", "coulomb_friction")
            .dynamic_friction()
            for body in world.bodies(instance)
            for geometry in world.plant.GetCollisionGeometriesForBody(body)
        ]
    )


def test_scales_are_applied_anew_by_each_reset(simulation, world):
    context = simulation._context
    models = world.tool, world.object
    masses = [sum(b.default_mass() for b in world.bodies(each)) for each in models]
    of_files = [frictions(world, each, world.scene_graph.model_inspector()) for each in models]
    assert all(map(len, of_files))
    for scales in [(0.8, 1.2), (1.0, 1.0), (1.5, 0.5)]:
        kinds = ("tool", "object")
        changes = {f"{k}_mass_scale": s for k, s in zip(kinds, scales, strict=True)}
        changes |= {f"{k}_friction_scale": s for k, s in zip(kinds, scales, strict=True)}
        simulation.reset(scene_of(0, **changes))
        now = world.plant.get_geometry_query_input_port().Eval(context).inspector()
        for model, scale, mass, friction in zip(models, scales, masses, of_files, strict=True):
            of_bodies = sum(body.get_mass(context) for body in world.bodies(model))
            assert of_bodies == pytest.approx(scale * mass, rel=1e-12)
            np.testing.assert_allclose(frictions(world, model, now), scale * friction, rtol=1e-12)


def test_the_scenes_poses_and_resistance_are_applied(simulation, world):
    scene = scene_of(3)
    simulation.reset(scene)
    state = simulation.world_state()
    np.testing.assert_array_equal(state.q, scene.initial_joints_rad)
    assert state.X_WO.IsNearlyEqualTo(scene.object_pose.to_transform(), 1e-12)
    assert world.adjustable.brakes["slide"].effort_limit() == scene.joint_resistance["slide"]
    assert (state.time, state.object_joints) == (0.0, {"slide": 0.0})
    grasp = find_model("tool", "hammer", "claw").labels.grasp.to_transform()
    X_WT = state.X_WE @ scene.tool_in_hand.to_transform() @ grasp.inverse()
    head = find_model("tool", "hammer", "claw").keypoint("head").position
    np.testing.assert_allclose(X_WT @ head, state.p_W_tool["head"], atol=1e-12)


def test_the_controller_knows_the_payload(simulation, world):
    for scale in (0.8, 1.2):
        simulation.reset(scene_of(0, tool_mass_scale=scale))
        arm = world.adjustable.arm_model
        q = np.array(scene_of(0).initial_joints_rad)
        dynamics, _ = arm.dynamics(q, np.zeros(7))
        held = -dynamics.bias  # at rest, the torques against gravity
        whole = world.plant.CalcGravityGeneralizedForces(simulation._context)
        indices = [joint.velocity_start() for joint in _arm_joints(world)]
        np.testing.assert_allclose(held, whole[indices], atol=1e-9)


def _arm_joints(world: World) -> list[Joint]:
    joints = map(world.plant.get_joint, world.plant.GetJointIndices(world.arm))
    return [joint for joint in joints if joint.num_velocities() == 1]


# --- Snapshots ------------------------------------------------------------------------------


def future(env: ToolUseEnv) -> list[list[Any]]:
    """Returns the bits of all that four steps tell: forces, limits and progress, too."""
    actions = [press(env), *np.random.default_rng(0).uniform(-0.5, 0.5, (3, 6)).astype(np.float32)]
    return bits([(*env.step(action), env.state_digest()) for action in actions])


def told(env: ToolUseEnv) -> list[list[Any]]:
    """Returns the bits of what the present state says of forces and limits."""
    state = env.world_state()
    return bits([[state.forces(), state.limits()]])


def at_a_limit(env: ToolUseEnv) -> None:
    """Turns the hand until joint 7 is near the end of its range."""
    env.reset(seed=0)
    turn = np.array([0, 0, 0, 0, 0, 1.0], np.float32)
    infos = [env.step(turn)[4] for _ in range(9)]
    assert infos[-1]["limits"]["motion_scale"] < 1.0


def in_contact(env: ToolUseEnv) -> None:
    press_until_sliding(env, seed=2)


@pytest.mark.parametrize("situation", [in_contact, at_a_limit])
def test_a_state_continues_bit_for_bit_wherever_it_is_restored(situation, make, hammer):
    situation(hammer)
    state = hammer.get_state()
    before, present = pickle.dumps(state), told(hammer)
    expected = future(hammer)  # uninterrupted
    observation = bits([[hammer.set_state(state)]])
    for env, seed in ((hammer, 11), (make(), 4)):  # after other scenes
        env.reset(seed=seed)
        env.step(np.ones(6, np.float32))
        assert bits([[env.set_state(state)]]) == observation
        assert (told(env), future(env)) == (present, expected)
    not_reset = EnvSpec.of(task="hammer").make_tool_use()
    copies = copy.deepcopy(state), pickle.loads(before)
    for env, each in ((not_reset, state), (hammer, copies[0]), (hammer, copies[1])):
        env.set_state(each)
        assert future(env) == expected
    assert pickle.dumps(state) == before
    # Digests of different states differ.
    assert len({entry[-1] for entry in expected}) == len(expected)
    snapshot = state.snapshot
    for i in range(len(snapshot.x)):
        x = snapshot.x.copy()
        x[i] = np.nextafter(x[i], np.inf)
        assert replace(snapshot, x=x).digest() != snapshot.digest()
    assert replace(snapshot, step=snapshot.step + 1).digest() != snapshot.digest()
    assert 0 <= snapshot.digest() < 2**64


def test_a_push_moves_the_object_at_its_step_and_nothing_else(hammer):
    actions = np.random.default_rng(0).uniform(-1, 1, (6, 6)).astype(np.float32)
    hammer.reset(seed=0)
    push = Push(time_s=0.33, translation_m=(0.015, -0.01, 0.0))
    scene = hammer.scene
    pushed = scene.model_copy(update={"push": push})
    still, shifted, again = [], [], []
    for each, states in ((scene, still), (pushed, shifted), (scene, again)):
        hammer.reset(options={"scene": each})
        states.append(hammer.world_state())
        states += [hammer.step(action) and hammer.world_state() for action in actions]
    for step, (one, other, later) in enumerate(zip(still, shifted, again, strict=True)):
        moved = np.array(push.translation_m) * (step >= 3)
        for name, p_W in one.p_W_object.items():
            np.testing.assert_allclose(other.p_W_object[name], p_W + moved, atol=1e-12)
        np.testing.assert_array_equal(other.q, one.q)
        np.testing.assert_array_equal(later.p_W_object["head"], one.p_W_object["head"])


# --- The brake ------------------------------------------------------------------------------


def push(
    world: World, force: float, resistance: float, duration: float = 0.1
) -> tuple[float, float]:
    """Pushes the nail with a force; returns its displacement (m) and its velocity (m/s)."""
    plant = world.plant
    world.adjustable.brakes["slide"].set_effort_limit(resistance)
    root = world.diagram.CreateDefaultContext()
    context = plant.GetMyMutableContextFromRoot(root)
    scene = scene_of(0)
    q = np.array(scene.initial_joints_rad)
    plant.SetPositions(context, world.arm, q)
    mount = world.adjustable.mount_frame
    assert mount is not None
    mount.SetPoseInParentFrame(context, scene.object_pose.to_transform())
    X_WE = plant.GetFrameByName("panda_hand_tcp").CalcPoseInWorld(context)
    reference = AbstractValue.Make(Reference(X_WE, np.zeros(6), 0.0, 1.0, posture=q))
    world.diagram.GetInputPort("reference").FixValue(root, reference)
    joint = plant.GetJointByName("slide")
    forces = np.zeros(plant.num_velocities())
    forces[joint.velocity_start()] = force
    plant.get_applied_generalized_force_input_port().FixValue(context, forces)
    Simulator(world.diagram, root).AdvanceTo(duration)
    return joint.GetOnePosition(context), joint.GetOneVelocity(context)


def nail_mass(world: World) -> tuple[float, float]:
    """Returns the sliding mass, with the rotor's inertia (kg), and the nail's weight (N)."""
    mass = world.plant.GetBodyByName("nail").default_mass()
    return mass + world.adjustable.brakes["slide"].default_rotor_inertia(), 9.81 * mass


@few(10)
@given(st.floats(20.0, 45.0), st.floats(0.0, 0.95))
def test_below_its_resistance_the_brake_holds(world, resistance, fraction):
    _, weight = nail_mass(world)
    moved, velocity = push(world, fraction * resistance - weight, resistance)
    assert abs(moved) < 1e-4  # m in 0.1 s: the creep of the implicit damping
    assert abs(velocity) < 1e-3


@few(10)
@given(st.floats(20.0, 45.0), st.floats(1.1, 2.0))
def test_the_force_above_its_resistance_accelerates_the_nail(world, resistance, fraction):
    mass, weight = nail_mass(world)
    duration = 2 * TIME_STEP
    _, velocity = push(world, fraction * resistance - weight, resistance, duration)
    expected = (fraction - 1) * resistance / mass * duration
    assert velocity == pytest.approx(expected, rel=1e-3)
