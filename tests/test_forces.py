"""Forces against what is known otherwise: a weight, a push, a brake, and Newton's laws."""

import gymnasium
import numpy as np
import pytest
from conftest import press, press_until_sliding
from pydrake.multibody.math import SpatialForce

from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.sim.world import TIME_STEP

STILL = np.zeros(6)
PAIRS = {
    "FleetTools/Hammer-v0": ("claw", "round_nail"),
    "FleetTools/Wrench-v0": ("open_end", "hex_nut"),
    "FleetTools/Spatula-v0": ("turner", "brownie"),
}
G = 9.81


@pytest.fixture(scope="module", name="env_of")
def _env_of(make):
    def env_of(name):
        environment_id = f"FleetTools/{name}-v0"
        tool, object = PAIRS[environment_id]
        return make(environment_id, tool=tool, object=object)

    return env_of


def expert_steps(env, scene=None):
    """Runs the expert's episode; yields after every step."""
    env.reset(seed=1)
    if scene is not None:
        env.reset(options={"scene": env.scene.model_dump() | scene})
    expert = ExpertPolicy(env)
    expert.reset()
    while env.get_state().outcome == "running":
        env.step(expert.act(None))
        yield env.world_state()


def in_world(state) -> np.ndarray:
    """The end effector's wrench, as it senses it, expressed in the world."""
    R_WE = state.X_WE.rotation()
    return np.r_[R_WE @ state.F_E[:3], R_WE @ state.F_E[3:]]


def about(F_E, p_WE, p_WQ) -> np.ndarray:
    """A wrench at E, shifted to Q; all in the world."""
    return SpatialForce(F_E[:3], F_E[3:]).Shift(p_WQ - p_WE).get_coeffs()


# --- Newton's third law, and two ways to know one force ---------------------------------------


@pytest.mark.parametrize("name", ["Hammer", "Wrench", "Spatula"])
def test_joint_torques_and_contact_surfaces_tell_of_one_wrench(env_of, name):
    """Where nothing but the object touches arm and tool."""
    compared = 0
    for state in expert_steps(env_of(name)):
        parties = {pair for pair in state.contacts if {"robot", "tool"} & set(pair)}
        if parties and not state.touch("tool", "table") and not state.touch("robot", "object"):
            np.testing.assert_allclose(in_world(state), state.F_W_tool, atol=1e-9)
            compared += np.linalg.norm(state.F_W_tool[3:]) > 0.5  # N
    assert compared


@pytest.mark.parametrize("name", ["Hammer", "Wrench"])
def test_the_object_feels_the_opposite_of_what_the_tool_feels(env_of, name):
    compared = 0
    for state in expert_steps(env_of(name)):
        if not state.touch("tool", "object"):
            assert not state.F_W_tool.any() and not any(state.object_joint_forces.values())
            continue
        (felt,) = state.object_joint_forces.values()
        p_WAxis = state.X_WO.translation()  # both axes go down through the model's origin
        moment, force = np.split(-about(state.F_W_tool, state.X_WE.translation(), p_WAxis), 2)
        assert felt == pytest.approx(-(force if name == "Hammer" else moment)[2], rel=1e-9)
        compared += 1
    assert compared


# --- A known weight hung at the tool ----------------------------------------------------------


@pytest.fixture(scope="module", name="carrying")
def _carrying(env_of):
    """A simulation in which a slab of known mass lies on the blade."""
    env = env_of("Spatula")
    for _ in expert_steps(env):
        pass
    return env._simulation, env._simulation.snapshot()


