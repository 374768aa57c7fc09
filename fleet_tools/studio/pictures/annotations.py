"""Annotations of a view: keypoints, the plan, and the points that the cameras see."""

from collections.abc import Mapping
from dataclasses import dataclass

import gymnasium
import numpy as np
from pydrake.math import RigidTransform

from fleet_tools.config.expert import PointToPoint
from fleet_tools.config.tasks import TaskConfig
from fleet_tools.envs.tool_use_env import unwrap
from fleet_tools.errors import SimulationError
from fleet_tools.perception import point_cloud
from fleet_tools.policies.policy import Policy
from fleet_tools.sim.simulation import Simulation
from fleet_tools.sim.world_state import WorldState

Color = tuple[float, float, float]
"""Red, green and blue in [0, 1]."""

TOOL_COLOR: Color = (0.90, 0.20, 0.15)
OBJECT_COLOR: Color = (0.10, 0.35, 0.85)
PLANNED_COLOR: Color = (0.15, 0.60, 0.30)
TRAVELLED_COLOR: Color = (0.95, 0.60, 0.10)


@dataclass(frozen=True, eq=False)
class VisiblePoints:
    """Points that the cameras see, in the world, m.

    Attributes:
        tool: (N, 3), points of the tool.
        object: (M, 3), points of the object.
    """

    tool: np.ndarray
    object: np.ndarray


def motions(before: WorldState, after: WorldState) -> tuple[RigidTransform, RigidTransform]:
    """Returns X of tool and object between two states of an episode: p_W after is X p_W before.

    An object of several links, each of which has a motion of its own, has the identity.
    """
    one_link = len(after.links) == 1
    object = after.X_WO @ before.X_WO.inverse() if one_link else RigidTransform()
    return after.X_WE @ before.X_WE.inverse(), object


@dataclass(frozen=True, eq=False)
class Annotations:
    """Annotations at one moment; all points are in the world, m.

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
    cloud: VisiblePoints | None


def _acting_keypoint(task: TaskConfig) -> str:
    """Returns the tool's keypoint that the expert brings to the object."""
    terms = task.expert.actuation.constraints
    brought = [term.tool for term in terms if isinstance(term, PointToPoint)]
    return brought[0] if brought else task.keypoints.tool[0]


def annotate(
    env: gymnasium.Env, observation: Mapping[str, np.ndarray], policy: Policy | None = None
) -> Annotations:
    """Returns the annotations of a moment.

    Args:
        env: An environment of this package, in an episode.
        observation: The last observation; its "point_cloud" is drawn if it has one.
        policy: The policy that acts; its `plan` is drawn if it has one.
    """
    env = unwrap(env)
    state, acting = env.world_state(), _acting_keypoint(env.task)
    plan = getattr(policy, "plan", None)
    p_EActing = state.in_end_effector(state.p_W_tool)[acting]
    rows = observation.get("point_cloud")
    return Annotations(
        tool=state.p_W_tool,
        object=state.p_W_object,
        planned=None if plan is None else np.array([X_WE @ p_EActing for X_WE in plan.X_WE]),
        acting=state.p_W_tool[acting],
        cloud=None if rows is None else _cloud(rows, state),
    )


def _cloud(rows: np.ndarray, state: WorldState) -> VisiblePoints:
    """Returns an observed cloud, rows (N, 4) in the end effector's frame, in the world."""
    tool, object = (
        state.X_WE.multiply(rows[rows[:, 3] == mask, :3].T.astype(np.float64)).T
        for mask in (point_cloud.TOOL_MASK, point_cloud.OBJECT_MASK)
    )
    return VisiblePoints(tool, object)


def present_state(simulation: Simulation) -> WorldState | None:
    """Returns the state within a control step; None if Drake finds no contact forces there.

    An error would end the episode, which is to be the same whether it is shown or not.
    """
    try:
        return simulation.world_state()
    except SimulationError:
        return None
