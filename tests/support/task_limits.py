"""States that tests of several tasks reach: other motions of the expert, joints moved alone."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from support.task_files import own_task

from fleet_tools.config.distributions import Uniform
from fleet_tools.config.geometry import Pose
from fleet_tools.config.tasks import TaskConfig, task_path
from fleet_tools.envs.spec import EnvSpec
from fleet_tools.envs.tool_use_env import ToolUseEnv
from fleet_tools.experts.policy import ExpertPolicy
from fleet_tools.sim.scene import sample_scene


def corner_poses(task: TaskConfig) -> Iterator[Pose]:
    """Yields the object's poses at the limits of place and direction, 8 in all."""
    drawn = task.randomization.object_pose
    x, y, _ = drawn.translation_m
    limits = []
    for each in (x, y, drawn.rpy_deg[2]):
        assert isinstance(each, Uniform)
        limits.append(each.uniform)
    for px, py, yaw in itertools.product(*limits):
        yield Pose(translation_m=(px, py, 0.0), rpy_deg=(0.0, 0.0, yaw))


def move_from_outside(
    env: ToolUseEnv, joint: str, beyond: float, threshold: float
) -> dict[str, Any]:
    """Moves a joint of the object by an external torque, far from the tool; returns the last info.

    Args:
        env: An environment in the first state of an episode.
        joint: Name of the joint.
        beyond: Torque beyond the joint's resistance, N m.
        threshold: Where to stop, rad.
    """
    assert env.simulation is not None
    plant = env.simulation.world.plant
    forces = np.zeros(plant.num_velocities())
    velocity = plant.GetJointByName(joint).velocity_start()
    forces[velocity] = env.scene.joint_resistance[joint] + beyond
    plant.get_applied_generalized_force_input_port().FixValue(env.simulation._context, forces)
    info: dict[str, Any] = {}
    for _ in range(40):
        info = env.step(np.zeros(6, np.float32))[-1]
        if env.world_state().object_joints[joint] > threshold:
            break
    return info


def follow(
    folder: Path,
    name: str,
    models: tuple[str, str],
    *motions: dict[str, Any],
    seed: int = 1,
    resistance: dict[str, float] | None = None,
    constraints: list[Any] | None = None,
) -> tuple[ToolUseEnv, dict[str, Any]]:
    """Runs the expert of a task with other motions after the actuation pose.

    Args:
        folder: Folder for a task file.
        name: Name of the task.
        models: Names of tool and object.
        motions: The motions; the hand stays at their end.
        seed: Seed of the scene.
        resistance: Resistance of joints of the object; the scene's if None.
        constraints: Constraints of the actuation pose; the task's if None.

    Returns:
        The environment, and the last `info`.
    """
    own = yaml.safe_load(task_path(name).read_text())["expert"]
    stay = {"type": "stay", "for_s": 0.33}
    after = [{"motion": motion, "speed": 0.4} for motion in (*motions, stay)]
    changed = {} if constraints is None else {"constraints": constraints}
    expert = own | {"actuation": own["actuation"] | changed, "after": after}
    # Success must last longer than an episode, so that none ends early.
    task = own_task(folder, name, success_duration_s=200, expert=expert)
    env = EnvSpec.of(task=task, tool=models[0], object=models[1]).make_tool_use()
    scene = sample_scene(
        env.task,
        seed,
        split="all",
        tool=models[0],
        object=models[1],
        randomization={"tool_in_hand": False},  # the limits of contact, not of a grasp
    )
    changed = {} if resistance is None else {"joint_resistance": resistance}
    _, info = env.reset(options={"scene": scene.model_copy(update=changed)})
    policy = ExpertPolicy(env, feedback=False)
    policy.reset()
    assert policy.plan is not None
    for _ in range(len(policy.plan.X_WE) - 1):
        *_, info = env.step(policy.act({}))
    return env, info
