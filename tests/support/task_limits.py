"""States that tests of several tasks reach: limits of the randomization, joints moved alone."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from fleet_tools.config.distributions import Uniform
from fleet_tools.config.geometry import Pose
from fleet_tools.config.tasks import TaskConfig
from fleet_tools.envs.tool_use_env import ToolUseEnv


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
