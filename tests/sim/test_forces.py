"""Measured forces, compared with a weight, a push, a brake, and Newton's laws."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from pydrake.multibody.math import SpatialForce
from support.environments import press, press_until_sliding

from fleet_tools.config.control import TIME_STEP
from fleet_tools.envs.episode_state import EnvState
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.sim.scene import Scene
from fleet_tools.sim.simulation import Simulation
from fleet_tools.sim.world_state import WorldState

STILL = np.zeros(6)
MODELS = {
    "Hammer": ("claw", "round_nail"),
    "Wrench": ("open_end", "hex_nut"),
    "Spatula": ("turner", "brownie"),
}
G = 9.81
NO_OBSERVATION: dict[str, np.ndarray] = {}  # the expert reads the state


@pytest.fixture(scope="module", name="env_of")
def _env_of(make):
    """A function that makes a task's environment, with one pair of models."""

    def env_of(name: str) -> ToolUseEnv:
        tool, object = MODELS[name]
        return make(f"FleetTools/{name}-v0", tool=tool, object=object)

    return env_of


@dataclass(frozen=True)
class ExpertEpisode:
    """The expert's episode: its scene, the world after every step, and the last state."""

    scene: Scene
    steps: list[WorldState]
    last: EnvState


@pytest.fixture(scope="module", name="episode_of")
def _episode_of(env_of):
    """A function that runs a task's expert, once."""

    @cache
    def episode_of(name: str) -> ExpertEpisode:
        env = env_of(name)
        env.reset(seed=1)
        expert = ExpertPolicy(env)
        expert.reset()
        steps = []
        while env.get_state().outcome == "running":
            env.step(expert.act(NO_OBSERVATION))
            steps.append(env.world_state())
        return ExpertEpisode(env.scene, steps, env.get_state())

    return episode_of


def wrench_in_world(state: WorldState) -> np.ndarray:
    """Returns the end effector's measured wrench, expressed in the world."""
    R_WE = state.X_WE.rotation()
    return np.r_[R_WE @ state.F_E[:3], R_WE @ state.F_E[3:]]


def shifted(F_E: np.ndarray, p_WE: np.ndarray, p_WQ: np.ndarray) -> np.ndarray:
    """Returns a wrench at E, shifted to Q; all in the world."""
    return SpatialForce(F_E[:3], F_E[3:]).Shift(p_WQ - p_WE).get_coeffs()


# --- Newton's third law, and two ways to measure one force ------------------------------------


@pytest.mark.parametrize("name", list(MODELS))
def test_joint_torques_and_contact_surfaces_give_the_same_wrench(episode_of, name):
    """Holds where nothing but the object touches arm and tool."""
    compared = 0
    for state in episode_of(name).steps:
        touched = any({"robot", "tool"} & set(pair) for pair in state.contacts)
        others = state.in_contact("tool", "table") or state.in_contact("robot", "object")
        if touched and not others:
            np.testing.assert_allclose(wrench_in_world(state), state.F_W_tool, atol=1e-9)
            compared += np.linalg.norm(state.F_W_tool[3:]) > 0.5  # N
    assert compared


@pytest.mark.parametrize("name", ["Hammer", "Wrench"])
def test_the_force_on_the_object_is_opposite_to_that_on_the_tool(episode_of, name):
    compared = 0
    for state in episode_of(name).steps:
        if not state.in_contact("tool", "object"):
            assert not state.F_W_tool.any() and not any(state.object_joint_forces.values())
            continue
        (joint_force,) = state.object_joint_forces.values()
        p_WAxis = state.X_WO.translation()  # both axes go down through the model's origin
        moment, force = np.split(-shifted(state.F_W_tool, state.X_WE.translation(), p_WAxis), 2)
        assert joint_force == pytest.approx(-(force if name == "Hammer" else moment)[2], rel=1e-9)
        compared += 1
    assert compared


# --- A known weight on the tool ---------------------------------------------------------------


