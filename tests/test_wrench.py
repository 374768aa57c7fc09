"""Wrench-v0: what counts as a turned nut, and the states that only look like one, made for real."""

import copy
import itertools

import gymnasium
import numpy as np
import pytest
import yaml
from pydrake.math import RigidTransform, RotationMatrix

from fleet_tools.config.tasks import load_task, task_path
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.robot.pose_delta import displacement
from fleet_tools.rollouts.episode import rollout

ID = "FleetTools/Wrench-v0"
THRESHOLD = np.radians(45)
KINDS = ("joint_displacement", "contact", "keypoints_near")


@pytest.fixture(scope="module", name="follow")
def _follow(tmp_path_factory):
    """Runs the expert with other motions after the actuation pose, to the end of its plan."""
    data = yaml.safe_load(task_path("wrench").read_text())
    # Success must last longer than an episode, so that none ends early.
    data |= {"success_steps": 1000}
    folder = tmp_path_factory.mktemp("wrench")

    def follow(*motions, seed=1):
        changed = copy.deepcopy(data)
        changed["expert"]["after"] = [
            {"motion": motion, "speed": 0.4} for motion in (*motions, {"type": "stay", "steps": 2})
        ]
        file = folder / "wrench.yaml"
        file.write_text(yaml.safe_dump(changed))
        env = gymnasium.make(ID, task=str(file), tool="open_end", object="hex_nut").unwrapped
        observation, info = env.reset(seed=seed)
        expert = ExpertPolicy(env)
        expert.reset()
        for _ in range(len(expert.plan.X_WE) - 1):
            observation, *_, info = env.step(expert.act(observation))
        return env, info

    return follow


def turn(angle_deg):
    return {"type": "rotate", "angle_deg": angle_deg, "about": "nut", "axis": ["top", "base"]}


def verdicts(env) -> dict[str, bool]:
    """Which parts of success hold, from the world's own state."""
    state = env.world_state()
    distance = np.linalg.norm(state.p_W_tool["jaw"] - state.p_W_object["nut"])
    found = (
        state.object_joints["turn"] >= THRESHOLD,
        state.touch("tool", "object/nut"),
        distance <= 0.010,
    )
    return dict(zip(KINDS, map(bool, found), strict=True))


def test_the_task_asks_for_an_angle_of_the_nut_by_the_jaw_in_contact():
    success = {predicate.type: predicate for predicate in load_task("wrench").success}
    assert tuple(success) == KINDS
    assert success["joint_displacement"].at_least == pytest.approx(THRESHOLD, abs=1e-4)


# --- What counts ----------------------------------------------------------------------------


def test_a_nut_turned_and_held_is_a_success(follow):
    env, info = follow(turn(70))
    assert all(verdicts(env).values()) and info["success"] is True


@pytest.mark.parametrize("object", ["square_nut", "flange_nut", "coupling_nut"])
def test_the_expert_turns_nuts_of_every_shape(make, object):
    env = make(ID, tool="flare", object=object)
    assert rollout(env, ExpertPolicy(env), seed=3).succeeded


def test_the_expert_plans_at_the_ends_of_what_is_randomized(make):
    env = make(ID, split="all")
    drawn = load_task("wrench").randomization.object_pose
    x, y, _ = drawn.translation_m
    for i, (px, py, yaw) in enumerate(
        itertools.product(x.uniform, y.uniform, drawn.rpy_deg[2].uniform)
    ):
        for tool in ("angled", "combination"):  # jaws at 15 degrees, one way and the other
            env.reset(seed=i)
            pose = {"translation_m": (px, py, 0.0), "rpy_deg": (0.0, 0.0, yaw)}
            scene = env.scene.model_dump() | {"tool": tool, "object": "hex_nut"}
            env.reset(options={"scene": scene | {"object_pose": pose}})
            ExpertPolicy(env).reset()


# --- What only looks like it ----------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_doing_nothing_never_turns_a_nut(make, seed):
    env = make(ID)
    env.reset(seed=seed)
    for _ in range(10):
        info = env.step(np.zeros(6, np.float32))[-1]
    assert not info["success_once"] and env.world_state().object_joints["turn"] == 0


def test_turned_too_little(follow):
    env, info = follow(turn(45))  # play eats the rest
    assert verdicts(env) == dict(zip(KINDS, (False, True, True), strict=True))
    assert env.world_state().object_joints["turn"] > np.radians(20)
    assert not info["success_once"]


def test_turned_the_wrong_way(follow):
    env, info = follow(turn(-65), seed=8)  # where there is room for it
    assert verdicts(env) == dict(zip(KINDS, (False, True, True), strict=True))
    assert env.world_state().object_joints["turn"] < -THRESHOLD
    assert not info["success_once"]


def test_turned_and_turned_back(follow):
    env, info = follow(turn(70), turn(-60))
    assert verdicts(env) == dict(zip(KINDS, (False, True, True), strict=True))
    assert info["success_once"] and not info["success"]


def test_turned_and_let_go(follow):
    away = {"type": "translate", "by_m": [0, 0, 0.08], "frame": "world"}
    env, info = follow(turn(70), away)
    assert verdicts(env) == dict(zip(KINDS, (True, False, False), strict=True))
    assert info["success_once"] and not info["success"]


@pytest.fixture(name="env")
def _env():
    """An environment of its own, because a test leaves a force in it."""
    env = gymnasium.make(ID, tool="open_end", object="hex_nut").unwrapped
    env.reset(seed=1)
    return env


def twist_nut(env, torque_above_resistance: float) -> None:
    """Something other than the robot turns the nut from now on."""
    simulation = env._simulation
    plant, context = simulation.world.plant, simulation._context
    forces = np.zeros(plant.num_velocities())
    torque = env.scene.joint_resistance["turn"] + torque_above_resistance
    forces[plant.GetJointByName("turn").velocity_start()] = torque
    plant.get_applied_generalized_force_input_port().FixValue(context, forces)


def test_turned_by_something_else_while_the_tool_is_away(env):
    twist_nut(env, 0.02)
    for _ in range(30):
        info = env.step(np.zeros(6, np.float32))[-1]
        if env.world_state().object_joints["turn"] > THRESHOLD:
            break
    assert verdicts(env) == dict(zip(KINDS, (True, False, False), strict=True))
    assert info["outcome"] == "running" and not info["success_once"]


def test_turned_by_something_else_while_the_tool_leans_on_it(env):
    """The outside of a prong presses on a nut that turns: contact, but not by the jaw."""
    R_WD = RotationMatrix(np.diag([1.0, -1.0, -1.0]))  # the mouth looks forward

    def go(*p_NJaw):
        state = env.world_state()
        p_EJaw = state.X_WE.inverse() @ state.p_W_tool["jaw"]
        X_WD = RigidTransform(R_WD, state.p_W_object["nut"] + p_NJaw - R_WD @ p_EJaw)
        action = displacement(state.X_WE, X_WD) / env.action_scale
        return env.step(np.float32(action / max(1.0, np.abs(action).max())))[-1]

    for p_NJaw in [*[(0.0, -0.12, 0.06)] * 14, *[(0.0, -0.12, 0.0)] * 4]:
        go(*p_NJaw)  # beside the nut
    for _ in range(8):
        go(0.0, -0.05, 0.0)
    assert verdicts(env) == dict(zip(KINDS, (False, True, False), strict=True))
    twist_nut(env, 3.0)
    infos = []
    while verdicts(env) != dict(zip(KINDS, (True, True, False), strict=True)):
        infos.append(go(0.0, -0.05, 0.0))
    assert infos and not any(info["success_once"] for info in infos)
