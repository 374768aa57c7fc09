"""The pry bar task: the lid opens by a lever, and by nothing else."""

from typing import Any

import numpy as np
import pytest
import yaml
from cheats import CHEATS
from cheats.motion import ScriptPolicy
from cheats.trial import run_trial
from support.task_files import own_task
from support.task_limits import follow as follow_expert

from fleet_tools.config.tasks import task_path
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.errors import ConfigError, UnknownNameError
from fleet_tools.sim.scene import sample_scene

ID = "FleetTools/PryBar-v0"
THRESHOLD, REACH_M = 0.14, 0.085
"""Angle of an open lid, rad; distance of the lid's edge from the hinge of `crate`."""


@pytest.fixture(name="follow")
def _follow(tmp_path):
    def follow(*motions: dict[str, Any], torque: float = 7.5):
        models = "flat_bar", "crate"
        return follow_expert(tmp_path, "pry_bar", models, *motions, resistance={"open": torque})

    return follow


def lever(angle_deg: float) -> dict[str, Any]:
    return {"type": "rotate", "angle_deg": angle_deg, "about": "sill", "axis": ["left", "right"]}


def move(*by_m: float) -> dict[str, Any]:
    return {"type": "translate", "by_m": [*by_m], "frame": "object"}


ON_SILL = move(0, 0, -0.003)


def verdicts(env: ToolUseEnv) -> tuple[bool, ...]:
    """Returns which parts of success hold, computed from the state of the world."""
    state = env.world_state()
    found = (
        state.object_joints["open"] >= THRESHOLD,
        state.part_motion["tip"].object_joints["open"] >= 0.12,
        state.in_contact("tool", "object/lid"),
        state.in_contact("tool", "object/case"),
    )
    return tuple(map(bool, found))


def test_a_lid_opened_by_the_lever_is_a_success_and_the_hand_gains_force(follow):
    env, info = follow(ON_SILL, lever(30))
    assert all(verdicts(env)) and info["success"] is True
    state = env.world_state()
    rise = state.p_W_object["lid_left"][2] - env.scene.object_pose.translation_m[2] - 0.071
    assert rise == pytest.approx((REACH_M - 0.008) * np.sin(state.object_joints["open"]), abs=1e-4)
    at_the_lid = 7.5 / REACH_M  # N; what the brake asks for
    assert np.linalg.norm(state.F_E[3:]) < at_the_lid / 1.5


@pytest.mark.parametrize("torque", [6.0, 9.0])
def test_no_blade_lifts_the_lid_without_bearing_on_the_sill(follow, torque):
    """At the least resistance of the task, too: the wrist's torque is less than the lid's."""
    env, info = follow(move(0, 0, 0.06), torque=torque)
    assert env.world_state().object_joints["open"] < 0.5 * THRESHOLD
    assert not info["success_once"]


OTHERWISE = {  # motions, and what holds at the end
    "too little": ((ON_SILL, lever(12)), (False, False, True, True)),
    "and taken out": ((ON_SILL, lever(30), move(-0.04, 0, 0.03)), (True, True, False, False)),
    "lifted, not levered, a loose lid": ((move(0, 0, 0.04),), (True, False, True, False)),
}


@pytest.mark.parametrize("case", OTHERWISE)
def test_otherwise(follow, case):
    motions, held = OTHERWISE[case]
    env, info = follow(*motions, torque=0.5 if "loose" in case else 7.5)
    assert verdicts(env) == held
    assert info["success_once"] == ("taken out" in case) and not info["success"]


@pytest.mark.parametrize(
    ("cheat", "torque"),
    [("blows", 6.0), pytest.param("lift_then_sill", 0.4, marks=pytest.mark.slow)],
)
def test_a_lid_that_was_open_before_the_bar_bore_on_the_sill(cheat, torque):
    """Where the bar bears in the end says nothing of how the lid came open."""
    env = EnvSpec.of(task="pry_bar", tool="flat_bar", object="sea_chest").make_tool_use()
    scene = sample_scene(
        env.task,
        5,
        split="all",
        tool="flat_bar",
        object="sea_chest",
        randomization={"tool_in_hand": False},
    )
    scene = scene.model_copy(update={"joint_resistance": {"open": torque}})
    trial = run_trial(env, ScriptPolicy(env, CHEATS["pry_bar"][cheat]), scene)
    assert trial.old_success and not trial.success  # all but the cause
    assert trial.by_part < 0.5


def test_a_part_pushes_from_one_keypoint_of_a_link_to_another(tmp_path):
    parts = yaml.safe_load(task_path("pry_bar").read_text())["tool_parts"]
    for axis, error, message in (
        (["lid_left", "sill"], ConfigError, "same link of crate.*lid and case"),
        (["lid_left", "lid_middle"], ConfigError, "lid_middle.*Did you mean"),
    ):
        parts["tip"]["pushes"] = [axis]
        task = own_task(tmp_path, "pry_bar", tool_parts=parts)
        with pytest.raises(error, match=message):
            EnvSpec.of(task=task, tool="flat_bar", object="crate").make_tool_use().reset(seed=1)


def test_a_part_bears_on_a_fixed_link_only(tmp_path):
    parts = yaml.safe_load(task_path("pry_bar").read_text())["tool_parts"]
    parts["tip"]["bears_on"] = "lid"
    task = own_task(tmp_path, "pry_bar", tool_parts=parts)
    with pytest.raises(UnknownNameError, match=r"fixed link of crate.*'lid'.*case"):
        EnvSpec.of(task=task, tool="flat_bar", object="crate").make_tool_use().reset(seed=1)
