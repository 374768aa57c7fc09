"""Tasks whose object has a joint that the tool turns: limits of the scenes, and other causes."""

import pytest
from support.task_limits import corner_poses, move_from_outside

from fleet_tools.config.predicates import JointDisplacement
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.registration import env_id
from fleet_tools.sim.scene import sample_scene

SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("task", "object", "tool"),
    [
        ("wrench", "hex_nut", "angled"),  # jaws at 15 degrees
        pytest.param("wrench", "hex_nut", "combination", marks=SLOW),  # the other way
        ("screwdriver", "wood_screw", "offset"),
        pytest.param("screwdriver", "wood_screw", "ratchet", marks=SLOW),
        pytest.param("screwdriver", "wood_screw", "all_steel", marks=SLOW),
        ("pry_bar", "crate", "crowbar"),
        pytest.param("pry_bar", "crate", "case_opener", marks=SLOW),
    ],
)
def test_the_expert_plans_at_the_limits_of_the_randomization(make, task, object, tool):
    env = make(env_id(task), split="all")
    for seed, pose in enumerate(corner_poses(env.task)):
        scene = sample_scene(env.task, seed, split="all", tool=tool, object=object)
        env.reset(options={"scene": scene.model_copy(update={"object_pose": pose})})
        ExpertPolicy(env).reset()


@pytest.mark.parametrize(
    ("task", "tool", "object", "beyond"),
    [
        ("wrench", "open_end", "hex_nut", 0.02),
        ("screwdriver", "t_handle", "wood_screw", 0.02),
        ("pry_bar", "flat_bar", "crate", 0.3),
    ],
)
def test_a_joint_that_an_external_torque_moves_far_from_the_tool_is_no_success(
    make, task, tool, object, beyond
):
    env = make(env_id(task), tool=tool, object=object, render_mode=None)
    env.reset(seed=1)
    (moved,) = [each for each in env.task.success if isinstance(each, JointDisplacement)]
    info = move_from_outside(env, moved.joint, beyond, moved.at_least)
    held = [name.split()[-1] for name, each in env.verdicts().items() if each.holds]
    assert held == ["joint_displacement"]
    assert info["outcome"] == "running" and not info["success_once"]
    env.close()  # the torque stays in this simulation
