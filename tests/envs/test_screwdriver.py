"""The screwdriver task: a screw turned under load, and states that only look like success."""

from typing import Any

import numpy as np
import pytest
import yaml
from support.task_files import own_task
from support.task_limits import follow as follow_expert

from fleet_tools.config.tasks import task_path
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.experts.policy import ExpertPolicy

ID = "FleetTools/Screwdriver-v0"
THRESHOLD = np.radians(90)
KINDS = ("joint_displacement", "caused_by_part", "contact", "keypoints_near")
LEAD_M = 0.004
"""Lead of the screw `wood_screw`."""


@pytest.fixture(name="follow")
def _follow(tmp_path):
    def follow(*motions: dict[str, Any], torque: float = 1.0, **others: Any):
        models = "t_handle", "wood_screw"
        resistance = {"turn": torque}
        return follow_expert(
            tmp_path, "screwdriver", models, *motions, resistance=resistance, **others
        )

    return follow


def down(by_m: float) -> dict[str, Any]:
    return {"type": "translate", "by_m": [0, 0, -by_m], "frame": "world"}


def turn(angle_deg: float) -> dict[str, Any]:
    return {"type": "rotate", "angle_deg": angle_deg, "about": "slot", "axis": ["top", "slot"]}


def verdicts(env: ToolUseEnv) -> tuple[bool, ...]:
    """Returns which parts of success hold, computed from the state of the world."""
    state = env.world_state()
    distance = np.linalg.norm(state.p_W_tool["bit"] - state.p_W_object["slot"])
    found = (
        state.object_joints["turn"] >= THRESHOLD,
        state.part_motion["flank"].object_joints["turn"] >= 1.4,
        state.in_contact("tool", "object/screw"),
        distance <= 0.003,
    )
    return tuple(map(bool, found))


def test_a_screw_turned_under_load_is_a_success_and_goes_in_by_its_lead(follow):
    env, info = follow(down(0.008), turn(55), turn(55))
    assert all(verdicts(env)) and info["success"] is True
    state = env.world_state()
    seat = env.scene.object_pose.translation_m[2] + 0.055 - 0.007  # the slot's floor at the start
    sunk = seat - state.p_W_object["slot"][2]
    assert sunk == pytest.approx(LEAD_M * state.object_joints["turn"] / (2 * np.pi), abs=1e-6)


def test_without_a_load_the_bit_climbs_out_of_the_slot(follow):
    """Nothing but contact demands the load: the leaning walls lift a bit that turns."""
    env, info = follow(down(0.0005), turn(55), turn(55))
    state = env.world_state()
    assert state.p_W_tool["bit"][2] - state.p_W_object["slot"][2] > 0.004
    assert not info["success_once"] and np.degrees(state.object_joints["turn"]) < 60


def test_a_lighter_screw_needs_less_load(follow):
    lifts = []
    for torque in (0.2, 0.6, 1.0):
        env, _ = follow(down(0.003), turn(30), torque=torque)
        state = env.world_state()
        lifts.append(state.p_W_tool["bit"][2] - state.p_W_object["slot"][2])
    assert lifts[0] < lifts[1] < lifts[2]


UPWARDS = {"type": "translate", "by_m": [0, 0, 0.08], "frame": "world"}
OTHERWISE = {  # motions, what holds at the end, and the screw's angle, degrees
    "too little": ((down(0.008), turn(70)), (False, False, True, True), (45, 80)),
    "the wrong way": ((down(0.008), turn(-60)), (False, False, True, True), (-90, -35)),
    "and turned back": (
        (down(0.008), turn(110), turn(-60)), (False, False, True, True), (20, 80),
    ),
    "and released": ((down(0.008), turn(110), UPWARDS), (True, True, False, False), (90, 130)),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHERWISE)
def test_turned(follow, case):
    motions, held, (low, high) = OTHERWISE[case]
    env, info = follow(*motions)
    assert verdicts(env) == held
    assert low < np.rad2deg(env.world_state().object_joints["turn"]) < high
    assert info["success_once"] == (len(motions) == 3) and not info["success"]


def test_the_end_of_the_bit_is_no_flank(follow):
    """A bit that rubs the head's top, across the slot, turns a loose screw, and is no cause."""
    own = yaml.safe_load(task_path("screwdriver").read_text())["expert"]
    point, along, upright = own["actuation"]["constraints"]
    across = [point | {"offset_m": [0, 0, 0.0075]}, along | {"angle_deg": 90}, upright]
    env, info = follow(down(0.02), turn(80), torque=0.08, constraints=across)
    state = env.world_state()
    assert np.degrees(state.object_joints["turn"]) > 20
    assert state.part_motion["flank"].object_joints["turn"] == 0.0
    assert state.in_contact("tool", "object/screw") and not info["success_once"]


def test_only_what_touches_in_the_slot_counts(tmp_path):
    """The same episode, with a place that the bit does not touch, has no cause."""
    parts = yaml.safe_load(task_path("screwdriver").read_text())["tool_parts"]
    for within, share in ((0.0068, 1.0), (0.001, 0.0)):
        parts["flank"]["at"]["within_m"] = within
        task = own_task(tmp_path, "screwdriver", tool_parts=parts, success_duration_s=200)
        env = EnvSpec.of(task=task, tool="t_handle", object="wood_screw").make_tool_use()
        env.reset(seed=1)
        policy = ExpertPolicy(env, feedback=False)
        policy.reset()
        while env.world_state().object_joints["turn"] < 0.5:
            env.step(policy.act({}))
        state = env.world_state()
        caused = state.part_motion["flank"].object_joints["turn"]
        assert caused == pytest.approx(share * state.object_joints["turn"], rel=0.02)
