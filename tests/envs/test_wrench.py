"""The wrench task: a turned nut, and states that only look like success."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from support.task_limits import follow as follow_expert

from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.experts.policy import ExpertPolicy
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
