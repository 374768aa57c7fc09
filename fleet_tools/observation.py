"""The layout of observations: the robot's own senses, and the keypoints of tool and object."""

import numpy as np
from gymnasium import spaces

from fleet_tools.robot.panda import NUM_JOINTS
from fleet_tools.state import WorldState
from fleet_tools.tasks import ObservedKeypoints

OBS_MODES = ("state",)


def observation_space(keypoints: ObservedKeypoints) -> spaces.Dict:
    """Returns the space of `observe`."""

    def box(*shape: int) -> spaces.Box:
        return spaces.Box(-np.inf, np.inf, shape, np.float32)

    return spaces.Dict(
        {
            "joint_position": box(NUM_JOINTS),
            "joint_velocity": box(NUM_JOINTS),
            "joint_external_torque": box(NUM_JOINTS),
            "end_effector_pose": box(3, 4),
            "end_effector_wrench": box(6),
            "tool_keypoints": box(len(keypoints.tool), 3),
            "object_keypoints": box(len(keypoints.object), 3),
        }
    )


def observe(state: WorldState, keypoints: ObservedKeypoints) -> dict[str, np.ndarray]:
    """Returns the observation of a state, all float32.

    Returns:
        joint_position: (7,), rad.
        joint_velocity: (7,), rad/s.
        joint_external_torque: (7,), torque that contact exerts on the joints, N m.
        end_effector_pose: (3, 4), X_WE as [rotation | translation], m.
        end_effector_wrench: (6,), moment (N m), then force (N), that contact exerts on the end
            effector at its origin, in its frame E.
        tool_keypoints, object_keypoints: (n, 3), in E, m, in the order of the task file.
    """

    def in_end_effector(p_W: dict[str, np.ndarray], names: tuple[str, ...]) -> np.ndarray:
        p_E = state.in_end_effector(p_W)
        return np.array([p_E[name] for name in names])

    senses = {
        "joint_position": state.q,
        "joint_velocity": state.v,
        "joint_external_torque": state.tau_external,
        "end_effector_pose": state.X_WE.GetAsMatrix34(),
        "end_effector_wrench": state.F_E,
        "tool_keypoints": in_end_effector(state.p_W_tool, keypoints.tool),
        "object_keypoints": in_end_effector(state.p_W_object, keypoints.object),
    }
    return {name: np.array(value, dtype=np.float32) for name, value in senses.items()}
