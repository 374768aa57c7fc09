"""A world of Drake's in MuJoCo: what the engines have in common is the same in both."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("mujoco")

from engines.mujoco_model import mujoco, mujoco_model
from engines.mujoco_simulation import STIFF, MujocoSimulation
from hypothesis import given
from hypothesis import strategies as st
from two_engines import Ended, Graded, compared

from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.errors import ConfigError
from fleet_tools.evaluation.protocol_file import load_protocol
from fleet_tools.policies.policy import StoredActions
from fleet_tools.sim.simulation import Simulation


def begun(task: str, engine: type[Simulation], seed: int = 3) -> ToolUseEnv:
    env = EnvSpec.of(task).make_tool_use()
    env._stage.engine = engine
    env.reset(seed=seed)
    return env


@pytest.fixture(name="parts", params=["hammer", "knife"])
def _parts(request: pytest.FixtureRequest) -> Any:
    """A simulation in MuJoCo, its time, and indices of the joints' velocities in both."""
    env = begun(request.param, MujocoSimulation)
    simulation: Any = env.simulation
    made, plant = simulation._simulator._made, simulation.world.plant
    ours = made.joints[:, 1] - plant.num_positions()
    yield simulation, simulation._simulator, ours, made.joints[:, 3]
    env.close()


def test_the_equation_of_motion_is_the_same(parts: Any) -> None:
    simulation, time, ours, theirs = parts
    plant, context, generator = (
        simulation.world.plant,
        simulation._context,
        np.random.default_rng(0),
    )
    for _ in range(3):
        x = plant.GetPositionsAndVelocities(context)
        q, v = time._made.joints[:, 0], time._made.joints[:, 1]
        x[q] += generator.uniform(-0.3, 0.3, q.size)
        x[v] = generator.uniform(-1, 1, v.size)
        plant.SetPositionsAndVelocities(context, x)
        time._read()
        model, data = time._made.model, time._data
        mujoco.mj_forward(model, data)
        M = np.zeros((model.nv, model.nv))
        mujoco.mj_fullM(model, M, data.qM)
        expected = plant.CalcMassMatrix(context)[np.ix_(ours, ours)]
        np.testing.assert_allclose(M[np.ix_(theirs, theirs)], expected, atol=1e-5)
        bias = plant.CalcBiasTerm(context) - plant.CalcGravityGeneralizedForces(context)
        np.testing.assert_allclose(data.qfrc_bias[theirs], bias[ours], atol=1e-4)


def test_a_state_comes_back_from_mujoco(parts: Any) -> None:
    simulation, time, _, _ = parts
    plant, context = simulation.world.plant, simulation._context
    generator = np.random.default_rng(1)
    x = plant.GetPositionsAndVelocities(context)
    x[plant.num_positions() :] = generator.uniform(-1, 1, plant.num_velocities())
    for start in time._made.free[:, 0]:  # turned anyhow
        quaternion = generator.standard_normal(4)
        x[start : start + 4] = quaternion / np.linalg.norm(quaternion)
    plant.SetPositionsAndVelocities(context, x)
    time._read()
    mujoco.mj_forward(time._made.model, time._data)
    for index in plant.GetFloatingBaseBodies():
        body, found = plant.get_body(index), np.zeros(6)
        name = f"{int(body.model_instance())}/{body.name()}"
        there = time._made.model.body(name).id
        mujoco.mj_objectVelocity(
            time._made.model, time._data, mujoco.mjtObj.mjOBJ_XBODY, there, found, 0
        )
        V_WB = body.EvalSpatialVelocityInWorld(context)
        np.testing.assert_allclose(found, V_WB.get_coeffs(), atol=1e-9)
    time._write()
    np.testing.assert_allclose(plant.GetPositionsAndVelocities(context), x, atol=1e-12)


def test_the_hand_moves_alike_where_nothing_touches() -> None:
    actions = np.random.default_rng(2).uniform(-0.5, 0.5, (6, 6)).astype(np.float32)
    ends = []
    for engine in (Simulation, MujocoSimulation):
        env = begun("hammer", engine)
        for action in actions:
            env.step(action)
        ends.append(env.world_state())
        env.close()
    assert np.linalg.norm(ends[0].X_WE.translation() - ends[1].X_WE.translation()) < 1e-3
    turned = ends[0].X_WE.rotation().inverse() @ ends[1].X_WE.rotation()
    assert turned.ToAngleAxis().angle() < 5e-3
    assert ends[0].time == ends[1].time


def test_scenes_of_several_objects_are_refused() -> None:
    protocol = load_protocol("v3", "long")
    env = protocol.make_env("hammer")
    env._stage.engine = MujocoSimulation
    (trial,) = protocol.trials("hammer", "train", scenes=1)
    with pytest.raises(ConfigError, match="MuJoCo simulates one object here; the scene has 2"):
        env.reset(options={"scene": protocol.scene(env.task, trial)})
    env.close()


@pytest.mark.parametrize(("part", "moves"), [(0.8, False), (1.5, True)])
def test_a_nail_resists_as_the_scene_says(part: float, moves: bool) -> None:
    env = begun("hammer", MujocoSimulation)
    simulation: Any = env.simulation
    made = mujoco_model(simulation.world, simulation._root, STIFF)
    data = mujoco.MjData(made.model)
    nail = made.model.joint(f"{int(simulation.world.object)}/slide")
    data.qfrc_applied[nail.dofadr[0]] = part * simulation.scene.joint_resistance["slide"]
    while data.time < 0.2:
        mujoco.mj_step(made.model, data)
    slid = data.qpos[nail.qposadr[0]]
    assert slid > 5e-3 if moves else 0 < slid < 1e-3  # a brake of MuJoCo's creeps
    env.close()


@given(st.lists(st.integers(0, 64).map(lambda n: n / 64), min_size=3, max_size=10, unique=True))
def test_the_order_of_policies_is_compared_and_not_their_level(progress: list[float]) -> None:
    one = {str(i): [Ended(p > 0.5, p, 0.0, 0.0)] for i, p in enumerate(progress)}
    half = {name: [Ended(False, ends[0].progress / 2, 0.0, 0.0)] for name, ends in one.items()}
    turned = {name: [Ended(False, -ends[0].progress, 0.0, 0.0)] for name, ends in one.items()}
    assert compared(one, half)["tau, progress"] == pytest.approx(1.0)
    assert compared(one, turned)["tau, progress"] == pytest.approx(-1.0)
    assert compared(one, one)["same verdict"] == len(one)


def test_weaknesses_are_the_same_in_every_episode() -> None:
    actions = np.full((4, 6), 0.5, np.float32)
    policy = Graded(StoredActions(actions), seed=1, noise=0.1, scale=0.5, delay=2)
    found = []
    for _ in range(2):
        policy.reset()
        found.append(np.array([policy.act({}) for _ in actions]))
    np.testing.assert_array_equal(*found)
    plain = Graded(StoredActions(actions), seed=1, scale=0.5, delay=2)
    plain.reset()
    told = [policy_action[0] for policy_action in (plain.act({}) for _ in actions)]
    assert told == [0.0, 0.0, 0.25, 0.25]