@pytest.mark.parametrize(
    "turn", [(0, 0, 0), (0, 0, 0.25), (0, 0, -0.25), (0.08, 0, 0.1), (-0.05, 0.08, 0)]
)
def test_a_known_weight_on_the_tool_is_measured(env_of, episode_of, turn):
    """A slab of known mass lies on the blade; the hand turns about the world's axes, rad."""
    env, last = env_of("Spatula"), episode_of("Spatula").last
    env.set_state(last)
    simulation = env.simulation
    for k in range(12):
        R_EW = simulation.world_state().X_WE.rotation().inverse()
        simulation.step(np.r_[0, 0, 0, R_EW @ turn / 6] if k < 6 else STILL)
    state = simulation.world_state()
    slab = simulation.world.plant.GetBodyByName("slab")
    weight = slab.get_mass(simulation._context) * G
    p_WCom, v_WCom = state.links["slab"]
    assert weight > 1.0 and np.linalg.norm(v_WCom) < 1e-3
    force = np.array([0.0, 0.0, -weight])
    F_W = np.r_[np.cross(p_WCom - state.X_WE.translation(), force), force]
    np.testing.assert_allclose(wrench_in_world(state), F_W, atol=2e-3 * weight)
    np.testing.assert_allclose(state.F_W_tool, F_W, atol=2e-3 * weight)

    # The torque at each joint is the power of the weight per joint velocity.
    arm = simulation.world.adjustable.arm_model
    p_ECom, h = state.X_WE.inverse() @ p_WCom, 1e-6

    def height(q: np.ndarray) -> float:
        _, X_WE = arm.dynamics(q, np.zeros(7))
        return (X_WE[:, :3] @ p_ECom + X_WE[:, 3])[2]

    slopes = [(height(state.q + dq) - height(state.q - dq)) / (2 * h) for dq in h * np.eye(7)]
    np.testing.assert_allclose(state.tau_external, -weight * np.array(slopes), atol=2e-3 * weight)


def test_a_weight_is_the_same_while_it_is_lifted_at_constant_speed(env_of, episode_of):
    episode = episode_of("Spatula")
    forces = [s.F_W_tool[5] for s in episode.steps if not s.in_contact("object", "table")]
    env = env_of("Spatula")
    env.set_state(episode.last)
    simulation = env.simulation
    slab = simulation.world.plant.GetBodyByName("slab")
    weight = slab.get_mass(simulation._context) * G
    np.testing.assert_allclose(forces[-6:], -weight, rtol=0.03)


# --- A known push -----------------------------------------------------------------------------


@pytest.mark.parametrize("rpy_deg", [(0, 0, 0), (0, 20, 0), (0, -20, 0), (15, 10, 0)])
def test_a_nail_pushes_back_with_the_force_of_its_brake(env_of, rpy_deg):
    """The hammer is upright; the hand is turned relative to it, by the grasp."""
    env = env_of("Hammer")
    env.reset(seed=1)
    held = {"translation_m": (0, 0, 0), "rpy_deg": rpy_deg}
    scene = env.scene.model_dump() | {"tool_in_hand": held, "joint_resistance": {"slide": 50.0}}
    press_until_sliding(env, options={"scene": scene})
    state = env.world_state()
    simulation = env.simulation
    nail = simulation.world.plant.GetBodyByName("nail")
    expected = 50.0 - nail.get_mass(simulation._context) * G
    assert wrench_in_world(state)[5] == pytest.approx(expected, rel=0.02)  # upwards
    assert state.object_joint_forces["slide"] == pytest.approx(expected, rel=0.02)


def test_the_torque_on_a_turning_nut_is_that_of_its_brake(episode_of):
    episode, turned, compared = episode_of("Wrench"), 0.0, 0
    torque = episode.scene.joint_resistance["turn"]
    for state in episode.steps:
        turned, before = state.object_joints["turn"], turned
        if turned - before > 0.08:  # rad, at constant speed
            assert state.object_joint_forces["turn"] == pytest.approx(torque, rel=0.01)
            compared += 1
    assert compared > 3


