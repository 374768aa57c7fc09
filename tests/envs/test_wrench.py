"""The wrench task: a turned nut, and states that only look like success."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from pydrake.math import RigidTransform, RotationMatrix
from support.task_limits import follow as follow_expert

from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.robot.pose_delta import displacement
from fleet_tools.rollouts.rollout import rollout

ID = "FleetTools/Wrench-v0"
THRESHOLD = np.radians(45)
KINDS = ("joint_displacement", "caused_by_part", "contact", "keypoints_near")


@pytest.fixture(name="follow")
def _follow(tmp_path):
    return partial(follow_expert, tmp_path, "wrench", ("open_end", "hex_nut"))


def turn(angle_deg: float) -> dict[str, Any]:
    return {"type": "rotate", "angle_deg": angle_deg, "about": "nut", "axis": ["top", "base"]}


def verdicts(env: ToolUseEnv) -> dict[str, bool]:
    """Returns which parts of success hold, computed from the state of the world."""
    state = env.world_state()
    distance = np.linalg.norm(state.p_W_tool["jaw"] - state.p_W_object["nut"])
    found = (
        state.object_joints["turn"] >= THRESHOLD,
        state.part_motion["jaw"].object_joints["turn"] >= 0.7,
        state.in_contact("tool", "object/nut"),
        distance <= 0.010,
    )
    return dict(zip(KINDS, map(bool, found), strict=True))


# --- Success --------------------------------------------------------------------------------


def test_a_nut_turned_and_held_is_a_success(follow):
    env, info = follow(turn(70))
    assert all(verdicts(env).values()) and info["success"] is True


@pytest.mark.parametrize(
    "object",
    [
        "square_nut",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("flange_nut", "coupling_nut")),
    ],
)
def test_the_expert_turns_nuts_of_every_shape(make, object):
    env = make(ID, tool="flare", object=object)
    assert rollout(env, ExpertPolicy(env), seed=3).outcome == "success"


# --- States that only look like success -----------------------------------------------------


UPWARDS = {"type": "translate", "by_m": [0, 0, 0.08], "frame": "world"}
OTHERWISE = {  # motions, seed, what holds at the end, and the nut's angle, degrees
    "too little": ((turn(45),), 1, (False, False, True, True), (20, 45)),  # because of play
    "the wrong way": ((turn(-65),), 8, (False, False, True, True), (-180, -45)),  # has room for it
    "and turned back": ((turn(70), turn(-60)), 1, (False, False, True, True), (-180, 45)),
    "and released": ((turn(70), UPWARDS), 1, (True, True, False, False), (45, 180)),
}


@pytest.mark.parametrize("case", OTHERWISE)
def test_turned(follow, case):
    motions, seed, held, (low, high) = OTHERWISE[case]
    env, info = follow(*motions, seed=seed)
    assert verdicts(env) == dict(zip(KINDS, held, strict=True))
    assert low < np.rad2deg(env.world_state().object_joints["turn"]) < high
    assert info["success_once"] == (len(motions) == 2) and not info["success"]


@pytest.fixture(name="env")
def _env():
    """A new environment for each test, which leaves a force in it."""
    env = EnvSpec.of(task="wrench", tool="open_end", object="hex_nut").make_tool_use()
    env.reset(seed=1)
    return env


def twist_nut(env: ToolUseEnv, torque_above_resistance: float) -> None:
    """Lets an external torque turn the nut from now on."""
    simulation = env.simulation
    plant, context = simulation.world.plant, simulation._context
    forces = np.zeros(plant.num_velocities())
    torque = env.scene.joint_resistance["turn"] + torque_above_resistance
    forces[plant.GetJointByName("turn").velocity_start()] = torque
    plant.get_applied_generalized_force_input_port().FixValue(context, forces)


def test_turned_by_an_external_torque_in_contact_with_the_tool(env):
    """The outside of a prong presses on a nut that turns: contact, but not by the jaw."""
    R_WD = RotationMatrix(np.diag([1.0, -1.0, -1.0]))  # the mouth looks forward

    def approach(*p_NJaw: float) -> dict[str, Any]:
        state = env.world_state()
        p_EJaw = state.X_WE.inverse() @ state.p_W_tool["jaw"]
        X_WD = RigidTransform(R_WD, state.p_W_object["nut"] + p_NJaw - R_WD @ p_EJaw)
        action = displacement(state.X_WE, X_WD) / env.action_scale
        return env.step((action / max(1.0, np.abs(action).max())).astype(np.float32))[-1]

    for p_NJaw in [*[(0.0, -0.12, 0.06)] * 14, *[(0.0, -0.12, 0.0)] * 4]:
        approach(*p_NJaw)  # beside the nut
    for _ in range(8):
        approach(0.0, -0.05, 0.0)
    assert verdicts(env) == dict(zip(KINDS, (False, False, True, False), strict=True))
    twist_nut(env, 3.0)
    infos = []
    while verdicts(env) != dict(zip(KINDS, (True, False, True, False), strict=True)):
        infos.append(approach(0.0, -0.05, 0.0))
    assert infos and not any(info["success_once"] for info in infos)
