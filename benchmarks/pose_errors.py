"""How far a tool is from the pose in which the task's expert acts."""

from typing import TYPE_CHECKING

import numpy as np

# Drake is imported once the arguments are known to be valid.
if TYPE_CHECKING:
    from fleet_tools.envs.tool_use_env import ToolUseEnv
    from fleet_tools.sim.world_state import WorldState


def pose_errors(env: "ToolUseEnv", state: "WorldState", repeats_deg: float) -> dict[str, float]:
    """Returns how far the tool is from the pose in which the task's expert acts.

    Returns:
        `distance_mm`, its part `across_mm` in the horizontal plane and `above_mm` along the
        vertical, positive where the tool is too high, of the first pair of keypoints; and the
        deviation of each axis from its angle, deg, by the axis of the tool. Empty where the
        expert aligns no keypoints.
    """
    errors: dict[str, float] = {}
    for term in env.task.expert.actuation.constraints:
        if term.type == "point_to_point":
            if "distance_mm" not in errors:
                offset = state.X_WO.rotation() @ np.array(term.offset_m)
                gap = state.p_W_tool[term.tool] - state.p_W_object[term.object] - offset
                errors["distance_mm"] = 1e3 * float(np.linalg.norm(gap))
                errors["across_mm"] = 1e3 * float(np.linalg.norm(gap[:2]))
                errors["above_mm"] = 1e3 * float(gap[2])
            continue
        axis = state.p_W_tool[term.tool[1]] - state.p_W_tool[term.tool[0]]
        if term.object is None:
            target = np.array(term.world)
        else:
            target = state.p_W_object[term.object[1]] - state.p_W_object[term.object[0]]
        off = deviations_deg(axis, target, repeats_deg, term.angle_deg)
        errors[f"{'-'.join(term.tool)}_deg"] = float(off)
    return errors if "distance_mm" in errors else {}


def deviations_deg(
    one: np.ndarray, other: np.ndarray, repeats_deg: float, angle_deg: float = 0.0
) -> np.ndarray:
    """Returns by how much angles between directions deviate from another, up to a symmetry, deg.

    Args:
        one: Directions, (..., 3).
        other: Directions, likewise.
        repeats_deg: Angle after which an object looks the same.
        angle_deg: Angle that they should have.
    """
    across = np.linalg.norm(np.cross(one, other), axis=-1)
    angle = np.degrees(np.arctan2(across, (one * other).sum(-1)))
    beyond = (angle - angle_deg) % repeats_deg
    return np.minimum(beyond, repeats_deg - beyond)