# --- Impulse and momentum ---------------------------------------------------------------------


def momentum_and_impulses(
    simulation: Simulation, joint_name: str, motion: np.ndarray
) -> tuple[float, float, float]:
    """Runs a control step that begins between two steps of the dynamics.

    Returns:
        The joint's gain in momentum; the impulse of contact; those of weight and brake.
    """
    plant, context = simulation.world.plant, simulation._context
    joint, simulator = plant.GetJointByName(joint_name), simulation._simulator
    index = joint.velocity_start()
    brake = plant.get_net_actuation_output_port(simulation.world.object)

    def momentum() -> float:
        return plant.CalcMassMatrix(context)[index, index] * joint.GetOneVelocity(context)

    before, updates = momentum(), simulator.get_num_discrete_updates()
    braking: list[float] = []
    # A monitor is called before every update, and in the end, when none follows.
    simulator.set_monitor(lambda _: braking.append(brake.Eval(context)[0]))
    simulation.step(motion)
    simulator.clear_monitor()
    updates = simulator.get_num_discrete_updates() - updates
    assert len(braking) == updates + 1
    weight = plant.CalcGravityGeneralizedForces(context)[index]
    others = TIME_STEP * (updates * weight + sum(braking[:-1]))
    return momentum() - before, simulation.world_state().object_joint_impulses[joint_name], others


@pytest.mark.parametrize(
    ("name", "joint", "short_of_its_end"), [("Hammer", "slide", 0.025), ("Wrench", "turn", 1.0)]
)
def test_impulses_change_momentum(env_of, name, joint, short_of_its_end):
    """Holds from before the first contact on, while the brake slides and holds."""
    env, impulses = env_of(name), []
    env.reset(seed=2)
    expert = ExpertPolicy(env)
    expert.reset()
    while env.get_state().outcome == "running" and env.world_state().time < 6.0:
        hammer = name == "Hammer"
        action = press(env, (0.0, 0.0, -0.003)) if hammer else expert.act(NO_OBSERVATION)
        state, simulation = env.get_state(), env.simulation
        if simulation.steps % 3 and env.world_state().object_joints[joint] < short_of_its_end:
            motion = action.astype(float) * env.action_scale
            gain, contact, others = momentum_and_impulses(simulation, joint, motion)
            # The solver stops at 1e-6 of the momentum of arm and object.
            assert gain == pytest.approx(contact + others, abs=1e-6)
            impulses.append(contact)
            env.set_state(state)
        env.step(action)
    assert min(impulses) == 0.0 and sum(impulse > 0.1 for impulse in impulses) > 2


@pytest.fixture(name="pressed")
def _pressed(env_of):
    env = env_of("Hammer")
    press_until_sliding(env, seed=1)
    return env


def test_an_episode_begins_without_impulses(pressed):
    assert pressed.world_state().object_joint_impulses["slide"] > 1.0
    pressed.reset(seed=1)
    assert pressed.world_state().object_joint_impulses == {"slide": 0.0}
    pressed.step(np.zeros(6, np.float32))
    assert pressed.world_state().object_joint_impulses == {"slide": 0.0}


# --- Forces in `info` -------------------------------------------------------------------------


def test_info_holds_the_contact_forces(pressed):
    *_, info = pressed.step(press(pressed))
    state, reported = pressed.world_state(), info["forces"]
    moment, force = np.split(state.F_W_tool, 2)
    np.testing.assert_array_equal(reported["tool_force_N"], force)
    np.testing.assert_array_equal(reported["tool_moment_Nm"], moment)
    assert reported["object_joint_force"] == state.object_joint_forces
    assert reported["object_joint_impulse"] == state.object_joint_impulses
    assert all(type(value) is float for value in reported["object_joint_impulse"].values())