@pytest.mark.parametrize(
    "turn", [(0, 0, 0), (0, 0, 0.25), (0, 0, -0.25), (0.08, 0, 0.1), (-0.05, 0.08, 0)]
)
def test_a_known_weight_hung_at_the_tool_is_felt(carrying, turn):
    """In several attitudes of the hand, turned about the world's axes, rad."""
    simulation, snapshot = carrying
    simulation.restore(snapshot)
    for k in range(12):
        R_EW = simulation.measure().X_WE.rotation().inverse()
        simulation.step(np.r_[0, 0, 0, R_EW @ turn / 6] if k < 6 else STILL)
    state = simulation.measure()
    slab = simulation.world.plant.GetBodyByName("slab")
    weight = slab.get_mass(simulation._context) * G
    p_WCom, v_WCom = state.links["slab"]
    assert weight > 1.0 and np.linalg.norm(v_WCom) < 1e-3
    force = np.array([0.0, 0.0, -weight])
    F_W = np.r_[np.cross(p_WCom - state.X_WE.translation(), force), force]
    np.testing.assert_allclose(in_world(state), F_W, atol=2e-3 * weight)
    np.testing.assert_allclose(state.F_W_tool, F_W, atol=2e-3 * weight)

    # The torque at each joint is the power of the weight per joint velocity.
    arm, p_ECom, h = simulation.world.arm_model, state.X_WE.inverse() @ p_WCom, 1e-6

    def height(q):
        arm.set_state(np.r_[q, np.zeros(7)])
        return (arm.pose() @ p_ECom)[2]

    slopes = [(height(state.q + dq) - height(state.q - dq)) / (2 * h) for dq in h * np.eye(7)]
    np.testing.assert_allclose(state.tau_external, -weight * np.array(slopes), atol=2e-3 * weight)


def test_a_weight_weighs_the_same_while_it_is_lifted_evenly(env_of):
    env = env_of("Spatula")
    up = [s.F_W_tool[5] for s in expert_steps(env) if not s.touch("object", "table")]
    slab = env._simulation.world.plant.GetBodyByName("slab")
    weight = slab.get_mass(env._simulation._context) * G
    np.testing.assert_allclose(up[-6:], -weight, rtol=0.03)


# --- A known push -----------------------------------------------------------------------------


@pytest.mark.parametrize("rpy_deg", [(0, 0, 0), (0, 20, 0), (0, -20, 0), (15, 10, 0)])
def test_a_nail_pushes_back_as_hard_as_its_brake_holds_it(env_of, rpy_deg):
    """The hammer is upright; the hand is as far from it as the grasp is turned."""
    env = env_of("Hammer")
    env.reset(seed=1)
    held = {"translation_m": (0, 0, 0), "rpy_deg": rpy_deg}
    scene = env.scene.model_dump() | {"tool_in_hand": held, "joint_resistance": {"slide": 50.0}}
    press_until_sliding(env, options={"scene": scene})
    state = env.world_state()
    nail = env._simulation.world.plant.GetBodyByName("nail")
    expected = 50.0 - nail.get_mass(env._simulation._context) * G
    assert in_world(state)[5] == pytest.approx(expected, rel=0.02)  # upwards
    assert state.object_joint_forces["slide"] == pytest.approx(expected, rel=0.02)


def test_a_turning_nut_takes_the_torque_of_its_brake(env_of):
    env, turned, compared = env_of("Wrench"), 0.0, 0
    for state in expert_steps(env):
        turned, before = state.object_joints["turn"], turned
        if turned - before > 0.08:  # rad, evenly
            torque = env.scene.joint_resistance["turn"]
            assert state.object_joint_forces["turn"] == pytest.approx(torque, rel=0.01)
            compared += 1
    assert compared > 3


# --- Impulse and momentum ---------------------------------------------------------------------


