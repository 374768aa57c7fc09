"""Annotations of a view: keypoints, the plan, and the points that the cameras see."""

from collections.abc import Mapping
from dataclasses import dataclass

import gymnasium
import numpy as np

from fleet_tools.config.expert import PointToPoint
from fleet_tools.config.tasks import TaskConfig
from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.perception import point_cloud
from fleet_tools.policies.policy import Policy
from fleet_tools.sim.world_state import WorldState
from fleet_tools.visualization.colors import OBJECT_COLOR, TOOL_COLOR


@dataclass(frozen=True, eq=False)
class ColoredPoints:
    """Points with colours.

    Attributes:
        points: (N, 3), in the world, m.
        colors: (N, 3), red, green and blue in [0, 1].
    """

    points: np.ndarray
    colors: np.ndarray


@dataclass(frozen=True, eq=False)
class Annotations:
    """What is drawn at one moment; all points are in the world, m.

    Attributes:
        tool: Keypoints of the tool by name, (3,) each.
        object: Keypoints of the object by name, (3,) each.
        planned: (T, 3), positions of the tool's acting keypoint at the control steps of the present
            plan; None without a plan.
        acting: (3,), present position of that keypoint.
        cloud: Points that the cameras see; None if the environment observes no point cloud.
    """

    tool: Mapping[str, np.ndarray]
    object: Mapping[str, np.ndarray]
    planned: np.ndarray | None
    acting: np.ndarray
    cloud: ColoredPoints | None


def _acting_keypoint(task: TaskConfig) -> str:
    """Returns the tool's keypoint that the expert brings to the object."""
    terms = task.expert.actuation.constraints
    brought = [term.tool for term in terms if isinstance(term, PointToPoint)]
    return brought[0] if brought else task.keypoints.tool[0]


def annotate(
    env: gymnasium.Env,
    observation: Mapping[str, np.ndarray],
    policy: Policy | None = None,
    now: WorldState | None = None,
) -> Annotations:
    """Returns the annotations of a moment.

    Args:
        env: An environment of this package, in an episode.
        observation: The last observation; its "point_cloud" is drawn if it has one.
        policy: The policy that acts; its `plan` is drawn if it has one.
        now: The state at a later moment within the step; if None, the observation is the present.
    """
    env = unwrap(env)
    observed, acting = env.world_state(), _acting_keypoint(env.task)
    state = observed if now is None else now
    plan = getattr(policy, "plan", None)
    p_EActing = state.in_end_effector(state.p_W_tool)[acting]
    cloud = None
    if "point_cloud" in observation:
        cloud = _cloud(observation["point_cloud"], observed, state)
    return Annotations(
        tool=state.p_W_tool,
        object=state.p_W_object,
        planned=None if plan is None else np.array([X_WE @ p_EActing for X_WE in plan.X_WE]),
        acting=state.p_W_tool[acting],
        cloud=cloud,
    )


def _cloud(rows: np.ndarray, observed: WorldState, now: WorldState) -> ColoredPoints:
    """Returns an observed cloud (N, 4) where its points are now.

    The tool's points have moved with the end effector since, the object's with the object.
    """
    rows = rows[rows[:, 3] != point_cloud.ABSENT]
    p_E, mask = rows[:, :3].T.astype(np.float64), rows[:, 3]
    X_WE_object = now.X_WO @ observed.X_WO.inverse() @ observed.X_WE
    of_tool = mask[:, None] == point_cloud.TOOL_MASK
    p_W = np.where(of_tool, now.X_WE.multiply(p_E).T, X_WE_object.multiply(p_E).T)
    return ColoredPoints(p_W, _colors_of(mask))


def _colors_of(mask: np.ndarray) -> np.ndarray:
    """Returns the colours (N, 3) of points, given the cloud's fourth column (N,)."""
    return np.where(mask[:, None] == point_cloud.TOOL_MASK, TOOL_COLOR, OBJECT_COLOR)
