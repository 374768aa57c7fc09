"""What people want to see beside the scene: keypoints, the plan, and what the cameras see."""

from collections.abc import Mapping
from dataclasses import dataclass

import gymnasium
import numpy as np

from fleet_tools.perception import point_cloud
from fleet_tools.rollouts.episode import Policy

TOOL_COLOR, OBJECT_COLOR = (0.90, 0.20, 0.15), (0.10, 0.35, 0.85)
PLANNED_COLOR, TRAVELLED_COLOR = (0.15, 0.60, 0.30), (0.95, 0.60, 0.10)


@dataclass(frozen=True, eq=False)
class Annotations:
    """What there is to draw at one moment; all points in the world, m.

    Attributes:
        tool, object: Their keypoints by name, (3,) each.
        planned: (T, 3), where the tool's acting keypoint was to go at each control step of the
            present plan; None where there is no plan.
        acting: (3,), where that keypoint is.
        cloud: (N, 3), what the cameras see; None where they are off.
        cloud_colors: (N, 3), red, green and blue in [0, 1].
    """

    tool: Mapping[str, np.ndarray]
    object: Mapping[str, np.ndarray]
    planned: np.ndarray | None
    acting: np.ndarray
    cloud: np.ndarray | None
    cloud_colors: np.ndarray | None


def annotate(
    env: gymnasium.Env, policy: Policy, observation: Mapping[str, np.ndarray]
) -> Annotations:
    """Returns what there is to draw now.

    Args:
        env: In an episode.
        policy: Its `plan`, if it has one, is drawn.
        observation: Its "point_cloud", if it has one, is drawn.
    """
    env = env.unwrapped
    state, acting = env.world_state(), env.task.reach.tool
    plan = getattr(policy, "plan", None)
    p_EActing = state.in_end_effector(state.p_W_tool)[acting]
    cloud = observation.get("point_cloud")
    if cloud is not None:
        cloud = cloud[cloud[:, 3] != point_cloud.ABSENT]
    return Annotations(
        tool=state.p_W_tool,
        object=state.p_W_object,
        planned=None if plan is None else np.array([X_WE @ p_EActing for X_WE in plan.X_WE]),
        acting=state.p_W_tool[acting],
        cloud=None if cloud is None else state.X_WE.multiply(np.float64(cloud[:, :3].T)).T,
        cloud_colors=None if cloud is None else _by_mask(cloud[:, 3]),
    )


def _by_mask(mask: np.ndarray) -> np.ndarray:
    """Colours for points, (N, 3), by the cloud's fourth column, (N,)."""
    return np.where(mask[:, None] == point_cloud.TOOL_MASK, TOOL_COLOR, OBJECT_COLOR)