def momentum_and_impulses(simulation, joint, motion):
    """Runs a control step that begins between two steps of the dynamics.

    Returns:
        What the joint gains in momentum; the impulse of contact; those of weight and brake.
    """
    plant, context = simulation.world.plant, simulation._context
    joint, simulator = plant.GetJointByName(joint), simulation._simulator
    place = joint.velocity_start()
    brake = plant.get_net_actuation_output_port(simulation.world.object)

    def momentum():
        return plant.CalcMassMatrix(context)[place, place] * joint.GetOneVelocity(context)

    before, updates, braking = momentum(), simulator.get_num_discrete_updates(), []
    # A monitor is called before every update, and in the end, when none follows.
    simulator.set_monitor(lambda _: braking.append(brake.Eval(context)[0]))
    simulation.step(motion)
    simulator.clear_monitor()
    updates = simulator.get_num_discrete_updates() - updates
    assert len(braking) == updates + 1
    weight = plant.CalcGravityGeneralizedForces(context)[place]
    others = TIME_STEP * (updates * weight + sum(braking[:-1]))
    return momentum() - before, simulation.measure().object_joint_impulses[joint.name()], others


@pytest.mark.parametrize(
    ("name", "joint", "short_of_its_end"), [("Hammer", "slide", 0.025), ("Wrench", "turn", 1.0)]
)
def test_impulses_are_what_changes_momentum(env_of, name, joint, short_of_its_end):
    """From before the first touch, through it, and on while the brake slides and holds."""
    env, felt = env_of(name), []
    env.reset(seed=2)
    expert = ExpertPolicy(env)
    expert.reset()
    while env.get_state().outcome == "running" and env.world_state().time < 6.0:
        action = press(env, (0.0, 0.0, -0.003)) if name == "Hammer" else expert.act(None)
        state, simulation = env.get_state(), env._simulation
        if simulation.steps % 3 and env.world_state().object_joints[joint] < short_of_its_end:
            motion = action.astype(float) * env.action_scale
            gain, contact, others = momentum_and_impulses(simulation, joint, motion)
            assert gain == pytest.approx(contact + others, abs=2e-7)
            felt.append(contact)
            env.set_state(state)
        env.step(action)
    assert min(felt) == 0.0 and sum(impulse > 0.1 for impulse in felt) > 2


@pytest.fixture(name="pressed")
def _pressed(env_of):
    env = env_of("Hammer")
    press_until_sliding(env, seed=1)
    return env


def test_nothing_is_felt_where_an_episode_begins(pressed):
    assert pressed.world_state().object_joint_impulses["slide"] > 1.0
    pressed.reset(seed=1)
    assert pressed.world_state().object_joint_impulses == {"slide": 0.0}
    pressed.step(np.zeros(6, np.float32))
    assert pressed.world_state().object_joint_impulses == {"slide": 0.0}


def test_forces_come_back_with_a_snapshot_and_go_on_bit_for_bit(pressed):
    state, told = pressed.get_state(), forces(pressed)
    action = press(pressed)
    pressed.step(action)
    later = forces(pressed)
    assert later != told
    pressed.reset(seed=7)
    pressed.set_state(state)
    assert forces(pressed) == told
    pressed.step(action)
    assert forces(pressed) == later


def forces(env) -> dict:
    said = env.world_state().forces()
    return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in said.items()}


# --- What users are told ----------------------------------------------------------------------


def test_info_tells_what_contact_does(pressed):
    *_, info = pressed.step(press(pressed))
    state, said = pressed.world_state(), info["forces"]
    moment, force = np.split(state.F_W_tool, 2)
    np.testing.assert_array_equal(said["tool_force_N"], force)
    np.testing.assert_array_equal(said["tool_moment_Nm"], moment)
    assert said["object_joint_force"] == state.object_joint_forces
    assert said["object_joint_impulse"] == state.object_joint_impulses
    assert all(type(value) is float for value in said["object_joint_impulse"].values())


def test_vector_environments_stack_the_forces():
    vector = gymnasium.make_vec("FleetTools/Hammer-v0", num_envs=2, vectorization_mode="sync")
    try:
        vector.reset(seed=[1, 2])
        said = vector.step(np.zeros((2, 6), np.float32))[-1]["forces"]
    finally:
        vector.close()
    assert said["tool_force_N"].shape == said["tool_moment_Nm"].shape == (2, 3)
    assert said["object_joint_impulse"]["slide"].shape == (2,)
