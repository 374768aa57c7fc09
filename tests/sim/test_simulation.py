"""The simulation: control steps, resets, snapshots, and the brake of the nail."""

import copy
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydrake.common.value import AbstractValue
from pydrake.multibody.tree import Joint
from pydrake.systems.analysis import Simulator
from support.environments import press, press_until_sliding

from fleet_tools.config.control import TIME_STEP
from fleet_tools.config.tasks import load_task
from fleet_tools.envs.episode_state import EnvState
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.robot.arm import load_robot
from fleet_tools.robot.controller import Reference
from fleet_tools.sim.catalog import find_model
from fleet_tools.sim.scene import Scene, sample_scene
from fleet_tools.sim.simulation import Simulation
from fleet_tools.sim.world import World, build_world
from fleet_tools.sim.world_state import WorldState

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


def run(simulation: Simulation, motions: np.ndarray) -> tuple[list[int], WorldState]:
    """Returns the digest after each motion, and the state at the end."""
    digests = []
    for motion in motions:
        simulation.step(motion)
        digests.append(simulation.snapshot().digest())
    return digests, simulation.world_state()


def motions_of(seed: int, steps: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (steps, 6)) * np.repeat([0.03, 0.15], 3)


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


@settings(max_examples=6)
@given(st.integers(0, 2**32), st.integers(0, 2**32), st.integers(0, 4))
def test_a_reset_depends_on_no_history(simulation, seed, other, steps):
    simulation.reset(scene_of(seed))
    fresh = run(simulation, motions_of(seed, 3))[0]
    simulation.reset(scene_of(other))
    run(simulation, motions_of(other, steps))
    simulation.reset(scene_of(seed))
    assert run(simulation, motions_of(seed, 3))[0] == fresh


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


@pytest.fixture(scope="module", name="contact")
def _contact(hammer):
    """A state in which the hammer pushes the nail, and the episode's continuation from there."""
    press_until_sliding(hammer, seed=2)
    state = hammer.get_state()
    return state, continue_from(hammer, state)


def continue_from(env: ToolUseEnv, state: EnvState) -> tuple[list[dict[str, bytes]], list[int]]:
    """Returns observations and digests of a fixed sequence of actions."""
    observations = [env.set_state(state)]
    digests = [env.state_digest()]
    rng = np.random.default_rng(0)
    actions = [press(env), *rng.uniform(-0.5, 0.5, (3, 6)).astype(np.float32)]
    for action in actions:
        observations.append(env.step(action)[0])
        digests.append(env.state_digest())
    return [{k: v.tobytes() for k, v in o.items()} for o in observations], digests


def test_a_snapshot_continues_bit_for_bit_wherever_it_is_restored(make, hammer, contact):
    state, future = contact
    before = pickle.dumps(state)
    assert hammer.set_state(state)["end_effector_wrench"][5] < -5.0
    assert continue_from(hammer, state) == future
    for env, seed in ((hammer, 11), (make(), 4)):  # after other scenes
        env.reset(seed=seed)
        env.step(np.ones(6, np.float32))
        assert continue_from(env, state) == future
    assert continue_from(EnvSpec.of(task="hammer").make_tool_use(), state) == future  # not reset
    for copied in (copy.deepcopy(state), pickle.loads(pickle.dumps(state))):
        assert continue_from(hammer, copied) == future
    assert pickle.dumps(state) == before


def test_a_snapshot_continues_as_the_uninterrupted_episode(hammer):
    hammer.reset(seed=5)
    states, digests, actions = [], [], []
    for _ in range(8):  # through every phase between control steps and time steps
        states.append(hammer.get_state())
        actions.append(press(hammer))
        hammer.step(actions[-1])
        digests.append(hammer.state_digest())
    for k in range(8):
        hammer.set_state(states[k])
        hammer.step(actions[k])
        assert hammer.state_digest() == digests[k]


def test_digests_of_different_states_differ(hammer, contact):
    state, (_, digests) = contact
    assert len(set(digests)) == len(digests)
    snapshot = state.snapshot
    for i in range(len(snapshot.x)):
        x = snapshot.x.copy()
        x[i] = np.nextafter(x[i], np.inf)
        assert replace(snapshot, x=x).digest() != snapshot.digest()
    assert replace(snapshot, step=snapshot.step + 1).digest() != snapshot.digest()
    assert 0 <= snapshot.digest() < 2**64


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


@settings(max_examples=10)
@given(st.floats(20.0, 45.0), st.floats(0.0, 0.95))
def test_below_its_resistance_the_brake_holds(world, resistance, fraction):
    _, weight = nail_mass(world)
    moved, velocity = push(world, fraction * resistance - weight, resistance)
    assert abs(moved) < 1e-4  # m in 0.1 s: the creep of the implicit damping
    assert abs(velocity) < 1e-3


@settings(max_examples=10)
@given(st.floats(20.0, 45.0), st.floats(1.1, 2.0))
def test_the_force_above_its_resistance_accelerates_the_nail(world, resistance, fraction):
    mass, weight = nail_mass(world)
    duration = 2 * TIME_STEP
    _, velocity = push(world, fraction * resistance - weight, resistance, duration)
    expected = (fraction - 1) * resistance / mass * duration
    assert velocity == pytest.approx(expected, rel=1e-3)


def test_the_brake_resists_in_both_directions(world):
    moved, _ = push(world, -15.0, 20.0)
    assert abs(moved) < 1e-4
